/* Tiles of out: their order, what they need of a and b, and how a tile of sums in shared memory is finished. */
#pragma once

#include "ops/gemm/epilogue.cuh"

/* Part of out. */
struct lls__gemm_tile {
    int64_t batch, row, col;
    int64_t row_end; /* of the matrix, or of the group */
};

/* Tile `index` of a launch with tiles of ROWS x COLS, counted over all matrices, whose row tiles stand in one column.
 * Bands of `band` row tiles are walked column by column: blocks that run at the same time then share lines of both
 * operands in L2, `band` tiles of a and about blocks / band of b. A grouped product has up to a row tile more for each
 * group; false for those that there are not. */
template <int ROWS, int COLS>
__device__ __forceinline__ bool lls__gemm_tile_at(const lls__gemm_problem &p, int64_t index, int64_t band,
                                                  lls__gemm_tile *tile) {
    int64_t per_matrix = (p.m + ROWS - 1) / ROWS, columns = (p.n + COLS - 1) / COLS;
    int64_t row_tiles = p.offsets ? per_matrix + p.batch : per_matrix * p.batch;
    int64_t first = index / (band * columns) * band, rows = min(band, row_tiles - first);
    index -= first * columns;
    int64_t row_tile = first + index % rows;
    tile->col = index / rows * COLS;
    tile->batch = 0;
    if (!p.offsets) {
        tile->batch = row_tile / per_matrix, row_tile %= per_matrix;
    } else {
        for (; tile->batch < p.batch; tile->batch++) {
            lls__gemm_span span = lls__gemm_rows(&p, tile->batch);
            int64_t tiles = (span.end - span.begin + ROWS - 1) / ROWS;
            if (row_tile < tiles) break;
            row_tile -= tiles;
        }
        if (tile->batch == p.batch) return false;
    }
    lls__gemm_span span = lls__gemm_rows(&p, tile->batch);
    tile->row = span.begin + row_tile * ROWS, tile->row_end = span.end;
    return true;
}

/* What a tile needs of an operand. a and b look alike when a line is a row of a or a column of b, and depth runs along k:
 * a sum is the product of a line of a and a line of b. Strides in elements. */
struct lls__gemm_operand {
    const char *data; /* of the tile's first line, depth 0 */
    int64_t line_stride, depth_stride;
    int64_t lines, depth; /* how many there are from `data` on */
};

__device__ __forceinline__ lls__gemm_operand lls__gemm_lines_of_a(const lls__gemm_problem &p,
                                                                  const lls__gemm_tile &tile, int bytes) {
    const char *first = lls__gemm_base(&p.a, tile.batch, bytes) + tile.row * p.a.row * bytes;
    return {first, p.a.row, p.a.col, tile.row_end - tile.row, p.k};
}
__device__ __forceinline__ lls__gemm_operand lls__gemm_lines_of_b(const lls__gemm_problem &p,
                                                                  const lls__gemm_tile &tile, int bytes) {
    const char *first = lls__gemm_base(&p.b, tile.batch, bytes) + tile.col * p.b.col * bytes;
    return {first, p.b.col, p.b.row, p.n - tile.col, p.k};
}

/* Whether out of these sums is alpha times them, in rows of 16-byte vectors. */
__device__ __forceinline__ bool lls__gemm_stores_vectors(const lls__gemm_problem &p, const char *out, int32_t) {
    return false;
}
__device__ __forceinline__ bool lls__gemm_stores_vectors(const lls__gemm_problem &p, const char *out, float) {
    bool is_float = p.out.dtype == LLS_F32 || p.out.dtype == LLS_F16 || p.out.dtype == LLS_BF16;
    return lls__gemm_is_plain(&p) && !p.scale_a.data && !p.scale_b.data && is_float && p.k > 0 && p.out.col == 1 &&
           p.n % 8 == 0 && ((uint64_t)out | (uint64_t)p.out.row * lls__gemm_elem_size(p.out.dtype)) % 16 == 0;
}

template <typename OUT> __device__ __forceinline__ void lls__gemm_store_8(OUT *out, float alpha, const float *sums) {
    __align__(16) OUT x[8];
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = lls__from_f32<OUT>(alpha * sums[i]);
#pragma unroll
    for (int i = 0; i < (int)sizeof x / 16; i++) ((uint4 *)out)[i] = ((const uint4 *)x)[i];
}

/* Sums [ROWS][PITCH], of which COLS columns count, to out; PITCH a multiple of 4. For THREADS threads, of which this is
 * number `thread`. */
template <int ROWS, int COLS, int PITCH, int THREADS, typename SUM>
__device__ __forceinline__ void lls__gemm_finish_tile(const lls__gemm_problem &p, const lls__gemm_tile &tile,
                                                      const SUM *sums, int thread) {
    int64_t bytes = lls__gemm_elem_size(p.out.dtype), rows = min((int64_t)ROWS, tile.row_end - tile.row);
    char *out = lls__gemm_base(&p.out, tile.batch, bytes);
    if (lls__gemm_stores_vectors(p, out, SUM())) {
#pragma unroll 1
        for (int i = thread; i < rows * (COLS / 8); i += THREADS) {
            int row = i / (COLS / 8), col = i % (COLS / 8) * 8;
            if (tile.col + col >= p.n) continue;
            float x[8];
            *(float4 *)x = *(const float4 *)(sums + row * PITCH + col);
            *(float4 *)(x + 4) = *(const float4 *)(sums + row * PITCH + col + 4);
            int64_t at = (tile.row + row) * p.out.row + tile.col + col;
            if (p.out.dtype == LLS_F16) lls__gemm_store_8((__half *)out + at, p.alpha, x);
            else if (p.out.dtype == LLS_BF16) lls__gemm_store_8((__nv_bfloat16 *)out + at, p.alpha, x);
            else lls__gemm_store_8((float *)out + at, p.alpha, x);
        }
        return;
    }
#pragma unroll 1
    for (int i = thread; i < rows * (COLS / 2); i += THREADS) {
        int row = i / (COLS / 2), col = i % (COLS / 2) * 2;
        const SUM *pair = sums + row * PITCH + col;
        lls__gemm_finish_pair(p, tile.batch, tile.row + row, tile.col + col, pair[0], pair[1]);
    }
}
