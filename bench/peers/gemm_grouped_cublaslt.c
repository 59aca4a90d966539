/* gemm_grouped's peer on CUDA: a loop over the groups, whose sizes the host knows beforehand, of cuBLASLt's products. */
#include <stdlib.h>

#include "bench/peers/cublaslt.h"
#include "bench/peers/peers.h"
#include "core/error.h"
#include "core/tensor.h"

static bool is_plain(const lls_gemm_grouped_args *g) {
    return !g->bias && !g->act && !g->gated && !g->scale_a && !g->scale_b;
}

// Rows [begin, end) of a matrix.
static lls_tensor rows_of(const lls_tensor *t, int64_t begin, int64_t end) {
    lls_tensor rows = *t;
    rows.data = lls__at(t, begin * t->stride[0]);
    rows.shape[0] = end - begin;
    return rows;
}

// Matrix i of [groups, k, n].
static lls_tensor matrix_of(const lls_tensor *t, int64_t i) {
    return (lls_tensor){
        .data = lls__at(t, i * t->stride[0]),
        .dtype = t->dtype,
        .device = t->device,
        .ndim = 2,
        .shape = {t->shape[1], t->shape[2]},
        .stride = {t->stride[1], t->stride[2]},
    };
}

static void fill(bench_lt_calls *calls, const lls_gemm_grouped_args *g, int32_t copy, const int32_t *offsets) {
    for (int32_t i = 0; i < calls->num_products; i++) {
        int64_t at = (int64_t)i * calls->copies + copy;
        lls_tensor *views = &calls->views[3 * at];
        views[0] = rows_of(g->a, offsets[i], offsets[i + 1]);
        views[1] = matrix_of(g->b, i);
        views[2] = rows_of(g->out, offsets[i], offsets[i + 1]);
        calls->products[at] = (bench_lt_product){.a = &views[0],
                                                 .b = &views[1],
                                                 .out = &views[2],
                                                 .alpha = g->alpha,
                                                 .tf32 = g->flags & LLS_GEMM_TF32,
                                                 .fast_accum = g->flags & LLS_GEMM_FAST_ACCUM};
    }
}

static lls_status open_calls(lls_ctx *ctx, const void *const *args, int32_t copies, void **out) {
    const lls_gemm_grouped_args *first = args[0];
    bench_lt_calls *calls;
    if (!is_plain(first)) return lls__fail(LLS_ERR_UNSUPPORTED, "cublaslt: computes plain products alone");
    int32_t groups = (int32_t)first->b->shape[0];
    lls_status status = bench_lt_calls_new(groups, copies, &calls);
    *out = calls;
    LLS_TRY(status);
    size_t bytes = ((size_t)groups + 1) * sizeof(int32_t);
    int32_t *offsets = malloc(bytes);
    if (!offsets) return lls__fail(LLS_ERR_MEMORY, "cublaslt: no memory for offsets");
    status = lls_download(ctx, offsets, first->offsets->data, bytes, NULL); // all copies have the same
    for (int32_t i = 0; i < copies && !status; i++) fill(calls, args[i], i, offsets);
    free(offsets);
    return status ? status : bench_lt_calls_open(ctx, calls);
}

const bench_peer bench_gemm_grouped_cublaslt = {"cublaslt_loop", LLS_CUDA,           bench_lt_version,
                                                open_calls,      bench_lt_calls_run, bench_lt_calls_close};
