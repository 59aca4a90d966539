/* Idea: the tensor cores, by way of CUDA's WMMA functions: a warp multiplies 16 x 16 by 16 x 16 with one call, and the
 * compiler knows which thread holds what.
 * Since rung 03: the multiply-adds. 16-bit operands stay 16-bit in shared memory; a warp has 64 x 32 sums, 8 fragments.
 * Gain expected: 4 to 6 times rung 03.
 * Limited by: waiting. A step is fetched to registers, put, multiplied, with two barriers; fragments are read by one load
 * for each register, 6 fragments of 512 bytes for 8 products of 4096 multiply-adds, and nothing runs beside them.
 * Needs: sm_80, f16 or bf16. Any strides, sizes and batch. */
#include <mma.h>

#include "ops/gemm/gemm_kernels.h"
#include "ops/gemm/quads.cuh"

using namespace nvcuda;

enum {
    TILE = 128,
    DEPTH = 32,
    THREADS = 256,
    PITCH = DEPTH + 8, // a multiple of 8, as WMMA wants, and rows are 20 banks apart
    WARP_ROWS = 64,
    WARP_COLS = 32,
    SUM_PITCH = WARP_COLS + 8,
};

template <typename T> struct buffer {
    T a[TILE][PITCH], b[TILE][PITCH]; // [line][depth]
};
static_assert(sizeof(buffer<__half>) <= LLS__GEMM_04_SHARED &&
                  TILE * TILE / WARP_COLS * SUM_PITCH * 4 <= LLS__GEMM_04_SHARED,
              "launched with too little");

template <typename T> __device__ __forceinline__ void gemm_wmma(const lls__gemm_problem &p) {
    extern __shared__ __align__(32) char shared[]; // a buffer, later the sums of each warp [WARP_ROWS][SUM_PITCH]
    buffer<T> &now = *(buffer<T> *)shared;
    lls__gemm_tile tile;
    if (!lls__gemm_tile_at<TILE, TILE>(p, blockIdx.x, 8, &tile)) return;
    lls__gemm_quads<T, TILE, DEPTH, THREADS> from_a, from_b;
    from_a.start(lls__gemm_lines_of_a(p, tile, sizeof(T))), from_b.start(lls__gemm_lines_of_b(p, tile, sizeof(T)));
    int warp = threadIdx.x / 32, row = warp % 2 * WARP_ROWS, col = warp / 2 * WARP_COLS;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[WARP_ROWS / 16][WARP_COLS / 16];
    for (auto &line : sums) {
        for (auto &fragment : line) wmma::fill_fragment(fragment, 0.0f);
    }
    from_a.fetch(), from_b.fetch();
    for (int64_t k = 0; k < p.k; k += DEPTH) {
        from_a.put([&](int line, int depth, T x) { now.a[line][depth] = x; });
        from_b.put([&](int line, int depth, T x) { now.b[line][depth] = x; });
        __syncthreads();
        if (k + DEPTH < p.k) from_a.fetch(), from_b.fetch();
#pragma unroll
        for (int depth = 0; depth < DEPTH; depth += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> a[WARP_ROWS / 16];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> b[WARP_COLS / 16];
#pragma unroll
            for (int i = 0; i < WARP_ROWS / 16; i++) wmma::load_matrix_sync(a[i], &now.a[row + 16 * i][depth], PITCH);
#pragma unroll
            for (int j = 0; j < WARP_COLS / 16; j++) wmma::load_matrix_sync(b[j], &now.b[col + 16 * j][depth], PITCH);
#pragma unroll
            for (int i = 0; i < WARP_ROWS / 16; i++) {
#pragma unroll
                for (int j = 0; j < WARP_COLS / 16; j++) wmma::mma_sync(sums[i][j], a[i], b[j], sums[i][j]);
            }
        }
        __syncthreads();
    }
    float *room = (float *)shared + warp * (WARP_ROWS * SUM_PITCH);
#pragma unroll
    for (int i = 0; i < WARP_ROWS / 16; i++) {
#pragma unroll
        for (int j = 0; j < WARP_COLS / 16; j++) {
            float *to = room + 16 * i * SUM_PITCH + 16 * j;
            wmma::store_matrix_sync(to, sums[i][j], SUM_PITCH, wmma::mem_row_major);
        }
    }
    __syncwarp();
    tile.row += row, tile.col += col;
    lls__gemm_finish_tile<WARP_ROWS, WARP_COLS, SUM_PITCH, 32>(p, tile, room, threadIdx.x % 32);
}

extern "C" __global__ void __launch_bounds__(THREADS) lls_gemm_04_wmma_f16(lls__gemm_problem p) {
    gemm_wmma<__half>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS) lls_gemm_04_wmma_bf16(lls__gemm_problem p) {
    gemm_wmma<__nv_bfloat16>(p);
}
