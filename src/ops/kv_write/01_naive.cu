/* Idea: a block a token and side (keys or values); threads stride over the token's heads x width elements. A slot
 * outside the cache writes nothing.
 * Limited by: launch latency for one token of decode; for a prompt, scalar 2-byte loads and a division an element to
 * find its head. Floor: twice the bytes of k and v over HBM bandwidth, 3.6 us for 2048 tokens of 8 heads x 128 + 128
 * bf16 at 4.65 TB/s.
 * Needs: nothing beyond sm_80. */
#include "cuda/cvt.cuh"
#include "ops/kv_write/kv_write_kernels.h"

template <typename T> __device__ __forceinline__ void kv_write_naive(const lls__kv_write_params &p) {
    const lls__kv_write_side &s = blockIdx.y == 0 ? p.sides[0] : p.sides[1];
    for (int64_t t = blockIdx.x; t < p.tokens; t += gridDim.x) {
        int64_t slot = p.slots[t];
        if (slot < 0 || slot >= p.capacity) continue;
        int64_t from = t * s.token_stride;
        T *to = (T *)s.cache + slot / p.page_size * s.page_stride + slot % p.page_size * s.slot_stride;
        for (uint32_t i = threadIdx.x; i < (uint32_t)(p.heads * s.width); i += blockDim.x) {
            int32_t head = i / s.width, column = i % s.width;
            to[head * s.cache_head_stride + column] =
                lls__from_f32<T>(lls__load_f32(p.dtype, s.rows, from + head * s.head_stride + column));
        }
    }
}

extern "C" __global__ void lls_kv_write_01_naive_f32(lls__kv_write_params p) {
    kv_write_naive<float>(p);
}
extern "C" __global__ void lls_kv_write_01_naive_f16(lls__kv_write_params p) {
    kv_write_naive<__half>(p);
}
extern "C" __global__ void lls_kv_write_01_naive_bf16(lls__kv_write_params p) {
    kv_write_naive<__nv_bfloat16>(p);
}
