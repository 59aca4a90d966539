/* Idea: a thread an output; a warp's 32 threads share a row of a (one broadcast a step) and read 32 neighbouring
 * columns of b.
 * Limited by: the load unit. Each fma needs two loads, so at best half of a load's rate: 132 SMs * 32 lanes * 1.8 GHz /
 * 2 = 4 TFLOP/s of f32's 60, and far less when b's columns are not neighbours in memory.
 * Needs: nothing beyond sm_80. Any strides, sizes and batch. */
#include "cuda/cvt.cuh"
#include "ops/gemm/gemm_kernels.h"

template <typename In, typename Out> __device__ __forceinline__ void gemm_naive(const lls__gemm_problem &p) {
    int64_t row_step = (int64_t)gridDim.y * blockDim.y, col_step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = blockIdx.z; i < p.batch; i += gridDim.z) {
        for (int64_t row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; row < p.m; row += row_step) {
            for (int64_t col = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; col < p.n; col += col_step) {
                const In *a = (const In *)p.a.data + i * p.a.batch + row * p.a.row; // [k]
                const In *b = (const In *)p.b.data + i * p.b.batch + col * p.b.col; // [k]
                float sum = 0.0f;
                for (int64_t k = 0; k < p.k; k++) {
                    sum = fmaf(lls__to_f32(*a), lls__to_f32(*b), sum);
                    a += p.a.col, b += p.b.row;
                }
                float value = p.alpha * sum;
                if (p.c.data)
                    value = fmaf(p.beta,
                                 lls__to_f32(((const Out *)p.c.data)[i * p.c.batch + row * p.c.row + col * p.c.col]),
                                 value);
                ((Out *)p.out.data)[i * p.out.batch + row * p.out.row + col * p.out.col] = lls__from_f32<Out>(value);
            }
        }
    }
}

extern "C" __global__ void lls_gemm_01_naive_f32(lls__gemm_problem p) {
    gemm_naive<float, float>(p);
}
extern "C" __global__ void lls_gemm_01_naive_f16(lls__gemm_problem p) {
    gemm_naive<__half, __half>(p);
}
extern "C" __global__ void lls_gemm_01_naive_bf16(lls__gemm_problem p) {
    gemm_naive<__nv_bfloat16, __nv_bfloat16>(p);
}
extern "C" __global__ void lls_gemm_01_naive_f16_f32(lls__gemm_problem p) {
    gemm_naive<__half, float>(p);
}
extern "C" __global__ void lls_gemm_01_naive_bf16_f32(lls__gemm_problem p) {
    gemm_naive<__nv_bfloat16, float>(p);
}
