/* The options that say which model runs where, and the engine made from them. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

enum { KEY_DEVICE = 0x100, KEY_CONTEXT, KEY_KV_DTYPE, KEY_F32_ACTIVATIONS };

static const struct argp_option engine_options[] = {
    {"model", 'm', "FILE", 0, "model file (GGUF)", 1},
    {"device", KEY_DEVICE, "DEVICE", 0, "auto (default), cpu, cuda or cuda:N", 1},
    {"threads", 't', "N", 0, "CPU threads; 0 (default): one a core", 1},
    {"context", KEY_CONTEXT, "TOKENS", 0, "tokens that prompt and answer may hold together", 1},
    {"kv-dtype", KEY_KV_DTYPE, "TYPE", 0, "f16 (default), bf16 or f32: the key-value cache", 1},
    {"f32-activations", KEY_F32_ACTIVATIONS, NULL, 0, "CPU, quantised weights: exact activations, slower", 1},
    {0},
};

lls_device cli_device(struct argp_state *state, const char *arg) {
    if (strcmp(arg, "auto") == 0) return (lls_device){0};
    if (strcmp(arg, "cpu") == 0) return (lls_device){LLS_CPU, 0};
    if (strcmp(arg, "cuda") == 0) return (lls_device){LLS_CUDA, 0};
    if (strncmp(arg, "cuda:", 5) == 0) {
        return (lls_device){LLS_CUDA, (int32_t)cli_int(state, "the number after cuda:", arg + 5, 0, 1023)};
    }
    argp_error(state, "--device is \"%s\", must be auto, cpu, cuda or cuda:N", arg);
    return (lls_device){0};
}

lls_device cli_resolve_device(lls_device device) {
    if (device.type) return device;
    return (lls_device){lls_cuda_device_count() > 0 ? LLS_CUDA : LLS_CPU, 0};
}

int32_t cli_threads(int32_t asked) {
    cpu_set_t cores;
    if (asked > 0) return asked;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

static lls_dtype kv_dtype(struct argp_state *state, const char *arg) {
    static const lls_dtype allowed[] = {LLS_F16, LLS_BF16, LLS_F32};
    for (int i = 0; i < 3; i++) {
        if (strcmp(arg, lls_dtype_name(allowed[i])) == 0) return allowed[i];
    }
    argp_error(state, "--kv-dtype is \"%s\", must be f16, bf16 or f32", arg);
    return LLS_F16;
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    cli_engine_flags *f = state->input;
    switch (key) {
    case 'm': f->model = arg; break;
    case 't': f->threads = (int32_t)cli_int(state, "-t", arg, 0, 1024); break;
    case KEY_DEVICE: f->device = cli_device(state, arg); break;
    case KEY_CONTEXT: f->context = (int32_t)cli_int(state, "--context", arg, 1, INT32_MAX); break;
    case KEY_KV_DTYPE: f->kv_dtype = kv_dtype(state, arg); break;
    case KEY_F32_ACTIVATIONS: f->f32_activations = true; break;
    case ARGP_KEY_END:
        if (!f->model) argp_error(state, "no model: give one with -m FILE");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

const struct argp cli_engine_argp = {engine_options, parse, NULL, NULL, NULL, NULL, NULL};

static void show_progress(double fraction, void *user) {
    enum { WIDTH = 40 };
    int *shown = user; // percent on the terminal: redraw on change alone
    int percent = (int)(100 * fraction), filled = (int)(WIDTH * fraction);
    if (percent == *shown) return;
    *shown = percent;
    fprintf(stderr, "\rloading [%.*s%*s] %3d %%", filled, "########################################", WIDTH - filled,
            "", percent);
}

int cli_engine_open(cli_engine_flags *flags, lls_model **model, lls_engine **engine) {
    int shown = -1;
    lls_model_options model_options = LLS_MODEL_OPTIONS_INIT;
    if (isatty(STDERR_FILENO)) model_options.progress = show_progress, model_options.progress_user = &shown;
    lls_status status = lls_model_load(flags->model, &model_options, model);
    if (status) return cli_fail(status);

    flags->device = cli_resolve_device(flags->device);
    lls_engine_options options = LLS_ENGINE_OPTIONS_INIT;
    options.device = flags->device;
    options.num_threads = flags->threads;
    options.context_length = flags->context;
    options.kv_dtype = flags->kv_dtype;
    options.f32_activations = flags->f32_activations;
    status = lls_engine_create(*model, &options, engine);
    if (shown >= 0) fputs("\r\033[K", stderr); // take the bar away again
    if (!status) return CLI_OK;
    lls_model_free(*model);
    return cli_fail(status);
}
