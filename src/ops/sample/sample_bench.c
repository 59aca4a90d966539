/* sample: the bench models' vocabularies, greedy and with temperature, top-k and top-p. */
#include <stdio.h>

#include "bench/bench.h"
#include "bench/shapes.h"

BENCH_CALL(sample)

typedef struct params {
    int64_t batch, vocab;
    bool greedy;
} params;

static int64_t constant(int64_t i, const void *user) {
    (void)i;
    return *(const int64_t *)user;
}

static void make(bench *b, const void *param) {
    const params *p = param;
    int64_t shape[] = {p->batch, p->vocab}, top_k = 40;
    lls_sample_args args = LLS_SAMPLE_ARGS_INIT;
    args.logits = bench_normal(b, LLS_F32, 2, shape, 4);
    if (!p->greedy) {
        args.temperature = bench_constant(b, 1, &p->batch, 0.8);
        args.top_k = bench_integers(b, LLS_I32, 1, &p->batch, constant, &top_k);
        args.top_p = bench_constant(b, 1, &p->batch, 0.95);
    }
    args.out_ids = bench_output(b, LLS_I32, 1, &p->batch, 0);
    bench_args(b, &args, sizeof args);
    bench_param(b, "batch", p->batch);
    bench_param(b, "vocab", p->vocab);
}

static void cases(bench *b) {
    for (int m = 0; m < BENCH_NUM_MODELS; m++) {
        for (int i = 0; i < 4; i++) {
            params p = {i / 2 ? 16 : 1, bench_models[m].vocab, i % 2 == 0};
            char name[64];
            snprintf(name, sizeof name, "%s %s", bench_models[m].name, p.greedy ? "greedy" : "top-k top-p");
            bench_case(b, name, i / 2 ? "batch" : "decode", LLS_F32, make, &p);
        }
    }
}

const bench_suite bench_suite_sample = {"sample", call, cases, .ladder_cpu = {"Llama-3-8B top-k top-p, batch", LLS_F32},
                                        .ladder_cuda = {"Llama-3-8B top-k top-p, batch", LLS_F32}};
