/* Idea: a thread two neighbouring outputs; a warp's 32 threads share a row of a (one broadcast a step) and read 64
 * neighbouring columns of b.
 * Limited by: the load unit. Two multiply-adds need three loads, so at best two thirds of a load's rate: 132 SMs * 32
 * lanes * 1.8 GHz * 2 / 3 = 5 TFLOP/s of f32's 60, and far less when b's columns are not neighbours in memory.
 * Needs: nothing beyond sm_80. Everything that the definition allows. */
#include <type_traits>

#include "ops/gemm/epilogue.cuh"
#include "ops/gemm/gemm_kernels.h"

struct f8_pair { // f8 operands: each its own format, known at run time
    lls_dtype a, b;
};

template <typename T> __device__ __forceinline__ float load(lls_dtype, const char *base, int64_t i) {
    return lls__to_f32(((const T *)base)[i]);
}
template <> __device__ __forceinline__ float load<f8_pair>(lls_dtype dtype, const char *base, int64_t i) {
    return lls__f8_to_f32(dtype, ((const uint8_t *)base)[i]);
}

template <typename T> struct product {
    typedef float sum;
    static __device__ __forceinline__ void add(sum &s, const lls__gemm_problem &p, const char *a, int64_t ai,
                                               const char *b, int64_t bi) {
        s = fmaf(load<T>(p.a.dtype, a, ai), load<T>(p.b.dtype, b, bi), s);
    }
};
template <> struct product<int8_t> {
    typedef int32_t sum;
    static __device__ __forceinline__ void add(sum &s, const lls__gemm_problem &, const char *a, int64_t ai,
                                               const char *b, int64_t bi) {
        s = (int32_t)((uint32_t)s + (uint32_t)(((const int8_t *)a)[ai] * ((const int8_t *)b)[bi])); // it may wrap
    }
};

/* The sum over [begin, end) of k. */
template <typename T>
__device__ __forceinline__ void add_products(typename product<T>::sum (&sum)[2], const lls__gemm_problem &p,
                                             const char *a, const char *b, int64_t row, int64_t col, int64_t begin,
                                             int64_t end) {
    int64_t next = col + 1 < p.n ? p.b.col : 0; // the second column repeats the first where there is none
    for (int64_t k = begin; k < end; k++) {
        int64_t ai = lls__gemm_offset(&p.a, row, k), bi = lls__gemm_offset(&p.b, k, col);
        product<T>::add(sum[0], p, a, ai, b, bi);
        product<T>::add(sum[1], p, a, ai, b, bi + next);
    }
}

/* f8 with block scales: every block by itself, then scaled into the sum. */
__device__ __forceinline__ void add_blocks(float (&sum)[2], const lls__gemm_problem &p, const char *a, const char *b,
                                           int64_t batch, int64_t row, int64_t col) {
    const lls__gemm_scale none = {};
    const lls__gemm_scale *sa = p.scale_a.blocks ? &p.scale_a : &none, *sb = p.scale_b.blocks ? &p.scale_b : &none;
    int64_t next = col + 1 < p.n ? col + 1 : col;
    for (int64_t k = 0; k < p.k; k += LLS__GEMM_BLOCK) {
        float part[2] = {0, 0}, scale_a = lls__gemm_scale_at(sa, batch, row, k);
        int64_t end = k + LLS__GEMM_BLOCK < p.k ? k + LLS__GEMM_BLOCK : p.k;
        add_products<f8_pair>(part, p, a, b, row, col, k, end);
        sum[0] = fmaf(part[0], scale_a * lls__gemm_scale_at(sb, batch, col, k), sum[0]);
        sum[1] = fmaf(part[1], scale_a * lls__gemm_scale_at(sb, batch, next, k), sum[1]);
    }
}

template <typename T>
__device__ __forceinline__ void naive_pair(const lls__gemm_problem &p, int64_t batch, int64_t row, int64_t col) {
    const char *a = lls__gemm_base(&p.a, batch, lls__gemm_elem_size(p.a.dtype));
    const char *b = lls__gemm_base(&p.b, batch, lls__gemm_elem_size(p.b.dtype));
    typename product<T>::sum sum[2] = {0, 0};
    if (p.scale_a.blocks || p.scale_b.blocks) {
        if constexpr (std::is_same<T, f8_pair>::value) add_blocks(sum, p, a, b, batch, row, col);
    } else {
        add_products<T>(sum, p, a, b, row, col, 0, p.k);
    }
    lls__gemm_finish_pair(p, batch, row, col, sum[0], sum[1]);
}

template <typename T> __device__ __forceinline__ void gemm_naive(const lls__gemm_problem &p) {
    int64_t row_step = (int64_t)gridDim.y * blockDim.y, col_step = 2 * (int64_t)gridDim.x * blockDim.x;
    int64_t first_row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y,
            first_col = 2 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x);
    for (int64_t i = blockIdx.z; i < p.batch; i += gridDim.z) {
        lls__gemm_span rows = lls__gemm_rows(&p, i);
        for (int64_t row = rows.begin + first_row; row < rows.end; row += row_step) {
            for (int64_t col = first_col; col < p.n; col += col_step) naive_pair<T>(p, i, row, col);
        }
    }
}

extern "C" __global__ void lls_gemm_01_naive_f32(lls__gemm_problem p) {
    gemm_naive<float>(p);
}
extern "C" __global__ void lls_gemm_01_naive_f16(lls__gemm_problem p) {
    gemm_naive<__half>(p);
}
extern "C" __global__ void lls_gemm_01_naive_bf16(lls__gemm_problem p) {
    gemm_naive<__nv_bfloat16>(p);
}
extern "C" __global__ void lls_gemm_01_naive_i8(lls__gemm_problem p) {
    gemm_naive<int8_t>(p);
}
extern "C" __global__ void lls_gemm_01_naive_f8(lls__gemm_problem p) {
    gemm_naive<f8_pair>(p);
}
