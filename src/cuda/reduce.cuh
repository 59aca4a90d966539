/* Reductions over a block, in a fixed order: same inputs, same bits. Every thread of the block calls and gets the
 * result. */
#pragma once

struct lls__op_sum {
    static __device__ __forceinline__ float identity() {
        return 0.0f;
    }
    template <typename T> static __device__ __forceinline__ T apply(T a, T b) {
        return a + b;
    }
};
struct lls__op_max {
    static __device__ __forceinline__ float identity() {
        return -INFINITY;
    }
    static __device__ __forceinline__ float apply(float a, float b) {
        return fmaxf(a, b);
    }
};

template <typename Op, typename T> __device__ __forceinline__ T lls__warp_reduce(T x) {
    for (int offset = 16; offset > 0; offset /= 2) x = Op::apply(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

/* blockDim.x is a multiple of 32, at most 1024; one-dimensional blocks. */
template <typename Op, typename T> __device__ __forceinline__ T lls__block_reduce(T x) {
    __shared__ T partial[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    x = lls__warp_reduce<Op>(x);
    if (lane == 0) partial[warp] = x;
    __syncthreads();
    x = lls__warp_reduce<Op>(lane < warps ? partial[lane] : (T)Op::identity());
    __syncthreads(); // `partial` may be reused by the next call
    return x;
}
