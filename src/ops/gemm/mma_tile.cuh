/* The body of 05_mma_sync: a block computes BM x BN tiles of out, each of its warps WM x WN of them. 05_mma_sync.cu has
 * the idea, mma_source.cuh the way of an operand. */
#pragma once

#include "cuda/mma.cuh"
#include "ops/gemm/gemm_kernels.h"
#include "ops/gemm/mma_source.cuh"

template <typename MMA_, int BM_, int BN_, int WM_, int WN_> struct lls__mma_shape {
    typedef MMA_ MMA;
    typedef typename MMA::sum_type sum;
    typedef sum sums[WM_ / 16][WN_ / 8][4]; /* of a warp, as mma.cuh deals them out to its threads */
    enum {
        BM = BM_,
        BN = BN_,
        WM = WM_,
        WN = WN_,
        WARPS_M = BM / WM,
        THREADS = WARPS_M * (BN / WN) * 32,
        DEPTH = LLS__ROW_BYTES / MMA::BYTES, /* of a step */
        PARTS = LLS__ROW_BYTES / 32,         /* of a step: one mma each */
        A_BYTES = BM * LLS__ROW_BYTES,       /* of a stage; b's part follows */
        STAGE_BYTES = A_BYTES + BN * LLS__ROW_BYTES,
        WAITS_EARLY = BN > 128, /* for copies: the branches then stand beside others; needs registers */
        PITCH = WN + 8, /* of sums: rows 8 banks apart, so that the 4 x 4 pairs of half a warp hit 32 different ones */
    };
};

/* Where a warp's sums go in shared memory. */
template <typename S> __device__ __forceinline__ typename S::sum *lls__mma_room(char *shared) {
    return (typename S::sum *)shared + threadIdx.x / 32 * (S::WM * S::PITCH);
}

/* How a stage is filled: in two halves, then `rest`, which ends the step; `left` is the depth from the step on, perhaps
 * below 1. This one copies without waiting. */
template <typename S, bool A_ACROSS, bool B_ACROSS> struct lls__mma_copies {
    lls__mma_source<S::MMA::BYTES, S::BM, S::THREADS, A_ACROSS> a;
    lls__mma_source<S::MMA::BYTES, S::BN, S::THREADS, B_ACROSS> b;

    __device__ __forceinline__ lls__mma_copies(const lls__gemm_operand &from_a, const lls__gemm_operand &from_b) {
        a.start(from_a), b.start(from_b);
    }
    template <int HALF> __device__ __forceinline__ void half(uint32_t stage, int64_t left) const {
        constexpr int OF_A = decltype(a)::CHUNKS / 2, OF_B = decltype(b)::CHUNKS / 2;
        a.template copy<HALF * OF_A, (HALF + 1) * OF_A>(stage, a.is_whole(left));
        b.template copy<HALF * OF_B, (HALF + 1) * OF_B>(stage + S::A_BYTES, b.is_whole(left));
    }
    __device__ __forceinline__ void rest(uint32_t stage, int64_t left) {
        if (left > 0 && !(a.is_whole(left) && b.is_whole(left))) {
            if (!a.is_whole(left)) a.copy_cut(stage, left);
            if (!b.is_whole(left)) b.copy_cut(stage + S::A_BYTES, left);
        }
        a.next_step(), b.next_step();
    }
};

/* And this one takes any operands, the stage at once. */
template <typename S> struct lls__mma_gathers {
    lls__gemm_operand a, b;

    __device__ __forceinline__ lls__mma_gathers(const lls__gemm_operand &from_a, const lls__gemm_operand &from_b)
        : a(from_a), b(from_b) {
    }
    template <int HALF> __device__ __forceinline__ void half(uint32_t, int64_t) const {
    }
    __device__ __forceinline__ void rest(uint32_t stage, int64_t left) {
        constexpr int BYTES = S::MMA::BYTES;
        if (left <= 0) return;
        a.depth = b.depth = left;
        lls__mma_gather<BYTES, S::BM, S::THREADS>(a, stage);
        lls__mma_gather<BYTES, S::BN, S::THREADS>(b, stage + S::A_BYTES);
        a.data += a.depth_stride * S::DEPTH * BYTES, b.data += b.depth_stride * S::DEPTH * BYTES;
    }
};

/* This thread's copies to the oldest stage have arrived. A barrier after it is for those of all threads; and then all have
 * read the stage before it. */
