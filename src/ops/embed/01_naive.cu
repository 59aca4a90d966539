/* Idea: a block a token, a thread an element; GGUF blocks are decoded where they are read.
 * Limited by: scalar 2-byte loads, and for block tables by decoding the scale again for each weight. Floor: tokens *
 * hidden * (table + out) bytes over HBM bandwidth, 3.6 us for 1024 x 4096 bf16 at 4.65 TB/s; one token is all launch
 * latency.
 * Needs: nothing beyond sm_80. */
#include <math_constants.h>

#include "cuda/cvt.cuh"
#include "ops/embed/embed_kernels.h"
#include "ops/linear/blocks.h"

static __device__ __forceinline__ bool is_float(lls_dtype dtype) {
    return dtype == LLS_F32 || dtype == LLS_F16 || dtype == LLS_BF16;
}

static __device__ __forceinline__ float weight(const lls__embed_params &p, int64_t id, int64_t i) {
    if (is_float(p.table_dtype)) return lls__load_f32(p.table_dtype, p.table, id * p.table_stride + i);
    int64_t row_bytes = p.hidden / lls__block_elems(p.table_dtype) * lls__block_bytes(p.table_dtype);
    return lls__block_weight(p.table_dtype, (const uint8_t *)p.table + id * row_bytes, i);
}

template <typename T> __device__ __forceinline__ void embed_naive(const lls__embed_params &p) {
    for (int64_t t = blockIdx.x; t < p.tokens; t += gridDim.x) {
        int64_t id = p.ids[t];
        bool known = id >= 0 && id < p.vocab;
        T *out = (T *)p.out + t * p.out_stride;
        for (int64_t i = threadIdx.x; i < p.hidden; i += blockDim.x)
            out[i] = lls__from_f32<T>(known ? weight(p, id, i) * p.scale : CUDART_NAN_F);
    }
}

extern "C" __global__ void lls_embed_01_naive_f32(lls__embed_params p) {
    embed_naive<float>(p);
}
extern "C" __global__ void lls_embed_01_naive_f16(lls__embed_params p) {
    embed_naive<__half>(p);
}
extern "C" __global__ void lls_embed_01_naive_bf16(lls__embed_params p) {
    embed_naive<__nv_bfloat16>(p);
}
