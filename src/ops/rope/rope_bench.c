/* rope: queries and keys of the bench models in one call. */
#include "bench/bench.h"
#include "bench/shapes.h"

BENCH_CALL(rope)

typedef struct params {
    int64_t tokens;
    const bench_model *model;
    lls_dtype dtype;
} params;

static int64_t position_at(int64_t i, const void *user) {
    (void)user;
    return 1000 + i;
}

static void make(bench *b, const void *param) {
    const params *p = param;
    int64_t q_shape[] = {p->tokens, p->model->num_heads, p->model->head_dim};
    int64_t k_shape[] = {p->tokens, p->model->num_kv_heads, p->model->head_dim};
    lls_rope_args args = LLS_ROPE_ARGS_INIT;
    args.x = bench_normal(b, p->dtype, 3, q_shape, 1);
    args.x2 = bench_normal(b, p->dtype, 3, k_shape, 1);
    args.positions = bench_integers(b, LLS_I32, 1, &p->tokens, position_at, NULL);
    args.out = bench_output(b, p->dtype, 3, q_shape, bench_tol(p->dtype));
    args.out2 = bench_output(b, p->dtype, 3, k_shape, bench_tol(p->dtype));
    args.theta = 500000;
    bench_args(b, &args, sizeof args);
    bench_param(b, "tokens", p->tokens);
    bench_param(b, "num_heads", p->model->num_heads);
    bench_param(b, "num_kv_heads", p->model->num_kv_heads);
    bench_param(b, "head_dim", p->model->head_dim);
}

static void cases(bench *b) {
    for (int m = 0; m < BENCH_NUM_MODELS; m++) {
        for (int t = 0; t < BENCH_NUM_PHASES; t++) {
            params p = {bench_phases[t].tokens, &bench_models[m], LLS_F32};
            bench_case(b, bench_models[m].name, bench_phases[t].name, p.dtype, make, &p);
            p.dtype = LLS_BF16;
            bench_case(b, bench_models[m].name, bench_phases[t].name, p.dtype, make, &p);
        }
    }
}

const bench_suite bench_suite_rope = {"rope", call, cases, .ladder_cpu = {"Llama-3-8B, prompt", LLS_BF16},
                                      .ladder_cuda = {"Llama-3-8B, prompt", LLS_BF16}};
