/* Idea: a block a token. Its threads first put the token's cosines and sines into shared memory, then stride over
 * (head, pair) and rotate; queries and keys share the angles. A position times a frequency is reduced to a fraction of
 * a turn in fp64, so that fp32 sines are right at any position.
 * Limited by: HBM where tokens are many (each element read and written once, though by 2-byte accesses); by the launch
 * and one pass of latency in a decode step, where a single block works. Floor: 4096 tokens x 40 heads x 128 bf16 moves
 * 84 MB, 18 us at 4.65 TB/s.
 * Needs: nothing beyond sm_80. */
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

template <typename T> __device__ __forceinline__ void rope_naive(const lls__rope_params &p) {
    __shared__ float cosines[LLS_ROPE_MAX_PAIRS], sines[LLS_ROPE_MAX_PAIRS];
    int position = p.positions[blockIdx.x];
    for (int i = threadIdx.x; i < p.rotary_dim / 2; i += blockDim.x) {
        double turns = position * p.inv_freq[i] * LLS__TURNS_PER_RADIAN;
        float s, c;
        sincospif(2 * (float)(turns - rint(turns)), &s, &c);
        cosines[i] = c * p.magnitude;
        sines[i] = s * p.magnitude;
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
