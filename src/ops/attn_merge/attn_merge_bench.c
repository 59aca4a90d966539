/* attn_merge: two attention states of the bench models. */
#include "bench/bench.h"
#include "bench/shapes.h"

BENCH_CALL(attn_merge)

typedef struct params {
    int64_t tokens;
    const bench_model *model;
    lls_dtype dtype;
} params;

static void make(bench *b, const void *param) {
    const params *p = param;
    int64_t shape[] = {p->tokens, p->model->num_heads, p->model->head_dim};
    lls_attn_merge_args args = LLS_ATTN_MERGE_ARGS_INIT;
    args.a = bench_normal(b, p->dtype, 3, shape, 1);
    args.lse_a = bench_normal(b, LLS_F32, 2, shape, 1);
    args.b = bench_normal(b, p->dtype, 3, shape, 1);
    args.lse_b = bench_normal(b, LLS_F32, 2, shape, 1);
    args.out = bench_output(b, p->dtype, 3, shape, bench_tol(p->dtype));
    args.lse = bench_output(b, LLS_F32, 2, shape, bench_tol(LLS_F32));
    bench_args(b, &args, sizeof args);
    bench_param(b, "tokens", p->tokens);
    bench_param(b, "num_heads", p->model->num_heads);
    bench_param(b, "head_dim", p->model->head_dim);
}

static void cases(bench *b) {
    for (int m = 0; m < BENCH_NUM_MODELS; m++) {
        for (int t = 0; t < BENCH_NUM_PHASES; t++) {
            params p = {bench_phases[t].tokens, &bench_models[m], LLS_BF16};
            bench_case(b, bench_models[m].name, bench_phases[t].name, p.dtype, make, &p);
        }
    }
}

const bench_suite bench_suite_attn_merge = {"attn_merge", call, cases, .ladder_cpu = {"Llama-3-8B, prompt", LLS_BF16},
                                            .ladder_cuda = {"Llama-3-8B, prompt", LLS_BF16}};
