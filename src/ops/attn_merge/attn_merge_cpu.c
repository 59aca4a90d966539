/* Rows (token, head) over threads; two weights a row, then one pass over it. */
#include <math.h>

#include "core/ctx.h"
#include "core/tensor.h"
#include "cpu/simd.h"
#include "ops/attn_merge/attn_merge_kernels.h"

// out [n] = a * weight_a + b * weight_b; an empty side is NULL and not read, and the other then passes through bit for
// bit, the sign of zero included.
static void merge_row(lls_dtype dtype, const void *a, float weight_a, const void *b, float weight_b, void *out,
                      int64_t n) {
    for (int64_t i = 0; i < n; i += LLS_VF) {
        int64_t left = n - i;
        vf x = {0}, y = {0};
        if (a) x = left >= LLS_VF ? vf_load(dtype, a, i) : vf_load_n(dtype, a, i, left);
        if (b) y = left >= LLS_VF ? vf_load(dtype, b, i) : vf_load_n(dtype, b, i, left);
        vf sum = a && b ? vf_fma(x, vf_set1(weight_a), y * vf_set1(weight_b)) : a ? x : y;
        if (left >= LLS_VF) vf_store(dtype, out, i, sum);
        else vf_store_n(dtype, out, i, left, sum);
    }
}

static void merge_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const lls_attn_merge_args *m = arg;
    for (int64_t r = begin; r < end; r++) {
        float lse_a = *(const float *)lls__at(m->lse_a, lls__attn_merge_offset(m->lse_a, r));
        float lse_b = *(const float *)lls__at(m->lse_b, lls__attn_merge_offset(m->lse_b, r));
        bool has_a = lse_a != -INFINITY, has_b = lse_b != -INFINITY;
        float top = fmaxf(lse_a, lse_b), weight_a = has_a ? expf(lse_a - top) : 0,
              weight_b = has_b ? expf(lse_b - top) : 0, sum = weight_a + weight_b;
        if (has_a && has_b) weight_a /= sum, weight_b /= sum;
        const void *a = has_a ? lls__at(m->a, lls__attn_merge_offset(m->a, r)) : NULL,
                   *b = has_b ? lls__at(m->b, lls__attn_merge_offset(m->b, r)) : NULL;
        merge_row(m->a->dtype, a, weight_a, b, weight_b, lls__at(m->out, lls__attn_merge_offset(m->out, r)),
                  m->a->shape[2]);
        if (m->lse)
            *(float *)lls__at(m->lse, lls__attn_merge_offset(m->lse, r)) = has_a || has_b ? top + logf(sum) : -INFINITY;
    }
}

lls_status LLS_CPU(lls__attn_merge_cpu)(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)stream;
    lls_attn_merge_args m = *(const lls_attn_merge_args *)args;
    int64_t grain = 16384 / (m.a->shape[2] + 1) +
                    1; // below some 16k elements a thread's wake-up costs more than it saves
    lls__parallel(ctx, m.a->shape[0] * m.a->shape[1], grain, merge_rows, &m);
    return LLS_OK;
}
