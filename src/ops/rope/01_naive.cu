/* Idea: a block a token. Its threads first put the token's cosines and sines into shared memory, then stride over
 * (head, pair) and rotate; queries and keys share the angles. A position times a frequency is reduced to a fraction of
 * a turn in fp64, so that fp32 sines are right at any position. A caller's tables are read instead, a row a token.
 * Limited by: HBM where tokens are many (each element read and written once, though by 2-byte accesses); by the launch
 * and one pass of latency in a decode step, where a single block works. Floor: 4096 tokens x 40 heads x 128 bf16 moves
 * 84 MB, 18 us at 4.65 TB/s.
 * Needs: nothing beyond sm_80. */
#include <math_constants.h>

#include "cuda/cvt.cuh"
#include "ops/rope/rope_kernels.h"

template <typename T>
__device__ __forceinline__ void rotate_heads(const lls__rope_params &p, const lls__rope_heads &set,
                                             const float *cosines, const float *sines) {
    int pairs = p.rotary_dim / 2, tail = p.head_dim - p.rotary_dim;
    const T *x = (const T *)set.x + blockIdx.x * set.x_token;
    T *out = (T *)set.out + blockIdx.x * set.out_token;
    for (int64_t n = threadIdx.x; n < set.heads * pairs; n += blockDim.x) {
        int64_t head = n / pairs;
        int i = (int)(n % pairs), first = p.interleaved ? 2 * i : i, second = p.interleaved ? 2 * i + 1 : i + pairs;
        float u = lls__to_f32(x[head * set.x_head + first]), v = lls__to_f32(x[head * set.x_head + second]);
        out[head * set.out_head + first] = lls__from_f32<T>(u * cosines[i] - v * sines[i]);
        out[head * set.out_head + second] = lls__from_f32<T>(v * cosines[i] + u * sines[i]);
    }
    if (tail == 0 || set.out == set.x) return;
    for (int64_t n = threadIdx.x; n < set.heads * tail; n += blockDim.x) {
        int64_t head = n / tail, i = p.rotary_dim + n % tail;
        out[head * set.out_head + i] = x[head * set.x_head + i];
    }
}

__device__ __forceinline__ void angle(const lls__rope_params &p, int position, int pair, float *c, float *s) {
    double turns = position * p.inv_freq[pair] * LLS__TURNS_PER_RADIAN;
    sincospif(2 * (float)(turns - rint(turns)), s, c);
    *c *= p.magnitude, *s *= p.magnitude;
}

// A row that is not there turns everything it would have rotated to NaN.
__device__ __forceinline__ void table_entry(const lls__rope_tables &t, int64_t row, int pair, float *c, float *s) {
    bool inside = row >= 0 && row < t.len;
    *c = inside ? lls__load_f32(t.dtype, t.cos, row * t.cos_row + pair) : CUDART_NAN_F;
    *s = inside ? lls__load_f32(t.dtype, t.sin, row * t.sin_row + pair) : CUDART_NAN_F;
}

template <typename T> __device__ __forceinline__ void rope_naive(const lls__rope_params &p) {
    __shared__ float cosines[LLS_ROPE_MAX_PAIRS], sines[LLS_ROPE_MAX_PAIRS];
    int position = p.positions ? p.positions[blockIdx.x] : (int)blockIdx.x;
    for (int i = threadIdx.x; i < p.rotary_dim / 2; i += blockDim.x) {
        if (p.tables.given) table_entry(p.tables, position, i, &cosines[i], &sines[i]);
        else angle(p, position, i, &cosines[i], &sines[i]);
    }
    __syncthreads();
    rotate_heads<T>(p, p.set[0], cosines, sines);
    rotate_heads<T>(p, p.set[1], cosines, sines);
}

extern "C" __global__ void lls_rope_01_naive_f32(const __grid_constant__ lls__rope_params p) {
    rope_naive<float>(p);
}
extern "C" __global__ void lls_rope_01_naive_f16(const __grid_constant__ lls__rope_params p) {
    rope_naive<__half>(p);
}
extern "C" __global__ void lls_rope_01_naive_bf16(const __grid_constant__ lls__rope_params p) {
    rope_naive<__nv_bfloat16>(p);
}
