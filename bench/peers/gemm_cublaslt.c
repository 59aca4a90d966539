/* gemm's peer on CUDA: cuBLASLt, with tf32 and fast accumulation of fp8 where the call allows them. */
#include "bench/peers/cublaslt.h"
#include "bench/peers/peers.h"
#include "core/error.h"

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

static lls_status open_calls(lls_ctx *ctx, const void *const *args, int32_t copies, void **out) {
    bench_lt_calls *calls;
    if (!is_plain(args[0])) return lls__fail(LLS_ERR_UNSUPPORTED, "cublaslt: computes plain products alone");
    lls_status status = bench_lt_calls_new(1, copies, &calls);
    *out = calls;
    LLS_TRY(status);
    for (int32_t i = 0; i < copies; i++) calls->products[i] = product_of(args[i]);
    return bench_lt_calls_open(ctx, calls);
}

const bench_peer bench_gemm_cublaslt = {"cublaslt", LLS_CUDA,           bench_lt_version,
                                        open_calls, bench_lt_calls_run, bench_lt_calls_close};
