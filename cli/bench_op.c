/* llmspeed bench op: every implementation of every op, checked and timed. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bench/bandwidth.h"
#include "bench/bench.h"
#include "bench_sources.h"
#include "common.h"
#include "verbs.h"

enum { KEY_DEVICE = 0x100, KEY_SECONDS };

typedef struct flags {
    bench_options bench;
    const char *json_path;
    double bandwidth;
    json_t *rows;
    const char *last_op;
    int failed;
} flags;

static const struct argp_option options[] = {
    {"op", 'o', "OP", 0, "this op alone", 0},
    {"variant", 'v', "NAME", 0, "this implementation alone (\"ref\" is timed on request only)", 0},
    {"case", 'c', "TEXT", 0, "cases whose name contains TEXT", 0},
    {"device", KEY_DEVICE, "DEVICE", 0, "auto (default), cpu, cuda or cuda:N", 0},
    {"threads", 't', "N", 0, "CPU threads; 0 (default): one a core", 0},
    {"seconds", KEY_SECONDS, "S", 0, "time a row may take (default 0.2)", 0},
    {"json", 'j', "FILE", 0, "write the results to FILE too", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state) {
    bench_options *b = &((flags *)state->input)->bench;
    switch (key) {
    case 'o': b->op = arg; break;
    case 'v': b->variant = arg; break;
    case 'c': b->match = arg; break;
    case 't': b->threads = (int32_t)cli_int(state, "-t", arg, 0, 1024); break;
    case 'j': ((flags *)state->input)->json_path = arg; break;
    case KEY_DEVICE: b->device = cli_device(state, arg); break;
    case KEY_SECONDS:
        b->seconds = cli_real(state, "--seconds", arg);
        if (!(b->seconds > 0)) argp_error(state, "--seconds is \"%s\", must be above 0", arg);
        break;
    case ARGP_KEY_ARG: argp_error(state, "unexpected argument \"%s\"", arg); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static json_t *row_json(const flags *f, const bench_row *r) {
    json_t *params = json_object();
    for (int32_t i = 0; i < r->num_params; i++) {
        json_object_set_new(params, r->param_names[i], json_integer(r->param_values[i]));
    }
    json_t *row = json_pack("{s:s, s:s, s:o, s:s, s:s, s:b}", "op", r->op, "case", r->name, "params", params, "dtype",
                            r->dtype, "variant", r->variant, "chosen", r->chosen);
    if (r->why) {
        json_object_set_new(row, r->failed ? "failed" : "refused", json_string(r->why));
        return row;
    }
    json_object_set_new(row, "us", json_real(1e6 * r->median));
    json_object_set_new(row, "p95_us", json_real(1e6 * r->p95));
    json_object_set_new(row, "best_us", json_real(1e6 * r->best));
    json_object_set_new(row, "tflops", json_real(1e-12 * r->flops / r->median));
    json_object_set_new(row, "tbps", json_real(1e-12 * r->bytes / r->median));
    json_object_set_new(row, "error", json_real(r->error));
    if (f->bandwidth > 0) json_object_set_new(row, "roof_share", json_real(r->bytes / r->median / f->bandwidth));
    return row;
}

static void on_row(const bench_row *r, void *user) {
    flags *f = user;
    if (!f->last_op || strcmp(f->last_op, r->op) != 0) {
        printf("\n%-38s %-5s %-22s %10s %10s %8s %9s %6s\n", r->op, "dtype", "variant", "us", "p95", "GB/s", "GFLOP/s",
               "floor");
        f->last_op = r->op;
    }
    char name[96];
    int used = snprintf(name, sizeof name, "%s", r->name);
    for (int32_t i = 0; i < r->num_params && used < (int)sizeof name; i++) {
        used += snprintf(name + used, sizeof name - (size_t)used, "%s%lld", i ? "x" : " ",
                         (long long)r->param_values[i]);
    }
    printf("%-38s %-5s %c%-21s ", name, r->dtype, r->chosen ? '*' : ' ', r->variant);
    if (r->why) {
        printf("%s\n", r->why);
        f->failed += r->failed;
    } else {
        printf("%10.2f %10.2f %8.1f %9.1f", 1e6 * r->median, 1e6 * r->p95, 1e-9 * r->bytes / r->median,
               1e-9 * r->flops / r->median);
        if (f->bandwidth > 0) printf(" %4.0f %%", 100 * r->bytes / r->median / f->bandwidth);
        putchar('\n');
    }
    fflush(stdout);
    json_array_append_new(f->rows, row_json(f, r));
}

static json_t *result(const flags *f) {
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    lls_build_info build = lls_build();
    lls_cuda_info gpu;
    bool cuda = f->bench.device.type == LLS_CUDA && !lls_cuda_device_info(f->bench.device.index, &gpu);
    json_t *hashes = json_object();
    for (size_t i = 0; i < sizeof bench_sources / sizeof *bench_sources; i++) {
        json_object_set_new(hashes, bench_sources[i].op, json_string(bench_sources[i].sha256));
    }
    json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:{s:f}, s:o, s:O}", cuda ? "gpu" : "cpu",
                               cuda ? gpu.name : build.cpu_name, "date", date, "commit", BENCH_COMMIT, "version",
                               build.version, "compiler", build.compiler, "threads", cli_threads(f->bench.threads),
                               "ceilings", cuda ? "copy_tbps" : "read_tbps", 1e-12 * f->bandwidth, "sources_sha256",
                               hashes, "rows", f->rows);
    return object;
}

int verb_bench_op(int argc, char **argv) {
    static const struct argp argp = {
        options, parse, NULL,
        "Times every implementation of every op on this machine. Each is checked against the fp64 oracle first. "
        "Buffers rotate through more memory than the cache holds. \"*\" marks what a call takes by itself; \"floor\" "
        "is the time that the bytes alone need, as a share of the time taken.\vExamples:\n"
        "  llmspeed bench op --op linear --case decode\n"
        "  llmspeed bench op --device cuda --json results.json\n",
        NULL, NULL, NULL};
    flags f = {.bench = {.seconds = 0.2, .on_row = on_row}};
    cli_parse(&argp, argc, argv, &f);
    f.bench.device = cli_resolve_device(f.bench.device);
    f.bench.user = &f;
    lls_cuda_info gpu;
    lls_status found = f.bench.device.type == LLS_CUDA ? lls_cuda_device_info(f.bench.device.index, &gpu) : LLS_OK;
    if (found) return cli_fail(found);
    f.bandwidth = bench_bandwidth(f.bench.device, cli_threads(f.bench.threads));
    f.rows = json_array();
    printf("%.1f GB/s: what this %s\n", 1e-9 * f.bandwidth,
           f.bench.device.type == LLS_CUDA ? "GPU copies at, reads and writes counted" : "machine reads at");
    lls_status status = bench_run(&f.bench);
    int code = status ? cli_fail(status) : cli_finish_output();
    if (!code && f.json_path) code = cli_print_json(result(&f), f.json_path);
    json_decref(f.rows);
    if (!code && f.failed) code = cli_error(CLI_FAILED, "%d rows failed", f.failed);
    return code;
}
