#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/exec/engine.h"

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
