/* Shapes of the two models that the op benches measure: one that lives in a laptop's cache, one that fills a GPU. */
#ifndef BENCH_SHAPES_H
#define BENCH_SHAPES_H

#include <stdint.h>

typedef struct bench_model {
    const char *name;
    int64_t hidden, num_heads, num_kv_heads, head_dim, ffn, vocab;
} bench_model;

static const bench_model bench_models[] = {
    {"SmolLM2-135M", 576, 9, 3, 64, 1536, 49152},
    {"Llama-3-8B", 4096, 32, 8, 128, 14336, 128256},
};
enum { BENCH_NUM_MODELS = sizeof bench_models / sizeof *bench_models };

/* One sequence decoding, a batch of them, a prompt. */
typedef struct bench_phase {
    const char *name;
    int64_t tokens;
} bench_phase;

static const bench_phase bench_phases[] = {{"decode", 1}, {"batch", 16}, {"prompt", 512}};
enum { BENCH_NUM_PHASES = sizeof bench_phases / sizeof *bench_phases };

#endif
