/* The body of the Hopper rungs 08 to 10, which differ in the configurations that they allow (sm90_plan.c):
 *
 *   08_persistent  TMA, wgmma, a loading warpgroup beside multiplying ones, a block for each multiprocessor.
 *   09_cluster     blocks of a cluster load for each other. Saves L2 traffic, where that is the limit.
 *   10_split_k     blocks of a cluster share a tile's k, for products with fewer tiles than multiprocessors.
 *
 * Limits: 128 x 256 x 64 takes 1024 cycles of the tensor cores and brings 48 KB, of 64 bytes a cycle that a multiprocessor
 * takes in; 128 x 128 x 64 is at both limits, smaller tiles at the second. Large products are limited by power. Needs sm_90a.
 *
 * A block is a warpgroup that loads and `warpgroups` that multiply, each 64 x tile_n (times blocks_m) of the tile. They
 * meet at a ring of stages in shared memory; a stage holds 128 bytes of k of the tile's rows of a and columns of b:
 *
 *     loader       wait empty[s]; TMA a and b into stage s; they arrive at full[s]
 *     multipliers  wait full[s]; four wgmma steps; when the stage before is done, arrive at its empty
 *
 * Tiles are dealt to blocks in advance (unit = blockIdx, + gridDim, ...), so that the loader runs ahead into the next tile
 * while the multipliers store the last one. Sums are added in the order of k, in one accumulator, whatever m is: a row's
 * bits do not depend on its neighbours. */
#pragma once

#include "cuda/cluster.cuh"
#include "cuda/grid.cuh"
#include "cuda/mbarrier.cuh"
#include "cuda/tma.cuh"
#include "cuda/wgmma.cuh"
#include "ops/gemm/sm90.h"
#include "ops/gemm/sm90_store.cuh"

/* The position in the ring, and how often it has gone around. */
struct lls__sm90_ring {
    int32_t stage;
    uint32_t parity;
    __device__ __forceinline__ void advance(int32_t stages) {
        if (++stage == stages) stage = 0, parity ^= 1;
    }
};

