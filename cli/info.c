/* llmspeed info: the build, the machine, and every op x variant row with the reason where one cannot run here. */
#include <stdio.h>

#include "common.h"
#include "verbs.h"

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "one JSON object instead of text", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state) {
    if (key == ARGP_KEY_ARG) argp_error(state, "unexpected argument \"%s\"", arg);
    if (key != 'j') return ARGP_ERR_UNKNOWN;
    *(bool *)state->input = true;
    return 0;
}

static json_t *gpus_json(void) {
    json_t *gpus = json_array();
    for (int32_t i = 0; i < lls_cuda_device_count(); i++) {
        lls_cuda_info gpu;
        if (lls_cuda_device_info(i, &gpu)) continue;
        json_array_append_new(gpus, json_pack("{s:i, s:s, s:s, s:i, s:i, s:I, s:I}", "index", i, "name", gpu.name,
                                              "driver", gpu.driver, "sm", gpu.sm, "num_sms", gpu.num_sms,
                                              "memory_bytes", (json_int_t)gpu.memory_bytes, "l2_bytes",
                                              (json_int_t)gpu.l2_bytes));
    }
    return gpus;
}

static const char *device_name(lls_device_type type) {
    return type == LLS_CUDA ? "cuda" : "cpu";
}

static int print_json(const lls_build_info *build) {
    json_t *variants = json_array();
    lls_variant_info v;
    for (int32_t i = 0; lls_variant_at(i, &v); i++) {
        json_array_append_new(variants, json_pack("{s:s, s:s, s:s, s:s, s:i, s:s?, s:s?}", "op", v.op, "variant", v.variant,
                                                  "device", device_name(v.device), "dtypes", v.dtypes, "min_sm",
                                                  v.min_sm, "unavailable", v.unavailable, "idea", v.idea));
    }
    return cli_print_json(json_pack("{s:s, s:s, s:s, s:{s:s, s:s, s:i}, s:o, s:o}", "version", build->version,
                                    "compiler", build->compiler, "cuda", build->cuda, "cpu", "name", build->cpu_name,
                                    "level", build->cpu_level, "cores", cli_threads(0), "gpus", gpus_json(),
                                    "variants", variants),
                          NULL);
}

static void print_text(const lls_build_info *build) {
    printf("llmspeed   %s, built with gcc %s, CUDA %s\n", build->version, build->compiler, build->cuda);
    printf("CPU        %s, %d cores, level %s\n", build->cpu_name, cli_threads(0), build->cpu_level);
    int32_t gpus = lls_cuda_device_count();
    if (gpus == 0) printf("GPU        none with a working driver\n");
    for (int32_t i = 0; i < gpus; i++) {
        lls_cuda_info gpu;
        if (lls_cuda_device_info(i, &gpu)) continue;
        printf("GPU %-6d %s, sm_%d, %d SMs, %s, L2 %s, %s\n", i, gpu.name, gpu.sm, gpu.num_sms,
               cli_size_of((double)gpu.memory_bytes).text, cli_size_of((double)gpu.l2_bytes).text, gpu.driver);
    }
    printf("\n%-13s %-22s %-6s %-42s %s\n", "op", "variant", "device", "here", "dtypes");
    lls_variant_info v;
    const char *op = "";
    for (int32_t i = 0; lls_variant_at(i, &v); i++) {
        printf("%-13s %-22s %-6s %-42s %s\n", v.op == op ? "" : v.op, v.variant, device_name(v.device),
               v.unavailable ? v.unavailable : "yes", v.dtypes);
        op = v.op;
    }
}

int verb_info(int argc, char **argv) {
    static const struct argp argp = {
        options, parse, NULL,
        "Shows this build, this machine, and every implementation of every op, in the order in which they are "
        "considered.\vExamples:\n  llmspeed info\n"
        "  llmspeed info --json | jq '.variants[] | select(.op == \"linear\")'\n",
        NULL, NULL, NULL};
    bool json = false;
    cli_parse(&argp, argc, argv, &json);
    lls_build_info build = lls_build();
    if (json) return print_json(&build);
    print_text(&build);
    return cli_finish_output();
}
