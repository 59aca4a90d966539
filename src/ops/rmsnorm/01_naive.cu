/* Idea: a block a row; threads stride over the row, add squares in fp32, reduce, and read the row a second time to
 * scale it.
 * Limited by: the second read (from L1 or L2 for rows below 100 KB) and scalar 2-byte loads. Floor: rows * hidden * 2
 * elements over HBM bandwidth, 3.6 us for 1024 x 4096 bf16 at 4.65 TB/s.
 * Needs: nothing beyond sm_80. */
#include "cuda/cvt.cuh"
#include "cuda/reduce.cuh"
#include "ops/rmsnorm/rmsnorm_kernels.h"

template <typename T> __device__ __forceinline__ void rmsnorm_naive(const lls__rmsnorm_params &p) {
    int64_t row = blockIdx.x;
    const T *x = (const T *)p.x + lls__row_offset(&p.x_rows, row);
    T *out = (T *)p.out + lls__row_offset(&p.out_rows, row);
    const T *h = x; // [hidden], what is normalised

    if (p.residual) {
        const T *residual = (const T *)p.residual + lls__row_offset(&p.residual_rows, row);
        T *sum = (T *)p.residual_out + lls__row_offset(&p.residual_out_rows, row);
        for (int i = threadIdx.x; i < p.hidden; i += blockDim.x)
            sum[i] = lls__from_f32<T>(lls__to_f32(x[i]) + lls__to_f32(residual[i]));
        h = sum; // each thread reads back only what it wrote
    }

    float squares = 0.0f;
    for (int i = threadIdx.x; i < p.hidden; i += blockDim.x) {
        float v = lls__to_f32(h[i]);
        squares += v * v;
    }
    float scale = 1.0f / sqrtf(lls__block_reduce<lls__op_sum>(squares) / p.hidden + p.eps);

    for (int i = threadIdx.x; i < p.hidden; i += blockDim.x) {
        float w = 1.0f;
        if (p.weight)
            w = p.weight_offset +
                (p.weight_is_f32 ? ((const float *)p.weight)[i] : lls__to_f32(((const T *)p.weight)[i]));
        out[i] = lls__from_f32<T>(lls__to_f32(h[i]) * scale * w);
    }
}

extern "C" __global__ void lls_rmsnorm_01_naive_f32(lls__rmsnorm_params p) {
    rmsnorm_naive<float>(p);
}
extern "C" __global__ void lls_rmsnorm_01_naive_f16(lls__rmsnorm_params p) {
    rmsnorm_naive<__half>(p);
}
extern "C" __global__ void lls_rmsnorm_01_naive_bf16(lls__rmsnorm_params p) {
    rmsnorm_naive<__nv_bfloat16>(p);
}
