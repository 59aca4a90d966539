/* linear: the weight shapes of each bench model, for one token, a batch and a prompt, in formats of model files. */
#include <stdio.h>

#include "bench/bench.h"
#include "bench/shapes.h"

BENCH_CALL(linear)

typedef struct params {
    int64_t m, n, k;
    lls_dtype dtype;
} params;

static void make(bench *b, const void *param) {
    const params *p = param;
    int64_t m = bench_cut(b, p->m, 16), n = bench_cut(b, p->n, 64);
    int64_t x_shape[] = {m, p->k}, w_shape[] = {n, p->k}, out_shape[] = {m, n};
    // Block weights meet rounded activations on the CPU (LLS_COMPUTE_DEFAULT).
    bool is_float = lls_dtype_block_elems(p->dtype) == 1;
    lls_dtype x_dtype = p->dtype == LLS_BF16 ? LLS_BF16 : LLS_F32;
    lls_linear_args args = LLS_LINEAR_ARGS_INIT;
    args.x = bench_normal(b, x_dtype, 2, x_shape, 1);
    args.weight = bench_packed(b, bench_normal(b, p->dtype, 2, w_shape, 0.05));
    args.out = bench_output(b, x_dtype, 2, out_shape, is_float ? bench_tol(x_dtype) : 2e-3);
    bench_args(b, &args, sizeof args);
    bench_param(b, "m", p->m);
    bench_param(b, "n", p->n);
    bench_param(b, "k", p->k);
}

static void model_cases(bench *b, const bench_model *model, lls_dtype dtype, const bench_phase *phase) {
    int64_t qkv = (model->num_heads + 2 * model->num_kv_heads) * model->head_dim;
    const struct { const char *name; int64_t n, k; } layers[] = {
        {"qkv", qkv, model->hidden},
        {"up", 2 * model->ffn, model->hidden},
        {"down", model->hidden, model->ffn},
        {"head", model->vocab, model->hidden},
    };
    for (int i = 0; i < 4; i++) {
        char name[48];
        snprintf(name, sizeof name, "%s %s", model->name, layers[i].name);
        params p = {phase->tokens, layers[i].n, layers[i].k, dtype};
        if (phase->tokens == 512 && i == 3) continue; // the head sees one row of a prompt
        if (p.k % lls_dtype_block_elems(dtype) == 0) bench_case(b, name, phase->name, dtype, make, &p);
    }
}

static void cases(bench *b) {
    static const lls_dtype dtypes[] = {LLS_Q4_1, LLS_Q8_0, LLS_Q4_K, LLS_Q6_K, LLS_BF16};
    for (int m = 0; m < BENCH_NUM_MODELS; m++) {
        for (int d = 0; d < 5; d++) {
            for (int t = 0; t < BENCH_NUM_PHASES; t++) model_cases(b, &bench_models[m], dtypes[d], &bench_phases[t]);
        }
    }
}

const bench_suite bench_suite_linear = {"linear", call, cases, .ladder_cpu = {"Llama-3-8B up, decode", LLS_Q4_K},
                                        .ladder_cuda = {"Llama-3-8B up, decode", LLS_Q4_K}};