__device__ __forceinline__ void lls__ring_wait(int stages) {
    if (stages == 2) lls__cp_async_wait<0>();
    else if (stages == 3) lls__cp_async_wait<1>();
    else lls__cp_async_wait<2>();
}

/* f8: adds what a step of 128 of k summed up, which is one block of scales, to the sums of fp32. */
template <typename S>
__device__ __forceinline__ void lls__mma_promote(const lls__gemm_problem &p, const lls__gemm_tile &at, int64_t k,
                                                 typename S::sums &partial, typename S::sums &sums) {
    float scale_b = p.scale_b.blocks ? lls__gemm_scale_at(&p.scale_b, at.batch, min(at.col, p.n - 1), k) : 1;
#pragma unroll
    for (int i = 0; i < S::WM / 16; i++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int64_t row = min(at.row + i * 16 + half * 8 + threadIdx.x % 32 / 4, at.row_end - 1);
            float scale = scale_b * (p.scale_a.blocks ? lls__gemm_scale_at(&p.scale_a, at.batch, row, k) : 1);
#pragma unroll
            for (int j = 0; j < S::WN / 8; j++) {
#pragma unroll
                for (int e = half * 2; e < half * 2 + 2; e++) {
                    sums[i][j][e] = fmaf(partial[i][j][e], scale, sums[i][j][e]);
                    partial[i][j][e] = 0;
                }
            }
        }
    }
}

/* The sums of a warp to shared memory, [WM][PITCH]: in registers a thread's neighbours have other rows, there they are
 * neighbours in out. */
template <typename S>
__device__ __forceinline__ void lls__mma_put(const typename S::sums &sums, typename S::sum *room) {
    struct __align__(2 * sizeof(typename S::sum)) two {
        typename S::sum x, y;
    };
    int row = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < S::WM / 16; i++) {
#pragma unroll
        for (int j = 0; j < S::WN / 8; j++) {
            typename S::sum *to = room + (i * 16 + row) * S::PITCH + j * 8 + pair;
            *(two *)to = {sums[i][j][0], sums[i][j][1]};
            *(two *)(to + 8 * S::PITCH) = {sums[i][j][2], sums[i][j][3]};
        }
    }
    __syncwarp();
}

/* The product of the block's lines. `shared`: first the stages, at the end the sums of all warps. */
template <typename S, bool A_ACROSS, bool B_ACROSS, typename FILL>
__device__ __forceinline__ void lls__mma_product(const lls__gemm_problem &p, const lls__gemm_tile &at, FILL fill,
                                                 char *shared, int stages) {
    lls__mma_reader<A_ACROSS, false> reader_a;
    lls__mma_reader<B_ACROSS, true> reader_b;
    reader_a.start(threadIdx.x / 32 % S::WARPS_M * S::WM), reader_b.start(threadIdx.x / 32 / S::WARPS_M * S::WN);

    int64_t ahead = (stages - 1) * (int64_t)S::DEPTH;
    uint32_t ring = lls__shared_address(shared);
    uint32_t end = ring + stages * S::STAGE_BYTES, write = ring, read = ring;
    for (int64_t k = 0; k < ahead; k += S::DEPTH) {
        fill.template half<0>(write, p.k - k), fill.template half<1>(write, p.k - k), fill.rest(write, p.k - k);
        lls__cp_async_commit();
        write += S::STAGE_BYTES;
    }
    lls__ring_wait(stages);
    __syncthreads();

    // While a part is multiplied, the fragments of the next are read: those of b beside its own, those of a in their
    // place, each when its last product has started.
    uint32_t a[S::WM / 16][4], b[2][S::WN / 16][4];
#pragma unroll
    for (int i = 0; i < S::WM / 16; i++) reader_a.read(a[i], read, 0, i);
#pragma unroll
    for (int j = 0; j < S::WN / 16; j++) reader_b.read(b[0][j], read + S::A_BYTES, 0, j);
    typename S::sums sums = {}, partial = {};
    typename S::sums &target = S::MMA::IS_F8 ? partial : sums;
    // Of f8: block scales are part of the sum, however fast it shall be.
    bool each_step = !(p.flags & LLS_GEMM_FAST_ACCUM) || p.scale_a.blocks || p.scale_b.blocks;
    for (int64_t k = 0; k < p.k; k += S::DEPTH) {
#pragma unroll
        for (int part = 0; part < S::PARTS; part++) {
            int next = (part + 1) % S::PARTS;
            if (next == 0) { // of the next stage
                if (!S::WAITS_EARLY) lls__ring_wait(stages);
                __syncthreads();
                read += S::STAGE_BYTES;
                if (read == end) read = ring;
            }
#pragma unroll
            for (int j = 0; j < S::WN / 16; j++) reader_b.read(b[next % 2][j], read + S::A_BYTES, next, j);
            // All have left the stage of the step before: it is filled again.
            int64_t left = p.k - k - ahead;
            if (part == 0) fill.template half<0>(write, left);
            if (part == 1) fill.template half<1>(write, left);
            if (part == 2) {
                fill.rest(write, left);
                lls__cp_async_commit();
                if (S::WAITS_EARLY) lls__ring_wait(stages);
                write += S::STAGE_BYTES;
                if (write == end) write = ring;
            }
#pragma unroll
            for (int i = 0; i < S::WM / 16; i++) {
#pragma unroll
                for (int step = 0; step < S::WN / 8; step++) {
                    int j = i % 2 ? S::WN / 8 - 1 - step : step; // to and fro: neighbours share an operand
                    const uint32_t *column = b[part % 2][j / 2] + j % 2 * 2;
                    S::MMA::add(target[i][j], a[i], column[0], column[1]);
                }
                reader_a.read(a[i], read, next, i);
            }
        }
        if constexpr (S::MMA::IS_F8) {
            if (each_step || k + S::DEPTH >= p.k) lls__mma_promote<S>(p, at, k, partial, sums);
        }
    }
    __syncthreads(); // all have read their fragments: the stages may go
    lls__mma_put<S>(sums, lls__mma_room<S>(shared));
}

