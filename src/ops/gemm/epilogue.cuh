/* What happens to a finished sum: the rest of the formula in ops.h, in fp32, one rounding at the end. Every rung ends
 * here, two neighbouring columns at a time, since those are what a gated output is made of and what a tensor core's
 * accumulators hold. Types are looked up at run time: a handful of uniform branches beside k multiply-adds. */
#pragma once

#include "cuda/activation.cuh"
#include "cuda/cvt.cuh"
#include "ops/gemm/problem.h"

__device__ __forceinline__ float lls__gemm_activate(lls_gemm_act act, float x) {
    switch (act) {
    case LLS_GEMM_ACT_RELU: return x < 0 ? 0.0f : x; // NaN stays
    case LLS_GEMM_ACT_SILU: return lls__silu(x);
    case LLS_GEMM_ACT_GELU: return lls__gelu(x);
    case LLS_GEMM_ACT_GELU_TANH: return lls__gelu_tanh(x);
    default: return x;
    }
}

__device__ __forceinline__ int8_t lls__gemm_saturate_i8(float x) {
    return (int8_t)max(-128, min(127, __float2int_rn(x))); // NaN becomes 0
}

__device__ __forceinline__ void lls__gemm_store(lls_dtype dtype, char *base, int64_t i, float x) {
    switch (dtype) {
    case LLS_F16: ((__half *)base)[i] = __float2half_rn(x); break;
    case LLS_BF16: ((__nv_bfloat16 *)base)[i] = __float2bfloat16_rn(x); break;
    case LLS_F8_E4M3: ((uint8_t *)base)[i] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); break;
    case LLS_F8_E5M2: ((uint8_t *)base)[i] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2); break;
    case LLS_I8: ((int8_t *)base)[i] = lls__gemm_saturate_i8(x); break;
    default: ((float *)base)[i] = x;
    }
}

__device__ __forceinline__ int32_t lls__gemm_elem_size(lls_dtype dtype) {
    return dtype == LLS_F32 || dtype == LLS_I32                              ? 4
           : dtype == LLS_F8_E4M3 || dtype == LLS_F8_E5M2 || dtype == LLS_I8 ? 1
                                                                             : 2;
}

__device__ __forceinline__ float lls__gemm_element(const lls__gemm_matrix &x, int64_t batch, int64_t row, int64_t col) {
    const char *base = lls__gemm_base(&x, batch, lls__gemm_elem_size(x.dtype));
    return lls__load_f32(x.dtype, base, lls__gemm_offset(&x, row, col));
}

/* x of the formula: everything before the activation. Block scales are the main loop's affair. */
__device__ __forceinline__ float lls__gemm_linear(const lls__gemm_problem &p, int64_t batch, int64_t row, int64_t col,
                                                  float sum) {
    float scale = p.alpha;
    if (p.scale_a.data && !p.scale_a.blocks) scale *= lls__gemm_scale_at(&p.scale_a, batch, row, 0);
    if (p.scale_b.data && !p.scale_b.blocks) scale *= lls__gemm_scale_at(&p.scale_b, batch, col, 0);
    float x = p.k == 0 ? 0 : scale * sum; // a scale may be infinite
    if (p.c.data) x = fmaf(p.beta, lls__gemm_element(p.c, batch, row, col), x);
    if (p.bias.data) x += lls__gemm_element(p.bias, batch, 0, col);
    return x;
}

/* The rest, for column `col` of out. */
__device__ __forceinline__ void lls__gemm_output(const lls__gemm_problem &p, int64_t batch, int64_t row, int64_t col,
                                                 float y) {
    if (p.residual.data) y += lls__gemm_element(p.residual, batch, row, col);
    if (p.scale_out.data || p.scale_out_col.data) {
        float scale = lls__gemm_scale_at(&p.scale_out, batch, row, 0) *
                      lls__gemm_scale_at(&p.scale_out_col, batch, col, 0);
        y = scale == 0 ? 0 : y / scale;
    }
    char *base = lls__gemm_base(&p.out, batch, lls__gemm_elem_size(p.out.dtype));
    lls__gemm_store(p.out.dtype, base, lls__gemm_offset(&p.out, row, col), y);
}

/* From the sums of columns col (even) and col + 1 of row `row` to out; what lies past the last row or column is not
 * touched. The row is one of out's: for grouped products `batch` is the group. */
__device__ __forceinline__ void lls__gemm_finish_pair(const lls__gemm_problem &p, int64_t batch, int64_t row,
                                                      int64_t col, float sum0, float sum1) {
    if (row >= p.m || col >= p.n) return;
    float x0 = lls__gemm_activate(p.act, lls__gemm_linear(p, batch, row, col, sum0));
    if (p.gated) { // n is even
        lls__gemm_output(p, batch, row, col / 2, x0 * lls__gemm_linear(p, batch, row, col + 1, sum1));
        return;
    }
    lls__gemm_output(p, batch, row, col, x0);
    if (col + 1 >= p.n) return;
    lls__gemm_output(p, batch, row, col + 1, lls__gemm_activate(p.act, lls__gemm_linear(p, batch, row, col + 1, sum1)));
}

/* Sums of int8 products: exact into i32, else one fp32 number each. */
__device__ __forceinline__ void lls__gemm_finish_pair(const lls__gemm_problem &p, int64_t batch, int64_t row,
                                                      int64_t col, int32_t sum0, int32_t sum1) {
    if (p.out.dtype != LLS_I32) {
        lls__gemm_finish_pair(p, batch, row, col, (float)sum0, (float)sum1);
        return;
    }
    const int32_t sums[2] = {sum0, sum1};
    if (row >= p.m) return;
    int32_t *out = (int32_t *)lls__gemm_base(&p.out, batch, 4);
    const int32_t *c = p.c.data ? (const int32_t *)lls__gemm_base(&p.c, batch, 4) : nullptr;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (col + i >= p.n) break;
        uint32_t addend = c ? (uint32_t)c[lls__gemm_offset(&p.c, row, col + i)] : 0; // unsigned: it may wrap
        out[lls__gemm_offset(&p.out, row, col + i)] = (int32_t)((uint32_t)sums[i] + addend);
    }
}
