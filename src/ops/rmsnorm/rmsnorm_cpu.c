/* Rows over threads; a row is read twice from L1. Four partial sums keep the adds independent. */
#include <math.h>

#include "core/ctx.h"
#include "core/tensor.h"
#include "cpu/simd.h"
#include "ops/rmsnorm/rmsnorm_kernels.h"

typedef struct job {
    const lls_rmsnorm_args *args;
    lls__rows x, residual, residual_out, out;
    int64_t hidden;
} job;

// sum = a + b over one row [n]
static void add_row(lls_dtype dtype, const void *a, const void *b, void *sum, int64_t n) {
    int64_t i = 0;
    for (; i + LLS_VF <= n; i += LLS_VF) vf_store(dtype, sum, i, vf_load(dtype, a, i) + vf_load(dtype, b, i));
    if (i < n) vf_store_n(dtype, sum, i, n - i, vf_load_n(dtype, a, i, n - i) + vf_load_n(dtype, b, i, n - i));
}

static float sum_of_squares(lls_dtype dtype, const void *x, int64_t n) {
    vf acc[4] = {{0}, {0}, {0}, {0}};
    int64_t i = 0;
    for (; i + 4 * LLS_VF <= n; i += 4 * LLS_VF) {
        for (int j = 0; j < 4; j++) {
            vf v = vf_load(dtype, x, i + j * LLS_VF);
            acc[j] = vf_fma(v, v, acc[j]);
        }
    }
    for (; i < n; i += LLS_VF) {
        vf v = n - i >= LLS_VF ? vf_load(dtype, x, i) : vf_load_n(dtype, x, i, n - i);
        acc[0] = vf_fma(v, v, acc[0]);
    }
    return vf_sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

// out = x * scale * (weight + offset) over one row [n]; weight may be NULL
static void scale_row(lls_dtype dtype, const void *x, float scale, const lls_tensor *weight, float offset, void *out,
                      int64_t n) {
    for (int64_t i = 0; i < n; i += LLS_VF) {
        int64_t left = n - i;
        vf v = (left >= LLS_VF ? vf_load(dtype, x, i) : vf_load_n(dtype, x, i, left)) * vf_set1(scale);
        if (weight) {
            v *= (left >= LLS_VF ? vf_load(weight->dtype, weight->data, i)
                                 : vf_load_n(weight->dtype, weight->data, i, left)) +
                 vf_set1(offset);
        }
        if (left >= LLS_VF) vf_store(dtype, out, i, v);
        else vf_store_n(dtype, out, i, left, v);
    }
}

static void rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    const lls_rmsnorm_args *a = j->args;
    lls_dtype dtype = a->x->dtype;
    for (int64_t r = begin; r < end; r++) {
        const void *h = lls__at(a->x, lls__row_offset(&j->x, r));
        if (a->residual) {
            void *sum = lls__at(a->residual_out, lls__row_offset(&j->residual_out, r));
            add_row(dtype, h, lls__at(a->residual, lls__row_offset(&j->residual, r)), sum, j->hidden);
            h = sum;
        }
        float scale = 1.0f / sqrtf(sum_of_squares(dtype, h, j->hidden) / (float)j->hidden + a->eps);
        scale_row(dtype, h, scale, a->weight, a->weight_offset, lls__at(a->out, lls__row_offset(&j->out, r)),
                  j->hidden);
    }
}

lls_status LLS_CPU(lls__rmsnorm_cpu)(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)stream;
    const lls_rmsnorm_args *a = args;
    job j = {.args = a, .x = lls__rows_of(a->x), .out = lls__rows_of(a->out), .hidden = a->x->shape[a->x->ndim - 1]};
    if (a->residual) j.residual = lls__rows_of(a->residual), j.residual_out = lls__rows_of(a->residual_out);
    int64_t grain = 16384 / (j.hidden + 1) + 1; // below some 16k elements a thread's wake-up costs more than it saves
    lls__parallel(ctx, lls__rows_count(&j.x), grain, rows, &j);
    return LLS_OK;
}
