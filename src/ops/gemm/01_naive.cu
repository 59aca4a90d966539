/* Idea: a thread an output; a warp's 32 threads share a row of a (one broadcast a step) and read 32 neighbouring
 * columns of b.
 * Limited by: the load unit. Each fma needs two loads, so at best half of a load's rate: 132 SMs * 32 lanes * 1.8 GHz /
 * 2 = 4 TFLOP/s of f32's 60, and far less when b's columns are not neighbours in memory.
 * Needs: nothing beyond sm_80. Any strides, sizes and batch. */
#include "cuda/cvt.cuh"
#include "ops/gemm/gemm_kernels.h"

template <typename In> __device__ __forceinline__ void add_product(float &sum, In a, In b) {
    sum = fmaf(lls__to_f32(a), lls__to_f32(b), sum);
}
__device__ __forceinline__ void add_product(uint32_t &sum, int8_t a, int8_t b) {
    sum += (uint32_t)(a * b); // unsigned: it may wrap
}

template <typename Out>
__device__ __forceinline__ void finish(const lls__gemm_problem &p, float sum, const Out *c, Out *out) {
    float value = p.alpha * sum;
    *out = lls__from_f32<Out>(c ? fmaf(p.beta, lls__to_f32(*c), value) : value);
}
__device__ __forceinline__ void finish(const lls__gemm_problem &p, uint32_t sum, const int32_t *c, int32_t *out) {
    *out = (int32_t)(c ? sum + (uint32_t)*c : sum);
}

template <typename In, typename Out, typename Sum>
__device__ __forceinline__ void gemm_naive(const lls__gemm_problem &p) {
    int64_t row_step = (int64_t)gridDim.y * blockDim.y, col_step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = blockIdx.z; i < p.batch; i += gridDim.z) {
        for (int64_t row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; row < p.m; row += row_step) {
            for (int64_t col = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; col < p.n; col += col_step) {
                const In *a = (const In *)p.a.data + i * p.a.batch + row * p.a.row; // [k]
                const In *b = (const In *)p.b.data + i * p.b.batch + col * p.b.col; // [k]
                Sum sum = 0;
                for (int64_t k = 0; k < p.k; k++) {
                    add_product(sum, *a, *b);
                    a += p.a.col, b += p.b.row;
                }
                const Out *c = (const Out *)p.c.data;
                if (c) c += i * p.c.batch + row * p.c.row + col * p.c.col;
                finish(p, sum, c, (Out *)p.out.data + i * p.out.batch + row * p.out.row + col * p.out.col);
            }
        }
    }
}

extern "C" __global__ void lls_gemm_01_naive_f32(lls__gemm_problem p) {
    gemm_naive<float, float, float>(p);
}
extern "C" __global__ void lls_gemm_01_naive_f16(lls__gemm_problem p) {
    gemm_naive<__half, __half, float>(p);
}
extern "C" __global__ void lls_gemm_01_naive_bf16(lls__gemm_problem p) {
    gemm_naive<__nv_bfloat16, __nv_bfloat16, float>(p);
}
extern "C" __global__ void lls_gemm_01_naive_f16_f32(lls__gemm_problem p) {
    gemm_naive<__half, float, float>(p);
}
extern "C" __global__ void lls_gemm_01_naive_bf16_f32(lls__gemm_problem p) {
    gemm_naive<__nv_bfloat16, float, float>(p);
}
extern "C" __global__ void lls_gemm_01_naive_i8_i32(lls__gemm_problem p) {
    gemm_naive<int8_t, int32_t, uint32_t>(p);
}
