/* What rungs 06 and 07 share: a ring of stages that TMA fills and wgmma reads, and the way from the accumulators to out.
 *
 * A block has 128 x 128 of out, and two warpgroups that multiply, 64 rows each: 64 sums a thread. A stage holds 64 of k of
 * the tile's rows of a and columns of b, lines of 128 bytes in the swizzle that TMA writes and wgmma reads: 32 KB. Three
 * stages leave room for a second block on the multiprocessor. Step i of k passes through stage i % 3, whose barriers are then
 * in phase i / 3:
 *
 *     full    one arrival, and 32 KB: whole boxes count, and hold zeros where they reach past the matrix
 *     empty   an arrival of each warp that has read the stage (07; 06 has __syncthreads instead) */
#pragma once

#include "cuda/mbarrier.cuh"
#include "cuda/tma.cuh"
#include "cuda/wgmma.cuh"
#include "ops/gemm/gemm_kernels.h"
#include "ops/gemm/tile.cuh"

/* One block's view of the launch. */
struct lls__wgmma_block {
    enum {
        STAGES = LLS__WGMMA_STAGES,
        PIECE_BYTES = 64 * 128,      /* 64 lines: a warpgroup's rows of a, half of b's columns */
        PITCH = LLS__WGMMA_TILE + 8, /* of sums: rows 8 banks apart, so that 4 pairs of 4 rows hit 32 different ones */
    };
    static_assert(8 * 16 * PITCH * 4 <= STAGES * LLS__WGMMA_STAGE_BYTES, "the sums take the place of the stages");

    const lls__gemm_problem &p;
    const CUtensorMap &map_a, &map_b;
    char *shared; /* the ring, its barriers; at the end the sums */
    lls__gemm_tile tile;
    int32_t steps; /* stages that k takes */
    uint32_t ring; /* `shared` as an address of shared memory */

    __device__ __forceinline__ lls__wgmma_block(const lls__gemm_problem &problem, const CUtensorMap &a,
                                                const CUtensorMap &b, char *memory)
        : p(problem), map_a(a), map_b(b), shared(memory), ring(lls__shared_address(memory)) {
        steps = (int32_t)((p.k + LLS__WGMMA_DEPTH - 1) / LLS__WGMMA_DEPTH);
        lls__gemm_tile_at<LLS__WGMMA_TILE, LLS__WGMMA_TILE>(p, blockIdx.x, 8, &tile);
    }
    __device__ __forceinline__ uint32_t a(int32_t step) const {
        return ring + step % STAGES * LLS__WGMMA_STAGE_BYTES;
    }
    __device__ __forceinline__ uint32_t b(int32_t step) const {
        return a(step) + LLS__WGMMA_STAGE_BYTES / 2;
    }
    __device__ __forceinline__ uint32_t full(int32_t step) const {
        return ring + STAGES * LLS__WGMMA_STAGE_BYTES + step % STAGES * 8;
    }
    __device__ __forceinline__ uint32_t empty(int32_t step) const {
        return full(step) + STAGES * 8;
    }
    __device__ __forceinline__ uint32_t parity(int32_t step) const {
        return step / STAGES & 1;
    }

    /* One thread; the stage is free. */
    __device__ __forceinline__ void load(int32_t step) const {
        int32_t k = step * LLS__WGMMA_DEPTH, batch = (int32_t)tile.batch;
        lls__mbarrier_expect(full(step), LLS__WGMMA_STAGE_BYTES);
        lls__tma_load(a(step), &map_a, full(step), k, (int32_t)tile.row, p.a.batch ? batch : 0);
        lls__tma_load(b(step), &map_b, full(step), k, (int32_t)tile.col, p.b.batch ? batch : 0);
    }

    /* A warpgroup; the stage is full. Begins to add the step's products to the sums, in four instructions of 16 of k. */
    template <lls__wgmma_type type>
    __device__ __forceinline__ void multiply(float (&sums)[64], int32_t step, int32_t warpgroup) const {
        lls__wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint64_t of_a = lls__wgmma_operand(a(step) + warpgroup * PIECE_BYTES + i * 32, PIECE_BYTES),
                     of_b = lls__wgmma_operand(b(step) + i * 32, PIECE_BYTES);
            lls__wgmma<type, LLS__K_MAJOR, LLS__K_MAJOR>(sums, of_a, of_b, step > 0 || i > 0);
        }
        lls__wgmma_commit();
    }

    /* All multiplying warps; the sums are complete. They change places in shared memory, where a row of out is a row: the
     * stages are not needed any more, once all have read them. */
    __device__ __forceinline__ void finish(const float (&sums)[64], int32_t warp) const {
        asm volatile("bar.sync 1, 256;" ::: "memory");
        int32_t lane = threadIdx.x % 32;
        float *room = (float *)shared + warp * 16 * PITCH, *to = room + lane / 4 * PITCH + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < LLS__WGMMA_TILE / 8; j++, to += 8) {
            *(float2 *)to = make_float2(sums[4 * j], sums[4 * j + 1]);
            *(float2 *)(to + 8 * PITCH) = make_float2(sums[4 * j + 2], sums[4 * j + 3]);
        }
        __syncwarp();
        lls__gemm_tile rows = tile;
        rows.row += warp * 16;
        lls__gemm_finish_tile<16, LLS__WGMMA_TILE, PITCH, 32>(p, rows, room, lane);
    }
};
