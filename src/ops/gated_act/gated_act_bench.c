/* gated_act: SwiGLU at the ffn sizes of the bench models. */
#include "bench/bench.h"
#include "bench/shapes.h"

BENCH_CALL(gated_act)

typedef struct params {
    int64_t rows, n;
    lls_dtype dtype;
} params;

static void make(bench *b, const void *param) {
    const params *p = param;
    int64_t shape[] = {p->rows, p->n};
    lls_gated_act_args args = LLS_GATED_ACT_ARGS_INIT;
    args.gate = bench_normal(b, p->dtype, 2, shape, 1);
    args.up = bench_normal(b, p->dtype, 2, shape, 1);
    args.out = bench_output(b, p->dtype, 2, shape, bench_tol(p->dtype));
    args.act = LLS_ACT_SILU;
    bench_args(b, &args, sizeof args);
    bench_param(b, "rows", p->rows);
    bench_param(b, "n", p->n);
}

static void cases(bench *b) {
    for (int m = 0; m < BENCH_NUM_MODELS; m++) {
        for (int t = 0; t < BENCH_NUM_PHASES; t++) {
            params p = {bench_phases[t].tokens, bench_models[m].ffn, LLS_F32};
            bench_case(b, bench_models[m].name, bench_phases[t].name, p.dtype, make, &p);
            p.dtype = LLS_BF16;
            bench_case(b, bench_models[m].name, bench_phases[t].name, p.dtype, make, &p);
        }
    }
}

const bench_suite bench_suite_gated_act = {"gated_act", call, cases, .ladder_cpu = {"Llama-3-8B, prompt", LLS_BF16},
                                           .ladder_cuda = {"Llama-3-8B, prompt", LLS_BF16}};
