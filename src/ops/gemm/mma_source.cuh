/* One operand of 05_mma_sync on its way from global to shared memory, and from there to registers.
 *
 * A step takes LINES lines by 128 bytes of depth (tile.cuh says what those are). In shared memory that is a column of
 * panels, each 64 rows of 128 bytes, swizzled (swizzle.cuh):
 *   along    a row is a line, its 128 bytes are depth: operands whose depth is contiguous (a row-major, b column-major),
 *            and all that are gathered element by element, whatever their strides;
 *   across   16-bit operands whose lines are neighbours in memory: a row is one depth, its 128 bytes are 64 lines, and
 *            ldmatrix turns them.
 * The two differ in which axis is called row and which chunk (of 16 bytes), and in nothing else. */
#pragma once

#include "cuda/cp_async.cuh"
#include "cuda/ldmatrix.cuh"
#include "cuda/swizzle.cuh"
#include "ops/gemm/tile.cuh"

enum { LLS__PANEL_ROWS = 64, LLS__ROW_BYTES = 128, LLS__PANEL_BYTES = LLS__PANEL_ROWS * LLS__ROW_BYTES };

/* Whether an operand lies across; whether it has rows of 16-byte chunks, which cp.async takes. A single row need not have
 * a stride. */
template <int BYTES> __device__ __forceinline__ bool lls__mma_across(const lls__gemm_operand &x) {
    return BYTES == 2 && x.line_stride == 1 && x.depth_stride != 1;
}
template <int BYTES> __device__ __forceinline__ bool lls__mma_has_chunks(const lls__gemm_operand &x) {
    bool across = lls__mma_across<BYTES>(x);
    int64_t row_stride = across ? x.depth_stride : x.line_stride, rows = across ? x.depth : x.lines;
    return (across || x.depth_stride == 1) && (uint64_t)x.data % 16 == 0 && (rows <= 1 || row_stride * BYTES % 16 == 0);
}

/* What a thread keeps to fill its share of a step: CHUNKS chunks, THREADS / 8 rows apart. */
template <int BYTES, int LINES, int THREADS, bool ACROSS> struct lls__mma_source {
    enum {
        CHUNKS = LINES * 8 / THREADS,
        CHUNKS_PER_PANEL = LLS__PANEL_ROWS * 8 / THREADS,
        DEPTH = LLS__ROW_BYTES / BYTES,
    };
    const char *at;       /* the thread's chunk 0 of the step that is filled next */
    int64_t chunk_stride; /* bytes to the next one in the panel */
    int lines;            /* at most LINES */
    int valid;            /* chunks that are there, the others are never copied: their sums do not go to out */

    __device__ __forceinline__ void start(const lls__gemm_operand &x) {
        int64_t row_stride = (ACROSS ? x.depth_stride : x.line_stride) * BYTES;
        int row = threadIdx.x / 8, column = threadIdx.x % 8;
        at = x.data + row * row_stride + column * 16;
        chunk_stride = row_stride * (THREADS / 8);
        lines = (int)min(x.lines, (int64_t)LINES);
        valid = ACROSS ? (lines - column * 8 + 63) / 64 * CHUNKS_PER_PANEL
                       : (lines - row + THREADS / 8 - 1) / (THREADS / 8);
    }
    __device__ __forceinline__ void next_step() {
        at += ACROSS ? chunk_stride * CHUNKS_PER_PANEL : LLS__ROW_BYTES;
    }

    /* Whether whole chunks do, with depth_left from the step on. */
    __device__ __forceinline__ bool is_whole(int64_t depth_left) const {
        return depth_left >= DEPTH && !(ACROSS && lines % 8 != 0);
    }
    /* Starts to copy chunks FIRST to LAST - 1 of the step, if they are `wanted`: predicates, no branches, so that the
     * copies mix with products. */
    template <int FIRST, int LAST> __device__ __forceinline__ void copy(uint32_t stage, bool wanted) const {
        uint32_t to = stage + lls__swizzle_128(threadIdx.x / 8, threadIdx.x % 8);
        int count = wanted ? valid : 0;
#pragma unroll
        for (int i = FIRST; i < LAST; i++) {
            if (i < count) lls__cp_async_16(to + i * THREADS * 16, chunk(i));
        }
    }
    /* The same for all chunks, cut where the operand ends; past its depth there are zeros. Unrolled, although it runs once
     * a tile: in a loop that counts the address up, ptxas (CUDA 13.0) took what the loop had left in that register for the
     * stage, and b's chunks landed where nobody reads. */
    __device__ __forceinline__ void copy_cut(uint32_t stage, int64_t depth_left) const {
        uint32_t to = stage + lls__swizzle_128(threadIdx.x / 8, threadIdx.x % 8);
        int depth = (int)min(depth_left, (int64_t)DEPTH);
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) {
            int row = threadIdx.x / 8 + i % CHUNKS_PER_PANEL * (THREADS / 8); // of its panel
            int left = (ACROSS ? lines - i / CHUNKS_PER_PANEL * 64 : depth) * BYTES - (int)(threadIdx.x % 8) * 16;
            if (ACROSS && row >= depth) left = 0;
            if (i < valid) lls__cp_async_16(to + i * THREADS * 16, chunk(i), max(0, min(left, 16)));
        }
    }

  private:
    /* Along, rows go on from panel to panel; across, every panel has the same. */
    __device__ __forceinline__ const char *chunk(int i) const {
        return ACROSS ? at + i % CHUNKS_PER_PANEL * chunk_stride + i / CHUNKS_PER_PANEL * LLS__ROW_BYTES
                      : at + i * chunk_stride;
    }
};

