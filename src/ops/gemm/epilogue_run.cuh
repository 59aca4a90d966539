/* The epilogue (epilogue.cuh) of 16 neighbouring columns of a row at a time: 16-byte loads and stores where everything that
 * takes part lies contiguous and aligned, else pair by pair. */
#pragma once

#include "ops/gemm/epilogue.cuh"

/* count (16 or 8) neighbouring elements from 16 bytes or more, by their type. Aligned to 16 bytes. */
template <int count>
__device__ __forceinline__ void lls__gemm_load_run(lls_dtype dtype, const char *from, float (&x)[count]) {
    if (dtype == LLS_F32) {
#pragma unroll
        for (int i = 0; i < count; i += 4) {
            float4 v = *(const float4 *)(from + 4 * i);
            x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < count; i += 8) {
        uint4 v = *(const uint4 *)(from + 2 * i);
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 pair = dtype == LLS_F16 ? __half22float2(*(const __half2 *)&words[j])
                                           : __bfloat1622float2(*(const __nv_bfloat162 *)&words[j]);
            x[i + 2 * j] = pair.x, x[i + 2 * j + 1] = pair.y;
        }
    }
}

__device__ __forceinline__ uint32_t lls__gemm_pack_16bit(lls_dtype dtype, float low, float high) {
    if (dtype == LLS_F16) {
        __half2 pair = __floats2half2_rn(low, high);
        return *(const uint32_t *)&pair;
    }
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&pair;
}

__device__ __forceinline__ uint32_t lls__gemm_pack_8bit(lls_dtype dtype, const float *x) {
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint8_t byte = dtype == LLS_I8
                           ? (uint8_t)lls__gemm_saturate_i8(x[i])
                           : __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, dtype == LLS_F8_E4M3 ? __NV_E4M3 : __NV_E5M2);
        word |= (uint32_t)byte << 8 * i;
    }
    return word;
}

/* Aligned to 16 bytes, or to 8 for 8 elements of a byte. */
template <int count>
__device__ __forceinline__ void lls__gemm_store_run(lls_dtype dtype, char *to, const float (&x)[count]) {
    switch (lls__gemm_elem_size(dtype)) {
    case 4:
#pragma unroll
        for (int i = 0; i < count; i += 4) *(float4 *)(to + 4 * i) = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
        break;
    case 2:
#pragma unroll
        for (int i = 0; i < count; i += 8) {
            *(uint4 *)(to + 2 * i) = make_uint4(
                lls__gemm_pack_16bit(dtype, x[i], x[i + 1]), lls__gemm_pack_16bit(dtype, x[i + 2], x[i + 3]),
                lls__gemm_pack_16bit(dtype, x[i + 4], x[i + 5]), lls__gemm_pack_16bit(dtype, x[i + 6], x[i + 7]));
        }
        break;
    default:
#pragma unroll
        for (int i = 0; i < count; i += 8)
            *(uint2 *)(to + i) = make_uint2(lls__gemm_pack_8bit(dtype, x + i), lls__gemm_pack_8bit(dtype, x + i + 4));
    }
}

/* Where elements (row, col...) of x begin; NULL when a run there is not contiguous and aligned. */
__device__ __forceinline__ char *lls__gemm_run(const lls__gemm_matrix &x, int64_t batch, int64_t row, int64_t col,
                                               int32_t count) {
    int32_t size = lls__gemm_elem_size(x.dtype), bytes = size * count;
    char *at = lls__gemm_base(&x, batch, size) + lls__gemm_offset(&x, row, col) * size;
    return x.col == 1 && (uint64_t)at % (bytes < 16 ? bytes : 16) == 0 ? at : nullptr;
}

/* What the 16 columns from col on need for the fast way; false when they cannot take it. */
struct lls__gemm_run_pointers {
    char *out;
    const char *bias, *c, *residual; /* NULL: absent */
};
__device__ __forceinline__ bool lls__gemm_find_run(const lls__gemm_problem &p, int64_t batch, int64_t row, int64_t col,
                                                   lls__gemm_run_pointers *run) {
    int32_t count = p.gated ? 8 : 16;
    int64_t out_col = p.gated ? col / 2 : col;
    run->out = lls__gemm_run(p.out, batch, row, out_col, count);
    run->bias = p.bias.data ? lls__gemm_run(p.bias, batch, 0, col, 16) : nullptr;
    run->c = p.c.data ? lls__gemm_run(p.c, batch, row, col, 16) : nullptr;
    run->residual = p.residual.data ? lls__gemm_run(p.residual, batch, row, out_col, count) : nullptr;
    return col + 16 <= p.n && p.out.dtype != LLS_I32 && run->out && !run->bias == !p.bias.data &&
           !run->c == !p.c.data && !run->residual == !p.residual.data;
}

/* Residual, scale_out, store: columns col... of out. */
template <int count>
__device__ __forceinline__ void lls__gemm_output_run(const lls__gemm_problem &p, const lls__gemm_run_pointers &run,
                                                     int64_t batch, int64_t row, int64_t col, float (&y)[count]) {
    if (run.residual) {
        float residual[count];
        lls__gemm_load_run(p.residual.dtype, run.residual, residual);
#pragma unroll
        for (int i = 0; i < count; i++) y[i] += residual[i];
    }
    if (p.scale_out.data || p.scale_out_col.data) {
        float by_row = lls__gemm_scale_at(&p.scale_out, batch, row, 0);
#pragma unroll
        for (int i = 0; i < count; i++) {
            float scale = by_row * lls__gemm_scale_at(&p.scale_out_col, batch, col + i, 0);
            y[i] = scale == 0 ? 0 : y[i] / scale;
        }
    }
    lls__gemm_store_run(p.out.dtype, run.out, y);
}

/* x: 16 sums, from column col of row `row` on. */
__device__ __forceinline__ void lls__gemm_finish_run(const lls__gemm_problem &p, const lls__gemm_run_pointers &run,
                                                     int64_t batch, int64_t row, int64_t col, float (&x)[16]) {
    float scale = p.alpha;
    if (p.scale_a.data && !p.scale_a.blocks) scale *= lls__gemm_scale_at(&p.scale_a, batch, row, 0);
    bool by_col = p.scale_b.data && !p.scale_b.blocks;
#pragma unroll
    for (int i = 0; i < 16; i++)
        x[i] = p.k == 0 ? 0 : x[i] * (by_col ? scale * lls__gemm_scale_at(&p.scale_b, batch, col + i, 0) : scale);
    if (run.c) {
        float c[16];
        lls__gemm_load_run(p.c.dtype, run.c, c);
#pragma unroll
        for (int i = 0; i < 16; i++) x[i] = fmaf(p.beta, c[i], x[i]);
    }
    if (run.bias) {
        float bias[16];
        lls__gemm_load_run(p.bias.dtype, run.bias, bias);
#pragma unroll
        for (int i = 0; i < 16; i++) x[i] += bias[i];
    }
    if (p.gated) {
        float y[8];
#pragma unroll
        for (int i = 0; i < 8; i++) y[i] = lls__gemm_activate(p.act, x[2 * i]) * x[2 * i + 1];
        lls__gemm_output_run(p, run, batch, row, col / 2, y);
        return;
    }
    if (p.act != LLS_GEMM_ACT_NONE) {
#pragma unroll
        for (int i = 0; i < 16; i++) x[i] = lls__gemm_activate(p.act, x[i]);
    }
    lls__gemm_output_run(p, run, batch, row, col, x);
}
