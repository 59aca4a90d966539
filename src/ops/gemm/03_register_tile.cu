/* Idea: a thread keeps 8 x 8 sums in registers, so that 16 numbers from shared memory serve 64 multiply-adds.
 * Since rung 02: a block has 128 x 128 outputs; global loads are 16 bytes (f32) or 8 where alignment allows, and those of
 * the next step are under way while this one is multiplied; shared memory has two buffers, so that one barrier a step
 * is enough; lines are neighbours in it, so that a thread reads four with one instruction.
 * Gain expected: 8 to 10 times rung 02: 40 to 50 TFLOP/s of the H200's 67 in f32.
 * Limited by: multiply-adds, 128 an SM and cycle. Reads are 16 numbers or 4 instructions for 64 of them: 16 cycles of shared
 * memory a warp (4 wide reads, broadcasts aside) beside 64 cycles of arithmetic.
 * Needs: sm_80. Any strides, sizes and batch. The best rung for f32 that has to stay f32. */
#include "ops/gemm/gemm_kernels.h"
#include "ops/gemm/quads.cuh"

enum { TILE = 128, DEPTH = 16, THREADS = 256, PITCH = TILE + 4 };

/* [depth][line] of both operands, as fp32. */
struct buffer {
    float a[DEPTH][PITCH], b[DEPTH][PITCH];
};
static_assert(2 * sizeof(buffer) <= LLS__GEMM_03_SHARED && TILE * PITCH * 4 <= LLS__GEMM_03_SHARED,
              "launched with too little");

/* Four neighbours at `line`, four more half a tile on: a warp's reads then lie in one piece. */
__device__ __forceinline__ void read_8(float (&x)[8], const float (&lines)[PITCH], int line) {
    *(float4 *)x = *(const float4 *)&lines[line];
    *(float4 *)(x + 4) = *(const float4 *)&lines[line + TILE / 2];
}

template <typename T> __device__ __forceinline__ void register_tile(const lls__gemm_problem &p) {
    extern __shared__ __align__(16) char shared[]; // two buffers, later the sums [TILE][PITCH]
    buffer *buffers = (buffer *)shared;
    lls__gemm_tile tile;
    if (!lls__gemm_tile_at<TILE, TILE>(p, blockIdx.x, 8, &tile)) return;
    lls__gemm_quads<T, TILE, DEPTH, THREADS> from_a, from_b;
    from_a.start(lls__gemm_lines_of_a(p, tile, sizeof(T))), from_b.start(lls__gemm_lines_of_b(p, tile, sizeof(T)));
    int row = threadIdx.x / 16 * 4, col = threadIdx.x % 16 * 4;
    float sums[8][8] = {};
    from_a.fetch(), from_b.fetch();
    for (int64_t k = 0; k < p.k; k += DEPTH) {
        buffer &now = buffers[k / DEPTH % 2];
        from_a.put([&](int line, int depth, T x) { now.a[depth][line] = lls__to_f32(x); });
        from_b.put([&](int line, int depth, T x) { now.b[depth][line] = lls__to_f32(x); });
        __syncthreads(); // and all have left the other buffer, which the next step writes
        if (k + DEPTH < p.k) from_a.fetch(), from_b.fetch();
#pragma unroll
        for (int depth = 0; depth < DEPTH; depth++) {
            float a[8], b[8];
            read_8(a, now.a[depth], row), read_8(b, now.b[depth], col);
#pragma unroll
            for (int i = 0; i < 8; i++) {
#pragma unroll
                for (int j = 0; j < 8; j++) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
            }
        }
    }
    __syncthreads();
    float(*out)[PITCH] = (float(*)[PITCH])shared;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float *to = out[row + i % 4 + i / 4 * TILE / 2] + col;
        *(float4 *)to = *(const float4 *)sums[i];
        *(float4 *)(to + TILE / 2) = *(const float4 *)(sums[i] + 4);
    }
    __syncthreads();
    lls__gemm_finish_tile<TILE, TILE, PITCH, THREADS>(p, tile, &out[0][0], threadIdx.x);
}

extern "C" __global__ void __launch_bounds__(THREADS) lls_gemm_03_register_tile_f32(lls__gemm_problem p) {
    register_tile<float>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS) lls_gemm_03_register_tile_f16(lls__gemm_problem p) {
    register_tile<__half>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS) lls_gemm_03_register_tile_bf16(lls__gemm_problem p) {
    register_tile<__nv_bfloat16>(p);
}
