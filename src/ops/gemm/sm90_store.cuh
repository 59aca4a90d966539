/* From the accumulators of a warpgroup (layout: cuda/wgmma.cuh) to out, 64 rows at a time, by way of panels in shared memory:
 * 64 rows of 128 bytes with TMA's 128-byte swizzle.
 *
 * Where out wants nothing but a factor and TMA reaches it, a panel holds out's own type and TMA stores it while the next one
 * is filled: two panels at a time. Everything else goes through a panel of the sums as they are, from which each thread
 * takes 16 neighbouring columns through the epilogue. */
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

struct lls__sm90_writer {
    const lls__sm90_params &params;
    uint32_t panels; /* shared-memory address of this warpgroup's two */
    int32_t barrier; /* the warpgroup's own */
    int32_t thread;
    float factor;

    __device__ __forceinline__ lls__sm90_writer(const lls__sm90_params &p, uint32_t staging, int32_t warpgroup,
                                                int32_t thread_of_128)
        : params(p), panels(staging + warpgroup * 2 * LLS__SM90_PANEL_BYTES), barrier(2 + warpgroup),
          thread(thread_of_128) {
        factor = p.p.alpha;
        if (p.tma_store && p.p.scale_a.data) factor *= *p.p.scale_a.data;
        if (p.tma_store && p.p.scale_b.data) factor *= *p.p.scale_b.data;
    }

    __device__ __forceinline__ void sync() const {
        asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory");
    }
    /* Both panels may be filled: what was stored from them before is read. */
    __device__ __forceinline__ void open_panels() const {
        if (thread == 0) lls__tma_store_wait_read<0>();
        sync();
    }
    /* Panels of `cols` columns each, the first `count` of them. */
    __device__ __forceinline__ void store_panels(int32_t count, int32_t cols, int64_t batch, int64_t row,
                                                 int64_t col) const {
        lls__tma_fence();
        sync();
        if (thread != 0) return;
        for (int32_t i = 0; i < count; i++)
            lls__tma_store(&params.out, panels + i * LLS__SM90_PANEL_BYTES, (int32_t)col + i * cols, (int32_t)row,
                           (int32_t)batch);
        lls__tma_store_commit();
    }
    __device__ __forceinline__ void finish() const {
        if (thread == 0) lls__tma_store_wait();
    }

    // ---- Plain -------------------------------------------------------------------------------------------

    /* Four 8 x 8 blocks of 16-bit elements, one row of one block's address from each lane. */
    static __device__ __forceinline__ void store_matrices(uint32_t at, const uint32_t (&r)[4]) {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(r[0]), "r"(r[1]),
                     "r"(r[2]), "r"(r[3])
                     : "memory");
    }

    /* 64 columns from `first` on; first is known at compile time. */
    template <int count>
    __device__ __forceinline__ void fill_panel_16bit(uint32_t panel, const float (&sums)[count], int first) const {
        int32_t lane = thread % 32, line = thread / 32 * 16 + lane % 16; // row of the panel that this lane addresses
#pragma unroll
        for (int chunk = 0; chunk < 8; chunk += 2) { // of 8 columns, two at a time
            uint32_t words[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int element = (first / 8 + chunk) * 4 + 2 * i;
                words[i] = lls__gemm_pack_16bit(params.p.out.dtype, factor * sums[element], factor * sums[element + 1]);
            }
            store_matrices(panel + line * 128 + (((chunk + lane / 16) ^ (line & 7)) << 4), words);
        }
    }

    template <int count>
    __device__ __forceinline__ void write_16bit(const float (&sums)[count], int64_t batch, int64_t row,
                                                int64_t col) const {
#pragma unroll
        for (int first = 0; first < 2 * count; first += 128) {
            const bool two = first + 64 < 2 * count;
            open_panels();
            fill_panel_16bit(panels, sums, first);
            if (two) fill_panel_16bit(panels + LLS__SM90_PANEL_BYTES, sums, first + 64);
            store_panels(1 + two, 64, batch, row, col + first);
        }
    }

    static __device__ __forceinline__ float scaled(float sum, float by) {
        return sum * by;
    }
    static __device__ __forceinline__ int32_t scaled(int32_t sum, float) {
        return sum; // alpha is 1
    }

    /* 32 columns from `first` on; first is known at compile time. */
    template <typename Sum, int count>
    __device__ __forceinline__ void fill_panel(uint32_t panel, const Sum (&sums)[count], int first, float by) const {
        int32_t lane = thread % 32, line = thread / 32 * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < 8; i++) { // 4 groups of 8 columns, upper and lower rows
            int group = i / 2, low = i % 2, element = (first / 8 + group) * 4 + 2 * low;
            uint32_t at = panel + (line + 8 * low) * 128 + (((2 * group + lane % 4 / 2) ^ (line & 7)) << 4) +
                          lane % 2 * 8;
            asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at), "r"(lls__sm90_bits(scaled(sums[element], by))),
                         "r"(lls__sm90_bits(scaled(sums[element + 1], by)))
                         : "memory");
        }
    }

    template <typename Sum, int count>
    __device__ __forceinline__ void write_32bit(const Sum (&sums)[count], int64_t batch, int64_t row,
                                                int64_t col) const {
#pragma unroll
        for (int first = 0; first < 2 * count; first += 64) {
            open_panels();
            fill_panel(panels, sums, first, factor);
            fill_panel(panels + LLS__SM90_PANEL_BYTES, sums, first + 32, factor);
            store_panels(2, 32, batch, row, col + first);
        }
    }

    __device__ __forceinline__ bool is_16bit() const {
        return params.p.out.dtype == LLS_F16 || params.p.out.dtype == LLS_BF16;
    }
    template <int count>
    __device__ __forceinline__ void write_typed(const float (&sums)[count], int64_t batch, int64_t row,
                                                int64_t col) const {
        if (is_16bit()) write_16bit(sums, batch, row, col);
        else write_32bit(sums, batch, row, col);
    }
    template <int count>
    __device__ __forceinline__ void write_typed(const int32_t (&sums)[count], int64_t batch, int64_t row,
                                                int64_t col) const {
        write_32bit(sums, batch, row, col);
    }

    /* 64 rows of the tile, from its row `first` on. */
    template <typename Sum, int count>
    __device__ __forceinline__ void write(const Sum (&sums)[count], const lls__sm90_tile &t, int32_t first) const {
        if (t.row + first < t.row_end && t.col < params.p.n)
            write_typed(sums, params.p.offsets ? 0 : t.batch, t.row + first, t.col);
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

    /* A thread: half a row of the panel. */
    template <typename Sum>
    __device__ __forceinline__ void finish_panel(uint32_t panel, int64_t batch, int64_t row, int64_t row_end,
                                                 int64_t col) const {
        const lls__gemm_problem &p = params.p;
        int32_t line = thread / 2, half = thread % 2;
        uint32_t at = panel + line * 128;
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

    /* 64 rows of 32 columns. */
    template <typename Sum>
    __device__ __forceinline__ void write_any(const Sum (&sums)[16], int64_t batch, int64_t row, int64_t row_end,
                                              int64_t col) const {
        if (row >= row_end || col >= params.p.n) return;
        open_panels();
        fill_panel(panels, sums, 0, 1);
        sync();
        finish_panel<Sum>(panels, batch, row, row_end, col);
    }
};
