/* Idea: a block shares what its threads read. Steps of 32 along k: the block copies 32 x 32 of a and of b to shared memory,
 * as fp32, and each thread takes its products from there.
 * Since rung 01: an element of a or b comes from global memory once for 32 outputs, not once for each; whichever axis is
 * contiguous, neighbouring threads read neighbouring elements.
 * Gain expected: 5 to 10 times, most for operands whose columns are far apart.
 * Limited by: shared memory. A thread has 2 x 2 outputs: 4 reads for 4 multiply-adds, so a warp's 32 of each cost 4 cycles
 * of reads beside 1 of arithmetic: about a quarter of f32's rate.
 * Needs: sm_80. Any strides, sizes and batch. */
#include "ops/gemm/gemm_kernels.h"
#include "ops/gemm/tile.cuh"

enum { TILE = 32, THREADS = 256 };

/* Lines 0 to 31 by depth 0 to 31 of an operand; 0 where there are none. */
template <typename T>
__device__ __forceinline__ void copy_tile(const lls__gemm_operand &x, float (&tile)[TILE][TILE + 1]) {
    bool by_depth = x.depth_stride == 1;
#pragma unroll
    for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        int line = by_depth ? i / TILE : i % TILE, depth = by_depth ? i % TILE : i / TILE;
        bool there = line < x.lines && depth < x.depth;
        const T *element = (const T *)x.data + line * x.line_stride + depth * x.depth_stride;
        tile[line][depth] = there ? lls__to_f32(*element) : 0;
    }
}

template <typename T> __device__ __forceinline__ void smem_tile(const lls__gemm_problem &p) {
    __shared__ float a[TILE][TILE + 1], b[TILE][TILE + 1]; // padded: a column of 32 lines lies in 32 banks
    lls__gemm_tile tile;
    if (!lls__gemm_tile_at<TILE, TILE>(p, blockIdx.x, 1, &tile)) return;
    lls__gemm_operand from_a = lls__gemm_lines_of_a(p, tile, sizeof(T)),
                      from_b = lls__gemm_lines_of_b(p, tile, sizeof(T));
    int row = threadIdx.x / 16, col = threadIdx.x % 16 * 2; // and row + 16, col + 1
    float sums[2][2] = {};
    for (; from_a.depth > 0; from_a.depth -= TILE, from_b.depth -= TILE) {
        copy_tile<T>(from_a, a), copy_tile<T>(from_b, b);
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < TILE; k++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
#pragma unroll
                for (int j = 0; j < 2; j++) sums[i][j] = fmaf(a[row + 16 * i][k], b[col + j][k], sums[i][j]);
            }
        }
        __syncthreads();
        from_a.data += from_a.depth_stride * TILE * sizeof(T), from_b.data += from_b.depth_stride * TILE * sizeof(T);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int64_t at = tile.row + row + 16 * i;
        if (at < tile.row_end) lls__gemm_finish_pair(p, tile.batch, at, tile.col + col, sums[i][0], sums[i][1]);
    }
}

// Two blocks an SM at least: left alone, ptxas saves registers for more of them until it spills.
extern "C" __global__ void __launch_bounds__(THREADS, 2) lls_gemm_02_smem_tile_f32(lls__gemm_problem p) {
    smem_tile<float>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) lls_gemm_02_smem_tile_f16(lls__gemm_problem p) {
    smem_tile<__half>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) lls_gemm_02_smem_tile_bf16(lls__gemm_problem p) {
    smem_tile<__nv_bfloat16>(p);
}