/* One block's view of the launch. */
template <int tile_m_, int tile_n_, int warpgroups_> struct lls__sm90_block {
    static const int tile_m = tile_m_, tile_n = tile_n_, warpgroups = warpgroups_;
    static const int blocks_m = tile_m / 64 / warpgroups;
    static const int a_bytes = tile_m * LLS__SM90_STAGE_ROW, stage_bytes = a_bytes + tile_n * LLS__SM90_STAGE_ROW;

    const lls__sm90_params &params;
    uint32_t stages, staging, barriers; /* shared-memory addresses */
    const int32_t *table;               /* grouped: units before each group, in shared memory */
    int32_t rank, rank_m, rank_n, cluster;

    __device__ __forceinline__ lls__sm90_block(const lls__sm90_params &p, char *shared)
        : params(p), stages(lls__shared_address(shared)) {
        staging = stages + p.stages * stage_bytes;
        uint32_t staging_bytes = warpgroups * 2 * LLS__SM90_PANEL_BYTES;
        barriers = staging + staging_bytes;
        table = (const int32_t *)(shared + p.stages * stage_bytes + staging_bytes + 2 * LLS__SM90_MAX_STAGES * 8);
        cluster = p.cluster_m * p.cluster_n * p.split;
        rank = cluster > 1 ? lls__cluster_rank() : 0;
        rank_m = rank % p.cluster_m, rank_n = p.split > 1 ? 0 : rank / p.cluster_m;
    }
    __device__ __forceinline__ uint32_t full(int32_t s) const {
        return barriers + 8 * s;
    }
    __device__ __forceinline__ uint32_t empty(int32_t s) const {
        return barriers + 8 * (LLS__SM90_MAX_STAGES + s);
    }
    __device__ __forceinline__ uint32_t stage_a(int32_t s) const {
        return stages + s * stage_bytes;
    }
    __device__ __forceinline__ uint32_t stage_b(int32_t s) const {
        return stages + s * stage_bytes + a_bytes;
    }
    __device__ __forceinline__ int32_t units() const {
        return params.p.offsets ? table[params.p.batch] : params.units;
    }

    /* Walks `raster` rows of units together, column by column, so that the units in flight share rows and columns in L2. */
    __device__ __forceinline__ void place(int32_t unit, int32_t units_m, lls__sm90_tile *t) const {
        int32_t band = params.raster * params.units_n, first = unit / band * params.raster;
        int32_t height = min(units_m - first, params.raster), within = unit % band;
        int32_t unit_m = first + within % height, unit_n = within / height;
        t->row = (int64_t)(unit_m * params.cluster_m + rank_m) * tile_m;
        t->col = (int64_t)(unit_n * params.cluster_n + rank_n) * tile_n;
    }

    /* `group` remembers where the last search ended: units come in order. */
    __device__ __forceinline__ lls__sm90_tile tile(int32_t unit, int32_t *group) const {
        const lls__gemm_problem &p = params.p;
        lls__sm90_tile t;
        if (p.offsets) {
            while (unit >= table[*group + 1]) ++*group;
            lls__gemm_span rows = lls__gemm_rows(&p, *group);
            int32_t units_m = (table[*group + 1] - table[*group]) / params.units_n;
            place(unit - table[*group], units_m, &t);
            t.batch = *group, t.row += rows.begin, t.row_end = rows.end;
        } else {
            int32_t matrix = params.units_m * params.units_n;
            place(unit % matrix, params.units_m, &t);
            t.batch = unit / matrix, t.row_end = p.m;
        }
        // The parts of k are as equal as whole stages allow, and depend on k alone.
        int32_t part = params.split > 1 ? rank : 0;
        t.k_begin = (int32_t)((int64_t)params.k_steps * part / params.split);
        t.k_end = (int32_t)((int64_t)params.k_steps * (part + 1) / params.split);
        return t;
    }

    /* Whether the tile leaves by lls__sm90_exchange. A TMA store is cut at the end of the tensor, not of a group. */
    __device__ __forceinline__ bool exchanges(const lls__sm90_tile &t) const {
        return params.split > 1 || !params.tma_store || (params.p.offsets && t.row + tile_m > t.row_end);
    }

    // ---- Loading -----------------------------------------------------------------------------------------

    /* What this block loads of one operand, for itself or for the blocks of `to`: worked out once a tile, so that a stage
     * costs the loading thread little more than its two instructions. */
    struct source {
        const CUtensorMap *map;
        uint32_t offset;     /* in a stage */
        int32_t line, boxes; /* MN-major: boxes of 64 lines */
        int32_t batch;
        bool multicast;
        uint16_t to;
    };

    /* Of `lines` lines from `line` on, the part that falls to block `share` of `sharers`. */
    template <bool mn_major>
    static __device__ __forceinline__ source make_source(const CUtensorMap *map, int64_t line, int32_t lines,
                                                         int32_t batch, int32_t sharers, int32_t share, uint32_t to) {
        int32_t count = lines / sharers, first = share * count;
        return {map,
                (uint32_t)first * LLS__SM90_STAGE_ROW,
                (int32_t)line + first,
                mn_major ? count / 64 : 1,
                batch,
                sharers > 1,
                (uint16_t)to};
    }

    template <bool mn_major>
    static __device__ __forceinline__ void load(const source &from, uint32_t at, uint32_t barrier, int32_t k) {
        at += from.offset;
        for (int32_t i = 0; i < (mn_major ? from.boxes : 1); i++) {
            int32_t line = from.line + i * 64, x = mn_major ? line : k, y = mn_major ? k : line;
            uint32_t address = at + i * 64 * LLS__SM90_STAGE_ROW;
            if (from.multicast) lls__tma_load_multicast(address, from.map, barrier, x, y, from.batch, from.to);
            else lls__tma_load(address, from.map, barrier, x, y, from.batch);
        }
    }

    /* One thread. */
    template <typename Family>
    __device__ __forceinline__ void load_tile(const lls__sm90_tile &t, lls__sm90_ring *ring) const {
        const lls__sm90_params &p = params;
        // Blocks with the same rows share a, those with the same columns share b.
        uint32_t row_mates = 0, col_mates = ((1u << p.cluster_m) - 1) << (p.cluster_m * rank_n);
        for (int32_t j = 0; j < p.cluster_n; j++) row_mates |= 1u << (rank_m + p.cluster_m * j);
        const source a = make_source<Family::a_mn>(&p.a, t.row, tile_m, p.a_batched ? (int32_t)t.batch : 0, p.cluster_n,
                                                   rank_n, row_mates),
                     b = make_source<Family::b_mn>(&p.b, t.col, tile_n, p.b_batched ? (int32_t)t.batch : 0, p.cluster_m,
                                                   rank_m, col_mates);
        const int32_t num_stages = p.stages;
        int32_t k = t.k_begin * Family::elems;
        for (int32_t steps = t.k_end - t.k_begin; steps > 0; steps--, k += Family::elems) {
            int32_t s = ring->stage;
            lls__mbarrier_wait(empty(s), ring->parity ^ 1);
            lls__mbarrier_expect(full(s), stage_bytes);
            load<Family::a_mn>(a, stage_a(s), full(s), k);
            load<Family::b_mn>(b, stage_b(s), full(s), k);
            ring->advance(num_stages);
        }
    }

    // ---- Multiplying -------------------------------------------------------------------------------------

    /* This warpgroup has read stage s: tells everyone who loads into it. */
    __device__ __forceinline__ void release(int32_t s, int32_t thread) const {
        if (cluster == params.split) { // nobody shares
            if (thread == 0) lls__mbarrier_arrive(empty(s));
        } else if (thread < cluster) {
            lls__mbarrier_arrive_at(empty(s), thread);
        }
    }

    /* Descriptors of this warpgroup's rows of a, and of b, in stage s, at step `step` of its 4. */
    __device__ __forceinline__ uint64_t operand_a(int32_t s, int32_t warpgroup, int block, int step, bool mn) const {
        uint32_t at = stage_a(s) + (warpgroup * blocks_m + block) * 64 * LLS__SM90_STAGE_ROW;
        return lls__wgmma_operand(at + step * (mn ? 16 * LLS__SM90_STAGE_ROW : 32), 64 * LLS__SM90_STAGE_ROW);
    }
    __device__ __forceinline__ uint64_t operand_b(int32_t s, int step, bool mn) const {
        return lls__wgmma_operand(stage_b(s) + step * (mn ? 16 * LLS__SM90_STAGE_ROW : 32), 64 * LLS__SM90_STAGE_ROW);
    }

    template <typename Family, typename Sum>
    __device__ __forceinline__ void multiply_stage(Sum (&sums)[blocks_m][tile_n / 2], int32_t s, int32_t warpgroup,
                                                   bool keep) const {
        lls__wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; step++) {
            uint64_t b = operand_b(s, step, Family::b_mn);
#pragma unroll
            for (int block = 0; block < blocks_m; block++)
                Family::multiply(sums[block], operand_a(s, warpgroup, block, step, Family::a_mn), b, keep || step > 0);
        }
        lls__wgmma_commit();
    }

    /* One stage is always under way while the next is awaited. */
    template <typename Family, typename Sum>
    __device__ __forceinline__ void multiply_tile(const lls__sm90_tile &t, lls__sm90_ring *ring,
                                                  Sum (&sums)[blocks_m][tile_n / 2], int32_t warpgroup,
                                                  int32_t thread) const {
        int32_t before = -1;
        for (int32_t k = t.k_begin; k < t.k_end; k++) {
            int32_t s = ring->stage;
            lls__mbarrier_wait(full(s), ring->parity);
            multiply_stage<Family>(sums, s, warpgroup, k > t.k_begin);
            lls__wgmma_wait<1>();
            if (before >= 0) release(before, thread);
            before = s;
            ring->advance(params.stages);
        }
        lls__wgmma_wait<0>();
        if (before >= 0) release(before, thread);
    }

    /* The same with fp32 sums apart from the tensor core's, which keep some 14 bits of f8 products: they take over after every
     * stage, 128 of k, with the block scales. A warpgroup then waits for its products, while the other one multiplies. */
    template <typename Family>
    __device__ __forceinline__ void multiply_tile_promoted(const lls__sm90_tile &t, lls__sm90_ring *ring,
                                                           float (&sums)[blocks_m][tile_n / 2], int32_t warpgroup,
                                                           int32_t thread) const {
        const lls__gemm_problem &p = params.p;
        static_assert(blocks_m == 1, "one block of rows a warpgroup");
        int64_t upper = min(t.row + warpgroup * 64 + thread / 32 * 16 + thread % 32 / 4, p.m - 1),
                lower = min(upper + 8, p.m - 1), col = min(t.col, p.n - 1);
#pragma unroll
        for (int i = 0; i < tile_n / 2; i++) sums[0][i] = 0;
        for (int32_t k = t.k_begin; k < t.k_end; k++) {
            float part[1][tile_n / 2];
            int32_t s = ring->stage;
            float scale_b = p.scale_b.blocks ? lls__gemm_scale_at(&p.scale_b, t.batch, col, k * Family::elems) : 1;
            float scale[2] = {scale_b, scale_b};
            if (p.scale_a.blocks) {
                scale[0] *= lls__gemm_scale_at(&p.scale_a, t.batch, upper, k * Family::elems);
                scale[1] *= lls__gemm_scale_at(&p.scale_a, t.batch, lower, k * Family::elems);
            }
            lls__mbarrier_wait(full(s), ring->parity);
            multiply_stage<Family>(part, s, warpgroup, false);
            lls__wgmma_wait<0>();
            release(s, thread);
            ring->advance(params.stages);
#pragma unroll
            for (int i = 0; i < tile_n / 2; i++) sums[0][i] = fmaf(part[0][i], scale[i / 2 % 2], sums[0][i]);
        }
    }

    /* All threads of the cluster. */
    __device__ __forceinline__ void sync() const {
        if (cluster > 1) lls__cluster_sync();
        else __syncthreads();
    }
    __device__ __forceinline__ void meet() const {
        if (cluster > 1) lls__cluster_meet();
        else __syncthreads();
    }

    // ---- Setting up --------------------------------------------------------------------------------------

    __device__ __forceinline__ void init_barriers() const {
        // Without sharing, only this block's warpgroups release a stage.
        int32_t releasers = warpgroups * (cluster / params.split);
        for (int32_t s = 0; s < params.stages; s++) {
            lls__mbarrier_init(full(s), 1);
            lls__mbarrier_init(empty(s), releasers);
        }
        lls__mbarrier_fence_init();
    }

    /* One warp. The units of the groups before each group. */
    __device__ __forceinline__ void make_table() const {
        const lls__gemm_problem &p = params.p;
        int32_t *units = (int32_t *)table, lane = threadIdx.x % 32, total = 0;
        for (int32_t first = 0; first < p.batch; first += 32) {
            int32_t group = first + lane, own = 0;
            if (group < p.batch) {
                lls__gemm_span rows = lls__gemm_rows(&p, group);
                int32_t rows_a_unit = tile_m * params.cluster_m;
                own = (int32_t)((rows.end - rows.begin + rows_a_unit - 1) / rows_a_unit) * params.units_n;
            }
            int32_t sum = own;
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                int32_t lower = __shfl_up_sync(~0u, sum, step);
                if (lane >= step) sum += lower;
            }
            if (group < p.batch) units[group] = total + sum - own;
            total += __shfl_sync(~0u, sum, 31);
        }
        if (lane == 0) units[p.batch] = total;
    }
};

