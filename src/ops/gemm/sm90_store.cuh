/* From the accumulators of a warpgroup (layout: cuda/wgmma.cuh) to out, 64 rows at a time, by way of panels in shared memory:
 * 64 rows of 128 bytes with TMA's 128-byte swizzle.
 *
 * Where out wants nothing but a factor and TMA reaches it, a panel holds out's own type and TMA stores it while the next one
 * is filled. The columns that are left when a tile's are no multiple of a panel's make a narrower panel, without swizzle.
 * Where the sums are out's transpose (swapped), a panel holds 64 of their columns as its rows. Everything else goes through a
 * panel of the sums as they are, from which each thread takes 16 neighbouring columns through the epilogue. */
#pragma once

#include "cuda/mbarrier.cuh"
#include "cuda/tma.cuh"
#include "ops/gemm/epilogue_run.cuh"
#include "ops/gemm/sm90.h"

__device__ __forceinline__ uint32_t lls__sm90_bits(float x) {
    return __float_as_uint(x);
}
__device__ __forceinline__ uint32_t lls__sm90_bits(int32_t x) {
    return (uint32_t)x;
}
/* part: the bits of what is added. */
__device__ __forceinline__ void lls__sm90_add(float &sum, float part) {
    sum += part;
}
__device__ __forceinline__ void lls__sm90_add(int32_t &sum, float part) {
    sum = (int32_t)((uint32_t)sum + __float_as_uint(part));
}

struct lls__sm90_tile {
    int64_t batch;          /* matrix of the batch, or group */
    int64_t row, col;       /* of out */
    int64_t row_end;        /* past the last row that this tile may write */
    int32_t k_begin, k_end; /* stages */
};

