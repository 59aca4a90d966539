#include "run.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/exec/engine.h"

const char *test_golden, *test_model_path;
lls_device test_device = {LLS_CPU, 0};

static error_t parse(int key, char *arg, struct argp_state *state) {
    switch (key) {
    case 'g': test_golden = arg; return 0;
    case 'm': test_model_path = arg; return 0;
    case 'd':
        if (strcmp(arg, "cuda") == 0) test_device.type = LLS_CUDA;
        else if (strcmp(arg, "cpu") != 0) argp_error(state, "device is %s, must be cpu or cuda", arg);
        return 0;
    case ARGP_KEY_END:
        if (!test_golden) argp_error(state, "--golden is missing");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

void test_arguments(int argc, char **argv, const char *doc) {
    static const struct argp_option options[] = {
        {"golden", 'g', "DIR", 0, "fixtures (tests/golden)", 0},
        {"model", 'm', "FILE", 0, "SmolLM2-135M-Instruct.Q4_1.gguf, for tests of a real model", 0},
        {"device", 'd', "cpu|cuda", 0, "where to run (default cpu)", 0},
        {0},
    };
    const struct argp argp = {options, parse, NULL, doc, NULL, NULL, NULL};
    argp_parse(&argp, argc, argv, 0, NULL, NULL);
}

const char *test_golden_path(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", test_golden, name);
    return path;
}

lls_model *test_model(const char *path) {
    lls_model *model;
    if (lls_model_load(path, NULL, &model) == LLS_OK) return model;
    fprintf(stderr, "%s: %s\n", path, lls_last_error());
    exit(2);
}

lls_engine *test_engine(const lls_model *model, lls_engine_options options) {
    lls_engine *engine;
    size_t bytes;
    lls_ctx *ctx;
    if (lls_engine_create(model, &options, &engine)) {
        fprintf(stderr, "engine: %s\n", lls_last_error());
        exit(2);
    }
    void *kv = lls__engine_kv(engine, &bytes, &ctx), *nan = malloc(bytes);
    memset(nan, 0xFF, bytes);
    if (lls_upload(ctx, kv, nan, bytes, NULL)) exit(2);
    free(nan);
    return engine;
}

lls_status test_request(lls_engine *engine, const lls_request *request, test_run *run, float *logits, int32_t vocab) {
    lls_event events[64];
    int64_t id;
    *run = (test_run){0};
    lls_status status = lls_engine_add(engine, request, &id);
    while (!status && !run->finish) {
        size_t count;
        status = lls_engine_step(engine, events, 64, &count, NULL);
        for (size_t i = 0; !status && i < count; i++) {
            if (events[i].id != id) continue;
            run->finish = events[i].finish;
            if (events[i].token < 0) continue;
            if (run->num_ids < 1024) run->ids[run->num_ids++] = events[i].token;
            const float *row = logits ? lls_engine_logits(engine, id) : NULL;
            if (row) memcpy(logits, row, (size_t)vocab * sizeof *row);
        }
    }
    return status;
}

double test_nmse(const float *got, const float *want, int64_t n) {
    double error = 0, energy = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        error += d * d;
        energy += (double)want[i] * (double)want[i];
    }
    return error / energy;
}