/* The long way out, for a tile that more than one block works on or that wants more than a factor. Each block puts its sums
 * into shared memory, in the order of the accumulators; block r of the `split` that share the tile adds up columns
 * [r, r + 1) * tile_n / split of them all, in the order of k, and writes them. The ring serves as the memory: it is free,
 * since meanwhile the loaders of the cluster wait in lls__sm90_exchange_idle. */
template <typename Block, typename Sum>
__device__ __forceinline__ void
lls__sm90_exchange(const Block &block, const Sum (&sums)[Block::blocks_m][Block::tile_n / 2], const lls__sm90_tile &t,
                   lls__sm90_writer *writer, int32_t warpgroup, int32_t thread) {
    const int threads = 128 * Block::warpgroups, quads = Block::tile_n / 8;
    uint32_t own = block.stages +
                   (warpgroup * 128 + thread) * 16;            // quad q of block b: (b * quads + q) * threads * 16 on
    asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory"); // all have multiplied
#pragma unroll
    for (int b = 0; b < Block::blocks_m; b++) {
#pragma unroll
        for (int i = 0; i < quads; i++) {
            const Sum *q = &sums[b][4 * i];
            asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(own + (b * quads + i) * threads * 16),
                         "r"(lls__sm90_bits(q[0])), "r"(lls__sm90_bits(q[1])), "r"(lls__sm90_bits(q[2])),
                         "r"(lls__sm90_bits(q[3]))
                         : "memory");
        }
    }
    block.sync();
    const int32_t split = block.params.split, part = split > 1 ? block.rank : 0, panels = Block::tile_n / 32 / split;
    const int32_t first = split > 1 ? 0 : block.rank; // whose sums come first
