/* gemm: square products, and the up projection over a prompt: the weight is the transposed operand. */
#include "bench/bench.h"
#include "bench/shapes.h"

BENCH_CALL(gemm)

typedef struct params {
    int64_t m, n, k;
    lls_dtype dtype;
} params;

static void make(bench *b, const void *param) {
    const params *p = param;
    int64_t m = bench_cut(b, p->m, 32), n = bench_cut(b, p->n, 32);
    int64_t a_shape[] = {m, p->k}, w_shape[] = {n, p->k}, out_shape[] = {m, n};
    lls_gemm_args args = LLS_GEMM_ARGS_INIT;
    args.a = bench_normal(b, p->dtype, 2, a_shape, 1);
    args.b = bench_transposed(b, bench_normal(b, p->dtype, 2, w_shape, 1));
    args.out = bench_output(b, p->dtype, 2, out_shape, p->dtype == LLS_F32 ? 1e-4 : bench_tol(p->dtype));
    bench_args(b, &args, sizeof args);
    bench_param(b, "m", p->m);
    bench_param(b, "n", p->n);
    bench_param(b, "k", p->k);
}

static void cases(bench *b) {
    for (int d = 0; d < 2; d++) {
        params square = {1024, 1024, 1024, d ? LLS_BF16 : LLS_F32};
        bench_case(b, "square", "prompt", square.dtype, make, &square);
        for (int m = 0; m < BENCH_NUM_MODELS; m++) {
            params p = {512, bench_models[m].ffn, bench_models[m].hidden, square.dtype};
            bench_case(b, m ? "Llama-3-8B up" : "SmolLM2-135M up", "prompt", p.dtype, make, &p);
        }
    }
    if (!bench_is_cuda(b)) return;
    params large = {8192, 8192, 8192, LLS_BF16}; // a GPU is not busy with less
    bench_case(b, "square", "prompt", large.dtype, make, &large);
}

const bench_suite bench_suite_gemm = {"gemm", call, cases};