/* An operand's part of a stage at once, along: any alignment and strides. `x` begins at this step. Chunks are copied where
 * there are any, else made of single elements, in an order in which threads are neighbours on the axis that is contiguous. */
template <int BYTES, int LINES, int THREADS>
__device__ __forceinline__ void lls__mma_gather(const lls__gemm_operand &x, uint32_t stage) {
    constexpr int DEPTH = LLS__ROW_BYTES / BYTES, PER_CHUNK = 16 / BYTES;
    int depth = (int)min(x.depth, (int64_t)DEPTH), lines = (int)min(x.lines, (int64_t)LINES);
    bool by_chunks = x.depth_stride == 1, copies = by_chunks && lls__mma_has_chunks<BYTES>(x);
#pragma unroll 1
    for (int i = threadIdx.x; i < LINES * 8; i += THREADS) {
        int line = by_chunks ? i / 8 : i % LINES, chunk = by_chunks ? i % 8 : i / LINES;
        int count = line < lines ? depth - chunk * PER_CHUNK : 0;
        const char *from = x.data + (line * x.line_stride + chunk * PER_CHUNK * x.depth_stride) * BYTES;
        uint32_t to = stage + lls__swizzle_128(line, chunk);
        if (copies) {
            lls__cp_async_16(to, from, max(0, min(count, PER_CHUNK)) * BYTES);
            continue;
        }
        int64_t element_bytes = x.depth_stride * BYTES;
        if constexpr (BYTES == 4) { // elements can be copied without waiting, too
#pragma unroll
            for (int e = 0; e < PER_CHUNK; e++) {
                lls__cp_async_4(to + e * 4, from + e * element_bytes, e < count ? 4 : 0);
            }
        } else {
            uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
            for (int e = 0; e < PER_CHUNK; e++) {
                if (e >= count) continue;
                const char *element = from + e * element_bytes;
                uint32_t bits = BYTES == 1 ? *(const uint8_t *)element : *(const uint16_t *)element;
                words[e * BYTES / 4] |= bits << (e * BYTES % 4 * 8);
            }
            lls__store_shared_16(to, words);
        }
    }
}

/* The fragments (mma.cuh) of a warp's lines, 16 at a time. Of a, number i is the fragment of lines 16 i to + 15; of b, its
 * halves are those of lines 16 i to + 7 and of the eight after. At most 64 lines: those of a panel. */
template <bool ACROSS, bool IS_B> struct lls__mma_reader {
    uint32_t thread; /* offset in a stage of the row that this thread points ldmatrix to, for i and part 0 */

    /* first_line: the warp's, a multiple of how many it has. The four matrices of a fragment are two times eight lines by two
     * chunks of depth. a counts the lines first, b the chunks. */
    __device__ __forceinline__ void start(uint32_t first_line) {
        uint32_t t = threadIdx.x % 32, first = t / 8 % 2, second = t / 16;
        uint32_t lines_8 = IS_B ? second : first, depth_chunk = IS_B ? first : second;
        if (ACROSS) {
            thread = first_line / 64 * LLS__PANEL_BYTES +
                     lls__swizzle_128(t % 8 + 8 * depth_chunk, first_line % 64 / 8 + lines_8);
        } else {
            thread = first_line * LLS__ROW_BYTES + lls__swizzle_128(t % 8 + 8 * lines_8, depth_chunk);
        }
    }

    /* Fragment i of depth 32 * part bytes of a step. Sixteen rows on is an addition, two chunks on an exclusive or. */
    __device__ __forceinline__ void read(uint32_t (&fragment)[4], uint32_t stage, int part, int i) const {
        if (ACROSS) {
            lls__ldmatrix_x4_transposed(fragment, ((stage + thread) ^ (i * 32)) + part * 16 * LLS__ROW_BYTES);
        } else {
            lls__ldmatrix_x4(fragment, ((stage + thread) ^ (part * 32)) + i * 16 * LLS__ROW_BYTES);
        }
    }
};
