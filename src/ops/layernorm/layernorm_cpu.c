/* Rows over threads; a row is read three times, from L1 after the first. The second pass sums the deviations themselves
 * beside their squares: the fp32 mean of numbers near 1e4 is off by some 1e-3, which would be 1e-3 of the standard
 * deviation; the mean deviation says by how much, and is taken off again (the corrected two-pass algorithm: Chan, Golub
 * and LeVeque 1983, "Algorithms for Computing the Sample Variance"). */
#include <math.h>

#include "core/ctx.h"
#include "core/tensor.h"
#include "cpu/simd.h"
#include "ops/layernorm/layernorm_kernels.h"

enum { PARTS = 4 }; // independent partial sums

typedef struct job {
    const lls_layernorm_args *args;
    lls__rows x, out;
    int64_t hidden;
} job;

typedef struct moments {
    float shift, correction; // the mean is shift + correction, to more digits than one float holds
    float scale;             // 1 / sqrt(variance + eps)
} moments;

LLS_INLINE float sum_parts(const vf parts[PARTS]) {
    return vf_sum((parts[0] + parts[1]) + (parts[2] + parts[3]));
}

static float sum(lls_dtype dtype, const void *x, int64_t n) {
    vf acc[PARTS] = {{0}};
    int64_t i = 0;
    for (; i + PARTS * LLS_VF <= n; i += PARTS * LLS_VF) {
        for (int j = 0; j < PARTS; j++) acc[j] += vf_load(dtype, x, i + j * LLS_VF);
    }
    for (; i < n; i += LLS_VF) acc[0] += n - i >= LLS_VF ? vf_load(dtype, x, i) : vf_load_n(dtype, x, i, n - i);
    return sum_parts(acc);
}

// Sums of d and d^2 over the row, d = x - shift
static void deviations(lls_dtype dtype, const void *x, int64_t n, float shift, float *first, float *second) {
    vf acc1[PARTS] = {{0}}, acc2[PARTS] = {{0}}, center = vf_set1(shift);
    int64_t i = 0;
    for (; i + PARTS * LLS_VF <= n; i += PARTS * LLS_VF) {
        for (int j = 0; j < PARTS; j++) {
            vf d = vf_load(dtype, x, i + j * LLS_VF) - center;
            acc1[j] += d;
            acc2[j] = vf_fma(d, d, acc2[j]);
        }
    }
    for (; i < n; i += LLS_VF) {
        vf d = n - i >= LLS_VF ? vf_load(dtype, x, i) - center : vf_load_n(dtype, x, i, n - i) - center;
        for (int64_t lane = n - i; lane < LLS_VF; lane++) d[lane] = 0; // lanes past the row would count as -shift
        acc1[0] += d;
        acc2[0] = vf_fma(d, d, acc2[0]);
    }
    *first = sum_parts(acc1), *second = sum_parts(acc2);
}

static moments moments_of(lls_dtype dtype, const void *x, int64_t n, float eps) {
    moments m = {.shift = sum(dtype, x, n) / (float)n};
    float first, second;
    deviations(dtype, x, n, m.shift, &first, &second);
    m.correction = first / (float)n;
    float variance = second / (float)n - m.correction * m.correction;
    m.scale = 1.0f / sqrtf((variance > 0 ? variance : 0) + eps);
    return m;
}

// Up to LLS_VF elements of weight or bias; `missing` where there is none
LLS_INLINE vf affine(const lls_tensor *t, int64_t i, int64_t left, float missing) {
    if (!t) return vf_set1(missing);
    return left >= LLS_VF ? vf_load(t->dtype, t->data, i) : vf_load_n(t->dtype, t->data, i, left);
}

static void normalise(lls_dtype dtype, const void *x, moments m, const lls_tensor *weight, const lls_tensor *bias,
                      void *out, int64_t n) {
    for (int64_t i = 0; i < n; i += LLS_VF) {
        int64_t left = n - i;
        vf v = left >= LLS_VF ? vf_load(dtype, x, i) : vf_load_n(dtype, x, i, left);
        v = (v - vf_set1(m.shift) - vf_set1(m.correction)) * vf_set1(m.scale);
        v = vf_fma(v, affine(weight, i, left, 1), affine(bias, i, left, 0));
        if (left >= LLS_VF) vf_store(dtype, out, i, v);
        else vf_store_n(dtype, out, i, left, v);
    }
}

static void rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    const lls_layernorm_args *a = j->args;
    lls_dtype dtype = a->x->dtype;
    for (int64_t r = begin; r < end; r++) {
        const void *x = lls__at(a->x, lls__row_offset(&j->x, r));
        moments m = moments_of(dtype, x, j->hidden, a->eps);
        normalise(dtype, x, m, a->weight, a->bias, lls__at(a->out, lls__row_offset(&j->out, r)), j->hidden);
    }
}

lls_status LLS_CPU(lls__layernorm_cpu)(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)stream;
    const lls_layernorm_args *a = args;
    job j = {.args = a, .x = lls__rows_of(a->x), .out = lls__rows_of(a->out), .hidden = a->x->shape[a->x->ndim - 1]};
    int64_t grain = 16384 / (j.hidden + 1) + 1; // below some 16k elements a thread's wake-up costs more than it saves
    lls__parallel(ctx, lls__rows_count(&j.x), grain, rows, &j);
    return LLS_OK;
}