/* The same, by how the operands lie. */
template <typename S>
__device__ __forceinline__ void lls__mma_any_product(const lls__gemm_problem &p, const lls__gemm_tile &at,
                                                     const lls__gemm_operand &a, const lls__gemm_operand &b,
                                                     char *shared, int stages) {
    constexpr int BYTES = S::MMA::BYTES;
    if (!lls__mma_has_chunks<BYTES>(a) || !lls__mma_has_chunks<BYTES>(b)) {
        lls__mma_product<S, false, false>(p, at, lls__mma_gathers<S>(a, b), shared, stages);
        return;
    }
    bool a_across = lls__mma_across<BYTES>(a), b_across = lls__mma_across<BYTES>(b);
    if (!a_across && !b_across) {
        lls__mma_product<S, false, false>(p, at, lls__mma_copies<S, false, false>(a, b), shared, stages);
    }
    if constexpr (BYTES == 2) {
        if (!a_across && b_across) {
            lls__mma_product<S, false, true>(p, at, lls__mma_copies<S, false, true>(a, b), shared, stages);
        } else if (a_across && !b_across) {
            lls__mma_product<S, true, false>(p, at, lls__mma_copies<S, true, false>(a, b), shared, stages);
        } else if (a_across && b_across) {
            lls__mma_product<S, true, true>(p, at, lls__mma_copies<S, true, true>(a, b), shared, stages);
        }
    }
}

template <typename S>
__device__ __forceinline__ void lls__gemm_mma(const lls__gemm_problem &p, const lls__gemm_mma_config &config) {
    extern __shared__ __align__(1024) char shared[];
    constexpr int BYTES = S::MMA::BYTES;
    lls__gemm_tile tile;
    if (!lls__gemm_tile_at<S::BM, S::BN>(p, blockIdx.x, config.band, &tile)) return;
    lls__gemm_operand a = lls__gemm_lines_of_a(p, tile, BYTES), b = lls__gemm_lines_of_b(p, tile, BYTES);
    int warp = threadIdx.x / 32;
    tile.row += warp % S::WARPS_M * S::WM, tile.col += warp / S::WARPS_M * S::WN;
    lls__mma_any_product<S>(p, tile, a, b, shared, config.stages);
    lls__gemm_finish_tile<S::WM, S::WN, S::PITCH, 32>(p, tile, lls__mma_room<S>(shared), threadIdx.x % 32);
}

/* A kernel: name of its types, struct of mma.cuh, tile of a block, of a warp, blocks that an SM should hold. */
#define LLS__GEMM_MMA_KERNEL(types, mma, BM, BN, WM, WN, blocks)                                       \
    extern "C" __global__ void __launch_bounds__((BM / WM) * (BN / WN) * 32, blocks)                   \
        lls_gemm_05_mma_sync_##types##_##BM##x##BN(lls__gemm_problem p, lls__gemm_mma_config config) { \
        lls__gemm_mma<lls__mma_shape<lls__mma_##mma, BM, BN, WM, WN>>(p, config);                      \
    }
