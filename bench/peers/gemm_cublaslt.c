/* gemm's peer on CUDA: cuBLASLt, with tf32 and fast accumulation of fp8 where the call allows them. */
#include <stdlib.h>

#include "bench/peers/cublaslt.h"
#include "bench/peers/peers.h"
#include "core/error.h"

typedef struct state {
    bench_lt lt;
    bench_lt_plan plan;
    bench_lt_product *products; // one a copy
} state;

static bool is_scalar(const lls_tensor *scale) {
    return !scale || lls_tensor_numel(scale) == 1;
}

// Plain products with scales of whole tensors: for the rest there is no call that does the same.
static bool is_plain(const lls_gemm_args *g) {
    bool pointers = g->a_pointers || g->b_pointers || g->c_pointers || g->out_pointers;
    return !pointers && !g->bias && !g->act && !g->gated && !g->residual && !g->scale_out && is_scalar(g->scale_a) &&
           is_scalar(g->scale_b);
}

static bench_lt_product product_of(const lls_gemm_args *g) {
    return (bench_lt_product){
        .a = g->a,
        .b = g->b,
        .c = g->c,
        .out = g->out,
        .alpha = g->alpha,
        .beta = g->beta,
        .tf32 = g->flags & LLS_GEMM_TF32,
        .fast_accum = g->flags & LLS_GEMM_FAST_ACCUM,
        .scale_a = g->scale_a ? g->scale_a->data : NULL,
        .scale_b = g->scale_b ? g->scale_b->data : NULL,
    };
}

static lls_status lt_open(lls_ctx *ctx, const void *const *args, int32_t copies, void **out) {
    if (!is_plain(args[0])) return lls__fail(LLS_ERR_UNSUPPORTED, "cublaslt: computes plain products alone");
    state *s = *out = calloc(1, sizeof *s);
    if (s) s->products = calloc((size_t)copies, sizeof *s->products);
    if (!s || !s->products) return lls__fail(LLS_ERR_MEMORY, "cublaslt: no memory for %d products", copies);
    for (int32_t i = 0; i < copies; i++) s->products[i] = product_of(args[i]);
    LLS_TRY(bench_lt_open(ctx, &s->lt));
    return bench_lt_plan_open(&s->lt, s->products, copies, &s->plan);
}

static lls_status lt_call(int32_t copy, lls_stream stream, void *user) {
    const state *s = user;
    return bench_lt_run(&s->lt, &s->plan, &s->products[copy], stream);
}

static void lt_close(void *user) {
    state *s = user;
    bench_lt_plan_close(&s->plan);
    bench_lt_close(&s->lt);
    free(s->products);
    free(s);
}

const bench_peer bench_gemm_cublaslt = {"cublaslt", LLS_CUDA, bench_lt_version, lt_open, lt_call, lt_close};
