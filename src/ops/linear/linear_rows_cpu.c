/* Weights as they lie in a file: plain rows with any row stride, or GGUF blocks. Rows are made fp32 four at a time in
 * scratch (which stays in L1 or L2) and multiplied by x in fp32, vectors along k. Right and simple; packed weights are
 * the fast path. */
#include "core/element.h"
#include "ops/linear/linear_cpu.h"

enum { ROWS = 4, TOKENS = LLS_VF == 16 ? 4 : 2 }; // ROWS * TOKENS sums and their operands fit the registers

typedef struct job {
    const lls_linear_args *args;
    int64_t m, n, k;
    const float *x; // [m][k], rows x_stride apart
    int64_t x_stride;
    float *x_copy;  // where x is written when it is not f32 already
    float *scratch; // [threads][ROWS][k]
} job;

static void to_f32(lls_dtype dtype, const void *row, int64_t k, float *out) {
    int64_t i = 0;
    for (; i + LLS_VF <= k; i += LLS_VF) vf_store_f32(out + i, vf_load(dtype, row, i));
    if (i < k) vf_store_n(LLS_F32, out, i, k - i, vf_load_n(dtype, row, i, k - i));
}

LLS_INLINE void decode_row(const lls_dtype dtype, const uint8_t *row, int64_t k, float *out) {
    const int elems = lls__block_elems(dtype);
    for (int64_t b = 0; b < k / elems; b++) {
        const uint8_t *block = row + b * lls__block_bytes(dtype);
        for (int i = 0; i < elems; i += 16) { // 16 weights share a scale in every type
            lls__block_scale s = lls__block_scale_at(dtype, block, i);
            for (int j = 0; j < 16; j++) {
                out[b * elems + i + j] = s.scale * (float)lls__block_code(dtype, block, i + j) + s.min;
            }
        }
    }
}

static void row_to_f32(lls_dtype dtype, const void *row, int64_t k, float *out) {
    switch (dtype) { // constants let the compiler vectorise each type's bit moves
    case LLS_Q4_0: decode_row(LLS_Q4_0, row, k, out); break;
    case LLS_Q4_1: decode_row(LLS_Q4_1, row, k, out); break;
    case LLS_Q5_0: decode_row(LLS_Q5_0, row, k, out); break;
    case LLS_Q5_1: decode_row(LLS_Q5_1, row, k, out); break;
    case LLS_Q8_0: decode_row(LLS_Q8_0, row, k, out); break;
    case LLS_Q4_K: decode_row(LLS_Q4_K, row, k, out); break;
    case LLS_Q5_K: decode_row(LLS_Q5_K, row, k, out); break;
    case LLS_Q6_K: decode_row(LLS_Q6_K, row, k, out); break;
    default: to_f32(dtype, row, k, out); break;
    }
}

static void convert_x(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    const lls_tensor *x = j->args->x;
    for (int64_t m = begin; m < end; m++) to_f32(x->dtype, lls__at(x, m * x->stride[0]), j->k, j->x_copy + m * j->k);
}

// sum[r][t] = w[r] . x[t] over k
static void dot(const float *const *w, const float *const *x, int64_t k, float sum[ROWS][TOKENS]) {
    vf acc[ROWS][TOKENS];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS * TOKENS; i++) acc[i / TOKENS][i % TOKENS] = vf_set1(0);
    for (int64_t i = 0; i < k; i += LLS_VF) {
        bool whole = k - i >= LLS_VF;
        vf xv[TOKENS];
#pragma GCC unroll 4
        for (int t = 0; t < TOKENS; t++) xv[t] = whole ? vf_load_f32(x[t] + i) : vf_load_n(LLS_F32, x[t], i, k - i);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            vf wv = whole ? vf_load_f32(w[r] + i) : vf_load_n(LLS_F32, w[r], i, k - i);
#pragma GCC unroll 4
            for (int t = 0; t < TOKENS; t++) acc[r][t] = vf_fma(wv, xv[t], acc[r][t]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS * TOKENS; i++) sum[i / TOKENS][i % TOKENS] = vf_sum(acc[i / TOKENS][i % TOKENS]);
}

static void multiply(void *arg, int64_t begin, int64_t end, int worker) {
    const job *j = arg;
    const lls_tensor *weight = j->args->weight, *bias = j->args->bias, *out = j->args->out;
    float *scratch = j->scratch + worker * ROWS * j->k;
    for (int64_t n = begin; n < end; n += ROWS) {
        int rows = (int)(end - n < ROWS ? end - n : ROWS);
        const float *w[ROWS];
        for (int r = 0; r < ROWS; r++) {
            if (r >= rows) {
                w[r] = w[0]; // computed and dropped
                continue;
            }
            int64_t elems = weight->shape[0] > 1 ? (n + r) * weight->stride[0] : 0;
            const void *row = (const char *)weight->data +
                              elems / lls_dtype_block_elems(weight->dtype) * lls_dtype_block_bytes(weight->dtype);
            w[r] = row;
            if (weight->dtype == LLS_F32) continue;
            row_to_f32(weight->dtype, row, j->k, scratch + r * j->k);
            w[r] = scratch + r * j->k;
        }
        for (int64_t m = 0; m < j->m; m += TOKENS) {
            int tokens = (int)(j->m - m < TOKENS ? j->m - m : TOKENS);
            const float *x[TOKENS];
            for (int t = 0; t < TOKENS; t++) x[t] = j->x + (m + (t < tokens ? t : 0)) * j->x_stride;
            float sum[ROWS][TOKENS];
            dot(w, x, j->k, sum);
            for (int t = 0; t < tokens; t++) {
                for (int r = 0; r < rows; r++) {
                    float y = bias ? sum[r][t] + (float)lls__get(bias, n + r) : sum[r][t];
                    lls__set(out, (m + t) * out->stride[0] + n + r, y);
                }
            }
        }
    }
}

lls_status LLS_CPU(lls__linear_rows)(lls_ctx *ctx, const lls_linear_args *args) {
    const lls_tensor *x = args->x;
    job j = {.args = args,
             .m = x->shape[0],
             .n = args->weight->shape[0],
             .k = x->shape[1],
             .x = x->data,
             .x_stride = x->stride[0]};
    int64_t copy = x->dtype == LLS_F32 ? 0 : j.m * j.k;
    int64_t scratch = args->weight->dtype == LLS_F32 ? 0 : (int64_t)lls__pool_threads(ctx->pool) * ROWS * j.k;
    void *workspace;
    lls_status status = lls__ctx_workspace(ctx, "linear", (size_t)(copy + scratch) * sizeof(float), &workspace);
    if (status) return status;
    j.scratch = workspace;
    if (copy) {
        j.x_copy = j.scratch + scratch;
        j.x = j.x_copy, j.x_stride = j.k;
        lls__parallel(ctx, j.m, 16, convert_x, &j);
    }
    lls__parallel(ctx, j.n, ROWS, multiply, &j);
    return LLS_OK;
}
