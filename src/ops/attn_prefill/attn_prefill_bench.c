/* attn_prefill: causal prompts of the bench models. */
#include "bench/bench.h"
#include "bench/shapes.h"

BENCH_CALL(attn_prefill)

typedef struct params {
    int64_t q_len;
    const bench_model *model;
    lls_dtype dtype;
} params;

static void make(bench *b, const void *param) {
    const params *p = param;
    // One group of heads and the first rows say enough for the oracle: causal rows see what came before alone.
    int64_t group = p->model->num_heads / p->model->num_kv_heads, kv_heads = bench_cut(b, p->model->num_kv_heads, 1);
    int64_t len = bench_cut(b, p->q_len, 512), d = p->model->head_dim;
    int64_t q_shape[] = {1, len, kv_heads * group, d}, kv_shape[] = {1, len, kv_heads, d};
    lls_attn_prefill_args args = LLS_ATTN_PREFILL_ARGS_INIT;
    args.mask.causal = true;
    args.q = bench_normal(b, p->dtype, 4, q_shape, 1);
    args.k = bench_normal(b, p->dtype, 4, kv_shape, 1);
    args.v = bench_normal(b, p->dtype, 4, kv_shape, 1);
    args.out = bench_output(b, p->dtype, 4, q_shape, p->dtype == LLS_F32 ? 1e-4 : bench_tol(p->dtype));
    bench_args(b, &args, sizeof args);
    bench_param(b, "batch", 1);
    bench_param(b, "q_len", p->q_len);
    bench_param(b, "kv_len", p->q_len);
    bench_param(b, "num_heads", p->model->num_heads);
    bench_param(b, "num_kv_heads", p->model->num_kv_heads);
    bench_param(b, "head_dim", d);
    bench_param(b, "causal", 1);
}

static void cases(bench *b) {
    for (int m = 0; m < BENCH_NUM_MODELS; m++) {
        params p = {512, &bench_models[m], LLS_F32};
        bench_case(b, bench_models[m].name, "prompt", p.dtype, make, &p);
        p.dtype = LLS_BF16;
        bench_case(b, bench_models[m].name, "prompt", p.dtype, make, &p);
        p.q_len = 4096;
        if (bench_is_cuda(b)) bench_case(b, bench_models[m].name, "prompt", p.dtype, make, &p);
    }
}

const bench_suite bench_suite_attn_prefill = {"attn_prefill", call, cases,
                                              .ladder_cpu = {"Llama-3-8B, prompt", LLS_BF16},
                                              .ladder_cuda = {"Llama-3-8B, prompt", LLS_BF16}};