/* num_panels: that the warpgroup has. */
template <int num_panels> struct lls__sm90_writer {
    const lls__sm90_params &params;
    uint32_t panels; /* shared-memory address of this warpgroup's */
    int32_t barrier; /* the warpgroup's own */
    int32_t thread;
    float factor;

    __device__ __forceinline__ lls__sm90_writer(const lls__sm90_params &p, uint32_t staging, int32_t warpgroup,
                                                int32_t thread_of_128)
        : params(p), panels(staging + warpgroup * num_panels * LLS__SM90_PANEL_BYTES), barrier(2 + warpgroup),
          thread(thread_of_128) {
        factor = p.p.alpha;
        if (p.tma_store && p.p.scale_a.data) factor *= *p.p.scale_a.data;
        if (p.tma_store && p.p.scale_b.data) factor *= *p.p.scale_b.data;
    }

    __device__ __forceinline__ void sync() const {
        asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory");
    }
    /* The panels may be filled: what was stored from them before is read. */
    __device__ __forceinline__ void open_panels() const {
        if (thread == 0) lls__tma_store_wait_read<0>();
        sync();
    }
    __device__ __forceinline__ uint32_t panel(int i) const {
        return panels + i * LLS__SM90_PANEL_BYTES;
    }

    template <typename Sum, int parts, int count>
    static __device__ __forceinline__ Sum sum_at(const Sum (&sums)[parts][count], int element) {
        return sums[element / count][element % count];
    }

    // ---- Plain -------------------------------------------------------------------------------------------

    /* Four 8 x 8 blocks of 16-bit elements, one row of one block's address from each lane; transposed: one column's. */
    template <bool transposed>
    static __device__ __forceinline__ void store_matrices(uint32_t at, const uint32_t (&r)[4]) {
        if constexpr (transposed)
            asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(r[0]),
                         "r"(r[1]), "r"(r[2]), "r"(r[3])
                         : "memory");
        else
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(r[0]),
                         "r"(r[1]), "r"(r[2]), "r"(r[3])
                         : "memory");
    }

    /* `width` columns of the sums from `first` on, known at compile time. A panel that is not full has its rows packed; a
     * transposed one always has rows of 64. */
    template <bool transposed, int width, int parts, int count>
    __device__ __forceinline__ void fill_16bit(uint32_t panel, const float (&sums)[parts][count], int first) const {
        int32_t lane = thread % 32, warp = thread / 32, line = warp * 16 + lane % 16;
#pragma unroll
        for (int chunk = 0; chunk < width / 8; chunk += 2) { // of 8 columns, two at a time
            uint32_t words[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int element = (first / 8 + chunk) * 4 + 2 * i;
                words[i] = lls__gemm_pack_16bit(params.p.out.dtype, factor * sum_at(sums, element),
                                                factor * sum_at(sums, element + 1));
            }
            int32_t row = transposed ? chunk * 8 + lane / 16 * 8 + lane % 8 : line;
            int32_t piece = transposed ? warp * 2 + lane / 8 % 2 : chunk + lane / 16; // 16 bytes of the row
            bool swizzled = transposed || width == 64;
            store_matrices<transposed>(
                panel + row * (swizzled ? 128 : width * 2) + ((piece ^ (swizzled ? row & 7 : 0)) << 4), words);
        }
    }

    static __device__ __forceinline__ float scaled(float sum, float by) {
        return sum * by;
    }
    static __device__ __forceinline__ int32_t scaled(int32_t sum, float) {
        return sum; // alpha is 1
    }

    /* The same with 32-bit elements, of which a full panel holds 32 columns. */
    template <int width, bool packed, typename Sum, int parts, int count>
    __device__ __forceinline__ void fill_32bit(uint32_t panel, const Sum (&sums)[parts][count], int first,
                                               float by) const {
        int32_t lane = thread % 32, line = thread / 32 * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < width / 4; i++) { // groups of 8 columns, upper and lower rows
            int group = i / 2, low = i % 2, element = (first / 8 + group) * 4 + 2 * low;
            int32_t row = line + 8 * low, piece = 2 * group + lane % 4 / 2;
            uint32_t to = panel + row * (packed ? width * 4 : 128) + ((piece ^ (packed ? 0 : line & 7)) << 4);
            asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to + lane % 2 * 8),
                         "r"(lls__sm90_bits(scaled(sum_at(sums, element), by))),
                         "r"(lls__sm90_bits(scaled(sum_at(sums, element + 1), by)))
                         : "memory");
        }
    }

    /* The sums' columns [first, first + width) into a panel, as elements of elem_bytes. */
    template <bool swapped, int elem_bytes, int width, typename Sum, int parts, int count>
    __device__ __forceinline__ void fill(uint32_t panel, const Sum (&sums)[parts][count], int first) const {
        if constexpr (elem_bytes == 2) fill_16bit<swapped, width>(panel, sums, first);
        else fill_32bit<width, width != 32>(panel, sums, first, factor);
    }

    /* One thread: from the panel to out, where the sums' row and column 0 are `row` and `col`. */
    template <bool swapped, int width>
    __device__ __forceinline__ void store(const CUtensorMap &map, uint32_t panel, int64_t batch, int64_t row,
                                          int64_t col) const {
        if constexpr (swapped) {
#pragma unroll
            for (int i = 0; i < width; i += LLS__SM90_SWAPPED_ROWS)
                lls__tma_store(&map, panel + i * 128, (int32_t)row, (int32_t)col + i, (int32_t)batch);
        } else {
            lls__tma_store(&map, panel, (int32_t)col, (int32_t)row, (int32_t)batch);
        }
    }

    /* The first `rows` rows of a full panel, in 16-byte pieces, by all threads: TMA would store the next group's rows too. */
    template <int elem_bytes>
    __device__ __forceinline__ void store_rows(uint32_t panel, int32_t rows, int64_t row, int64_t col) const {
        const int elems = 16 / elem_bytes;
        const lls__gemm_matrix &out = params.p.out;
        int32_t piece = thread % 8;
        if (col + piece * elems >= params.p.n) return; // n is a multiple of a piece
        char *to = (char *)out.data + (lls__gemm_offset(&out, row, col) + piece * elems) * elem_bytes;
#pragma unroll
        for (int32_t line = thread / 8; line < 64; line += 16) {
            if (line >= rows) break;
            uint4 v;
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                         : "r"(panel + line * 128 + ((piece ^ (line & 7)) << 4)));
            *(uint4 *)(to + line * out.row * elem_bytes) = v;
        }
    }

    /* `rows` of the 64; fewer in the last tile of a group alone. */
    template <typename Family, int elem_bytes, typename Sum, int parts, int count>
    __device__ __forceinline__ void write_typed(const Sum (&sums)[parts][count], int32_t rows, int64_t batch,
                                                int64_t row, int64_t col) const {
        const int cols = 2 * parts * count, full = 128 / elem_bytes, rest = cols % full;
        const bool swapped = Family::swapped, masked = !Family::plain && rows < 64;
        static_assert(rest == 0 || Family::plain, "groups have full panels");
#pragma unroll
        for (int first = 0; first < cols; first += full * num_panels) {
            open_panels();
#pragma unroll
            for (int i = 0; i < num_panels; i++) {
                int begin = first + i * full;
                if (begin + full <= cols) fill<swapped, elem_bytes, full>(panel(i), sums, begin);
                else if constexpr (rest > 0)
                    if (begin < cols) fill<swapped, elem_bytes, rest>(panel(i), sums, begin);
            }
            if (!masked) lls__tma_fence();
            sync();
            if (masked) {
#pragma unroll
                for (int i = 0; i < num_panels; i++) {
                    int begin = first + i * full;
                    if (begin < cols) store_rows<elem_bytes>(panel(i), rows, row, col + begin);
                }
            } else if (thread == 0) {
#pragma unroll
                for (int i = 0; i < num_panels; i++) {
                    int begin = first + i * full;
                    if (begin + full <= cols) store<swapped, full>(params.out, panel(i), batch, row, col + begin);
                    else if constexpr (rest > 0)
                        if (begin < cols)
                            store<swapped, rest>(swapped ? params.out : params.out_rest, panel(i), batch, row,
                                                 col + begin);
                }
                lls__tma_store_commit();
            }
        }
    }

    /* Whether the tile leaves as it is. */
    __device__ __forceinline__ bool is_plain() const {
        return params.tma_store && params.split == 1;
    }

    /* 64 rows of a plain tile, from its row `first` on. */
    template <typename Family, typename Sum, int parts, int count>
    __device__ __forceinline__ void write(const Sum (&sums)[parts][count], const lls__sm90_tile &t,
                                          int32_t first) const {
        int64_t row = t.row + first, batch = params.p.offsets ? 0 : t.batch;
        if (row >= t.row_end || t.col >= params.p.n) return;
        // A TMA store is cut at the end of the tensor, not of a group.
        int32_t rows = params.p.offsets ? (int32_t)min(t.row_end - row, (int64_t)64) : 64;
        if constexpr (Family::swapped) write_typed<Family, 2>(sums, rows, batch, row, t.col);
        else write_plain<Family>(sums, rows, batch, row, t.col);
    }
    template <typename Family, int parts, int count>
    __device__ __forceinline__ void write_plain(const float (&sums)[parts][count], int32_t rows, int64_t batch,
                                                int64_t row, int64_t col) const {
        if (params.p.out.dtype == LLS_F32) write_typed<Family, 4>(sums, rows, batch, row, col);
        else write_typed<Family, 2>(sums, rows, batch, row, col);
    }
    template <typename Family, int parts, int count>
    __device__ __forceinline__ void write_plain(const int32_t (&sums)[parts][count], int32_t rows, int64_t batch,
                                                int64_t row, int64_t col) const {
        write_typed<Family, 4>(sums, rows, batch, row, col);
    }

    // ---- Everything else ---------------------------------------------------------------------------------

    __device__ __forceinline__ static void load_panel(uint32_t at, float (&x)[4], float) {
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                     : "r"(at));
    }
    __device__ __forceinline__ static void load_panel(uint32_t at, float (&x)[4], int32_t) {
        int32_t v[4];
        asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                     : "r"(at));
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = (float)v[i];
    }
    __device__ __forceinline__ static void load_pair(uint32_t at, float &x, float &y) {
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(at));
    }
    __device__ __forceinline__ static void load_pair(uint32_t at, int32_t &x, int32_t &y) {
        asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "r"(at));
    }

    /* 64 rows of 32 columns, from the first panel, which fill_32bit filled. A thread: half a row. */
    template <typename Sum>
    __device__ __forceinline__ void finish_panel(int64_t batch, int64_t row, int64_t row_end, int64_t col) const {
        const lls__gemm_problem &p = params.p;
        int32_t line = thread / 2, half = thread % 2;
        uint32_t at = panels + line * 128;
        row += line, col += half * 16;
        if (row >= row_end || col >= p.n) return;
        lls__gemm_run_pointers run;
        if (lls__gemm_find_run(p, batch, row, col, &run)) {
            float x[16];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float quad[4];
                load_panel(at + (((half * 4 + i) ^ (line & 7)) << 4), quad, Sum());
#pragma unroll
                for (int e = 0; e < 4; e++) x[4 * i + e] = quad[e];
            }
            lls__gemm_finish_run(p, run, batch, row, col, x);
            return;
        }
#pragma unroll 1
        for (int32_t i = 0; i < 16; i += 2) {
            Sum x, y;
            load_pair(at + (((half * 4 + i / 4) ^ (line & 7)) << 4) + i % 4 * 4, x, y);
            lls__gemm_finish_pair(p, batch, row, col + i, x, y);
        }
    }
};