#pragma unroll 1
    for (int32_t i = 0; i < Block::blocks_m * panels; i++) {
        int32_t b = i / panels, col = (part * panels + i % panels) * 32;
        Sum panel[16] = {0};
#pragma unroll 2 // loads on their way
        for (int32_t r = 0; r < split; r++) {
            float4 more[4];
#pragma unroll
            for (int q = 0; q < 4; q++)
                more[q] = lls__cluster_load(own + (b * quads + col / 8 + q) * threads * 16, first + r);
#pragma unroll
            for (int q = 0; q < 4; q++) {
                lls__sm90_add(panel[4 * q], more[q].x), lls__sm90_add(panel[4 * q + 1], more[q].y);
                lls__sm90_add(panel[4 * q + 2], more[q].z), lls__sm90_add(panel[4 * q + 3], more[q].w);
            }
        }
        writer->write_any(panel, t.batch, t.row + (warpgroup * Block::blocks_m + b) * 64, t.row_end, t.col + col);
    }
    lls__tma_fence(); // TMA fills the ring again
    block.meet();
}
template <typename Block> __device__ __forceinline__ void lls__sm90_exchange_idle(const Block &block) {
    block.sync();
    block.meet();
}

/* Family (sm90_family.cuh): sum, the type of the accumulators; elems of k a stage; a_mn, b_mn; multiply, one step. */
template <typename Family, int tile_m, int tile_n>
__device__ __forceinline__ void lls__gemm_sm90(const lls__sm90_params &params) {
    typedef lls__sm90_block<tile_m, tile_n, LLS__SM90_WARPGROUPS(tile_m)> Block;
    typedef typename Family::sum Sum;
    extern __shared__ __align__(1024) char shared[];
    const Block block(params, shared);
    // From lane 0, so that the compiler sees that a warp goes one way.
    int32_t warp = __shfl_sync(~0u, threadIdx.x / 32, 0), warpgroup = warp / 4 - 1, thread = threadIdx.x % 128;
    if (threadIdx.x == 0) {
        lls__tma_prefetch(&params.a), lls__tma_prefetch(&params.b);
        block.init_barriers();
    }
    lls__grid_wait();
    lls__grid_release();
    if (params.p.offsets && warp == 0) block.make_table();
    __syncthreads();
    if (block.cluster > 1) lls__cluster_meet();

    lls__sm90_ring ring = {0, 0};
    int32_t group = 0, first = blockIdx.x / block.cluster, step = gridDim.x / block.cluster, units = block.units();
    if (warpgroup < 0) {
        if (Block::warpgroups == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        for (int32_t unit = first; unit < units; unit += step) {
            lls__sm90_tile t = block.tile(unit, &group);
            if (threadIdx.x == 0) block.template load_tile<Family>(t, &ring);
            __syncwarp();
            if (block.exchanges(t)) lls__sm90_exchange_idle(block);
        }
    } else {
        if (Block::warpgroups == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        lls__sm90_writer writer(params, block.staging, warpgroup, thread);
        for (int32_t unit = first; unit < units; unit += step) {
            Sum sums[Block::blocks_m][tile_n / 2];
            lls__sm90_tile t = block.tile(unit, &group);
            if constexpr (Family::promoted)
                block.template multiply_tile_promoted<Family>(t, &ring, sums, warpgroup, thread);
            else block.template multiply_tile<Family>(t, &ring, sums, warpgroup, thread);
            if (block.exchanges(t)) {
                lls__sm90_exchange(block, sums, t, &writer, warpgroup, thread);
            } else {
#pragma unroll
                for (int b = 0; b < Block::blocks_m; b++)
                    writer.write(sums[b], t, (warpgroup * Block::blocks_m + b) * 64);
            }
        }
        writer.finish();
    }
    if (block.cluster > 1)
        lls__cluster_sync(); // nobody leaves while others still load into it or arrive at its barriers
}
