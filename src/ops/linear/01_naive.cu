/* Idea: a warp an output element. Its lanes stride over k, decode weights one at a time in any dtype, add in fp32, and
 * meet in a shuffle reduction.
 * Limited by: instructions (a block type's code costs some 20 of them) and by reading the whole weight once for every
 * row of x; reads of a row are coalesced for plain dtypes. Floor for m = 1: the bytes of the weight over HBM bandwidth,
 * 7.2 us for 4096 x 4096 f16 at 4.65 TB/s.
 * Needs: nothing beyond sm_80. */
#include "cuda/cvt.cuh"
#include "cuda/reduce.cuh"
#include "ops/linear/blocks.h"
#include "ops/linear/linear_kernels.h"

static __device__ __forceinline__ float load(lls_dtype dtype, const void *p, int64_t i) {
    switch (dtype) {
    case LLS_F16: return lls__to_f32(((const __half *)p)[i]);
    case LLS_BF16: return lls__to_f32(((const __nv_bfloat16 *)p)[i]);
    default: return ((const float *)p)[i];
    }
}

static __device__ __forceinline__ void store(lls_dtype dtype, void *p, int64_t i, float v) {
    switch (dtype) {
    case LLS_F16: ((__half *)p)[i] = lls__from_f32<__half>(v); break;
    case LLS_BF16: ((__nv_bfloat16 *)p)[i] = lls__from_f32<__nv_bfloat16>(v); break;
    default: ((float *)p)[i] = v; break;
    }
}

extern "C" __global__ void lls_linear_01_naive(lls__linear_params p) {
    int lane = threadIdx.x % 32;
    int64_t n = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (n >= p.n) return; // whole warps leave
    bool blocks = p.weight_dtype >= LLS_Q4_0;
    const uint8_t *row = (const uint8_t *)p.weight; // of a block type
    if (blocks) row += n * (p.k / lls__block_elems(p.weight_dtype)) * lls__block_bytes(p.weight_dtype);

    for (int64_t m = blockIdx.y; m < p.m; m += gridDim.y) {
        float sum = 0.0f;
        for (int64_t k = lane; k < p.k; k += 32) {
            float w = blocks ? lls__block_weight(p.weight_dtype, row, k)
                             : load(p.weight_dtype, p.weight, n * p.weight_stride + k);
            sum += w * load(p.x_dtype, p.x, m * p.x_stride + k);
        }
        sum = lls__warp_reduce<lls__op_sum>(sum);
        if (lane == 0) {
            if (p.bias) sum += load(p.bias_dtype, p.bias, n);
            store(p.out_dtype, p.out, m * p.out_stride + n, sum);
        }
    }
}
