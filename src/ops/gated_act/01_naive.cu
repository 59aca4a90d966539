/* Idea: a thread an element, a block 256 columns of a row.
 * Limited by: scalar 2-byte loads, which keep too few bytes in flight to fill HBM. Floor: 3 * rows * n elements over
 * HBM bandwidth, 19 us for 1024 x 14336 bf16 at 4.65 TB/s. The arithmetic, an exponential and a division of some 25
 * instructions, is close behind: 13 us of all issue slots.
 * Needs: nothing beyond sm_80. */
#include "cuda/activation.cuh"
#include "cuda/cvt.cuh"
#include "ops/gated_act/gated_act_kernels.h"

static __device__ __forceinline__ float activate(lls_act act, float x) {
    switch (act) {
    case LLS_ACT_GELU: return lls__gelu(x);
    case LLS_ACT_GELU_TANH: return lls__gelu_tanh(x);
    default: return lls__silu(x);
    }
}

template <typename T> __device__ __forceinline__ void gated_act_naive(const lls__gated_act_params &p) {
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t r = blockIdx.y; r < p.rows; r += gridDim.y) {
        const T *gate = (const T *)p.gate + r * p.gate_stride;
        const T *up = p.up ? (const T *)p.up + r * p.up_stride : nullptr;
        T *out = (T *)p.out + r * p.out_stride;
        for (int64_t i = first; i < p.n; i += step) {
            float y = activate(p.act, lls__to_f32(gate[i]));
            out[i] = lls__from_f32<T>(up ? y * lls__to_f32(up[i]) : y);
        }
    }
}

extern "C" __global__ void lls_gated_act_01_naive_f32(lls__gated_act_params p) {
    gated_act_naive<float>(p);
}
extern "C" __global__ void lls_gated_act_01_naive_f16(lls__gated_act_params p) {
    gated_act_naive<__half>(p);
}
extern "C" __global__ void lls_gated_act_01_naive_bf16(lls__gated_act_params p) {
    gated_act_naive<__nv_bfloat16>(p);
}
