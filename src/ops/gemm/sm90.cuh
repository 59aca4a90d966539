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
 *     loaders      of a, and of b: wait empty[s]; TMA into stage s; it arrives at full[s]
 *     multipliers  wait full[s]; four wgmma steps; when the stage before is done, arrive at its empty
 *
 * Tiles are dealt to blocks in advance (unit = blockIdx, + gridDim, ...), so that the loader runs ahead into the next tile
 * while the multipliers store the last one. Sums are added in the order of k, in one accumulator, whatever m is: unless k is
 * split, a row's bits do not depend on its neighbours. */
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
template <typename Family, int tile_m_, int tile_n_> struct lls__sm90_block {
    static const int tile_m = tile_m_, tile_n = tile_n_;
    static const int warpgroups = LLS__SM90_WARPGROUPS(tile_m), panels = LLS__SM90_PANELS(tile_m);
    static const int blocks_m = tile_m / 64 / warpgroups;                          /* of 64 rows, a warpgroup */
    static const int blocks_n = tile_n > 256 ? 2 : 1, block_n = tile_n / blocks_n; /* of what an instruction takes */
    static const int a_bytes = tile_m * LLS__SM90_STAGE_ROW, stage_bytes = a_bytes + tile_n * LLS__SM90_STAGE_ROW;
    typedef typename Family::sum Sum;
    typedef Sum Sums[blocks_m][blocks_n][block_n / 2];
    typedef lls__sm90_writer<panels> Writer;

    const lls__sm90_params &params;
    uint32_t stages, staging, barriers; /* shared-memory addresses */
    uint32_t operands;                  /* stages as descriptors take it: without the block's rank, above bit 24 */
    const int32_t *table;               /* grouped: units before each group, in shared memory */
    int32_t cluster, rank, rank_m, rank_n, split_rank;
    uint32_t row_mates, col_mates; /* blocks of the cluster that share a, that share b: bits */

    __device__ __forceinline__ lls__sm90_block(const lls__sm90_params &p, char *shared)
        : params(p), stages(lls__shared_address(shared)) {
        operands = stages & 0x3ffff;
        staging = stages + p.stages * stage_bytes;
        uint32_t staging_bytes = warpgroups * panels * LLS__SM90_PANEL_BYTES;
        barriers = staging + staging_bytes;
        table = (const int32_t *)(shared + p.stages * stage_bytes + staging_bytes + 2 * LLS__SM90_MAX_STAGES * 8);
        cluster = p.cluster_m * p.cluster_n * p.split;
        rank = rank_m = rank_n = split_rank = 0;
        row_mates = col_mates = 1;
        if (cluster == 1) return;
        if (p.split > 1) {
            split_rank = lls__cluster_rank();
            return; // it loads for itself alone
        }
        rank = lls__cluster_rank();
        rank_n = rank / p.cluster_m, rank_m = rank - rank_n * p.cluster_m;
        row_mates = 0, col_mates = ((1u << p.cluster_m) - 1) << (p.cluster_m * rank_n);
        for (int32_t j = 0; j < p.cluster_n; j++) row_mates |= 1u << (rank_m + p.cluster_m * j);
    }
    /* Whether it loads for others. */
    __device__ __forceinline__ bool shares() const {
        return cluster > params.split;
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
        int32_t size = params.raster * params.units_n, band = unit / size, within = unit - band * size;
        int32_t first = band * params.raster, height = min(units_m - first, params.raster);
        int32_t unit_n = within / height, unit_m = first + within - unit_n * height;
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
            t.batch = p.batch > 1 ? unit / matrix : 0, t.row_end = p.m;
            place(unit - (int32_t)t.batch * matrix, params.units_m, &t);
        }
        t.k_begin = 0, t.k_end = params.k_steps;
        if (params.split > 1) { // as equal as whole stages allow; depends on k alone
            t.k_begin = (int32_t)((int64_t)params.k_steps * split_rank / params.split);
            t.k_end = (int32_t)((int64_t)params.k_steps * (split_rank + 1) / params.split);
        }
        return t;
    }

    // ---- Loading -----------------------------------------------------------------------------------------

    /* What this block loads of one operand, for itself or for the blocks of `to`: worked out once a tile, so that a stage
     * costs the loading thread little more than its instruction. */
    struct source {
        const CUtensorMap *map;
        uint32_t offset;          /* in a stage */
        int32_t line, boxes, box; /* boxes of `box` lines */
        int32_t batch;
        bool multicast;
        uint16_t to;
    };

    /* Of an operand's lines from `line` on, the `count` that fall to block `share` of those that share them. */
    template <bool mn_major>
    static __device__ __forceinline__ source make_source(const CUtensorMap *map, int64_t line, int32_t count,
                                                         int32_t batch, int32_t share, uint32_t mates, uint32_t self) {
        source from;
        from.map = map, from.batch = batch, from.to = (uint16_t)mates, from.multicast = mates != self;
        from.offset = share * count * LLS__SM90_STAGE_ROW, from.line = (int32_t)line + share * count;
        from.boxes = mn_major ? count / 64 : count > 256 ? 2 : 1;
        from.box = mn_major ? 64 : count > 256 ? count / 2 : count;
        return from;
    }

    template <bool mn_major>
    static __device__ __forceinline__ void load(const source &from, uint32_t at, uint32_t barrier, int32_t k) {
        at += from.offset;
        for (int32_t i = 0; i < (mn_major || tile_n > 256 ? from.boxes : 1); i++) {
            int32_t line = from.line + i * from.box, x = mn_major ? line : k, y = mn_major ? k : line;
            uint32_t address = at + i * from.box * LLS__SM90_STAGE_ROW;
            if (from.multicast) lls__tma_load_multicast(address, from.map, barrier, x, y, from.batch, from.to);
            else lls__tma_load(address, from.map, barrier, x, y, from.batch);
        }
    }

    /* One thread loads a, another one b. */
    template <bool is_a>
    __device__ __forceinline__ void load_tile(const lls__sm90_tile &t, lls__sm90_ring *ring) const {
        const lls__sm90_params &p = params;
        const bool mn_major = is_a ? Family::a_mn : Family::b_mn;
        bool batched = is_a ? p.a_batched : p.b_batched;
        int32_t batch = batched ? (int32_t)t.batch : 0;
        const source from = is_a ? make_source<mn_major>(&p.a, t.row, p.a_lines, batch, rank_n, row_mates, 1u << rank)
                                 : make_source<mn_major>(&p.b, t.col, p.b_lines, batch, rank_m, col_mates, 1u << rank);
        const int32_t num_stages = p.stages;
        int32_t k = t.k_begin * Family::elems;
        for (int32_t steps = t.k_end - t.k_begin; steps > 0; steps--, k += Family::elems) {
            int32_t s = ring->stage;
            lls__mbarrier_wait(empty(s), ring->parity ^ 1);
            lls__mbarrier_expect(full(s), is_a ? a_bytes : stage_bytes - a_bytes);
            load<mn_major>(from, is_a ? stage_a(s) : stage_b(s), full(s), k);
            ring->advance(num_stages);
        }
    }

    // ---- Multiplying -------------------------------------------------------------------------------------

    /* This warpgroup has read stage s: tells everyone who loads into it. */
    __device__ __forceinline__ void release(int32_t s, int32_t thread) const {
        if (!shares()) {
            if (thread == 0) lls__mbarrier_arrive(empty(s));
        } else if (thread < cluster && (row_mates | col_mates) >> thread & 1) {
            lls__mbarrier_arrive_at(empty(s), thread);
        }
    }

    /* Descriptors of this warpgroup's rows of a, and of b, in stage s, at step `step` of its 4. */
    __device__ __forceinline__ uint64_t operand_a(int32_t s, int32_t warpgroup, int block, int step) const {
        uint32_t at = operands + s * stage_bytes + (warpgroup * blocks_m + block) * 64 * LLS__SM90_STAGE_ROW;
        return lls__wgmma_operand(at + step * (Family::a_mn ? 16 * LLS__SM90_STAGE_ROW : 32),
                                  Family::a_mn ? 64 * LLS__SM90_STAGE_ROW : 0);
    }
    __device__ __forceinline__ uint64_t operand_b(int32_t s, int block, int step) const {
        uint32_t at = operands + s * stage_bytes + a_bytes + block * block_n * LLS__SM90_STAGE_ROW;
        return lls__wgmma_operand(at + step * (Family::b_mn ? 16 * LLS__SM90_STAGE_ROW : 32),
                                  Family::b_mn ? 64 * LLS__SM90_STAGE_ROW : 0);
    }

    /* Starts step `step` of the 4 of stage s. */
    __device__ __forceinline__ void multiply_step(Sums &sums, int32_t s, int step, int32_t warpgroup, bool keep) const {
#pragma unroll
        for (int j = 0; j < blocks_n; j++) {
            uint64_t b = operand_b(s, j, step);
#pragma unroll
            for (int i = 0; i < blocks_m; i++) Family::multiply(sums[i][j], operand_a(s, warpgroup, i, step), b, keep);
        }
    }

    /* One stage is always under way while the next is awaited. */
    __device__ __forceinline__ void multiply_tile(const lls__sm90_tile &t, lls__sm90_ring *ring, Sums &sums,
                                                  int32_t warpgroup, int32_t thread) const {
        int32_t before = -1;
        for (int32_t k = t.k_begin; k < t.k_end; k++) {
            int32_t s = ring->stage;
            lls__mbarrier_wait(full(s), ring->parity);
            lls__wgmma_fence();
#pragma unroll
            for (int step = 0; step < 4; step++) multiply_step(sums, s, step, warpgroup, k > t.k_begin || step > 0);
            lls__wgmma_commit();
            lls__wgmma_wait<1>();
            if (before >= 0) release(before, thread);
            before = s;
            ring->advance(params.stages);
        }
        lls__wgmma_wait<0>();
        if (before >= 0) release(before, thread);
    }

    /* Two warpgroups take turns at starting a stage's products, so that one adds up while the other's are under way. */
    static __device__ __forceinline__ void await_turn(int32_t warpgroup) {
        if (warpgroups == 2) asm volatile("bar.sync %0, 256;" ::"r"(5 + warpgroup) : "memory");
    }
    static __device__ __forceinline__ void pass_turn(int32_t warpgroup) {
        if (warpgroups == 2) asm volatile("bar.arrive %0, 256;" ::"r"(6 - warpgroup) : "memory");
    }

    /* The same with fp32 sums apart from the tensor core's, which keep some 14 bits of f8 products: they take over after every
     * stage, 128 of k, with the block scales. */
    __device__ __forceinline__ void multiply_tile_promoted(const lls__sm90_tile &t, lls__sm90_ring *ring, Sums &sums,
                                                           int32_t warpgroup, int32_t thread) const {
        const lls__gemm_problem &p = params.p;
        static_assert(blocks_m * blocks_n == 1, "one block a warpgroup");
        int64_t upper = min(t.row + warpgroup * 64 + thread / 32 * 16 + thread % 32 / 4, p.m - 1),
                lower = min(upper + 8, p.m - 1), col = min(t.col, p.n - 1);
#pragma unroll
        for (int i = 0; i < tile_n / 2; i++) sums[0][0][i] = 0;
        for (int32_t k = t.k_begin; k < t.k_end; k++) {
            Sums part;
            int32_t s = ring->stage;
            float scale[2] = {1, 1};
            if constexpr (tile_n == LLS__GEMM_BLOCK) { // other tiles are for calls without block scales
                if (p.scale_b.blocks)
                    scale[0] = scale[1] = lls__gemm_scale_at(&p.scale_b, t.batch, col, k * Family::elems);
                if (p.scale_a.blocks) {
                    scale[0] *= lls__gemm_scale_at(&p.scale_a, t.batch, upper, k * Family::elems);
                    scale[1] *= lls__gemm_scale_at(&p.scale_a, t.batch, lower, k * Family::elems);
                }
            }
            lls__mbarrier_wait(full(s), ring->parity);
            await_turn(warpgroup);
            lls__wgmma_fence();
#pragma unroll
            for (int step = 0; step < 3; step++) multiply_step(part, s, step, warpgroup, step > 0);
            lls__wgmma_commit();
            multiply_step(part, s, 3, warpgroup, true);
            lls__wgmma_commit();
            lls__wgmma_wait<1>(); // the other's begin when the last of these does
            pass_turn(warpgroup);
            lls__wgmma_wait<0>();
            release(s, thread);
            ring->advance(params.stages);
#pragma unroll
            for (int i = 0; i < tile_n / 2; i++) sums[0][0][i] = fmaf(part[0][0][i], scale[i / 2 % 2], sums[0][0][i]);
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
        int32_t releasers = warpgroups * __popc(row_mates | col_mates);
        for (int32_t s = 0; s < params.stages; s++) {
            lls__mbarrier_init(full(s), 2); // the loaders of a and b
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

/* The way out of a tile that wants more than a factor, or whose k several blocks share: 32 columns after another.
 *
 * Where k is shared, each block first puts its sums into shared memory, in the order of the accumulators; block r of the
 * `split` then adds up columns [r, r + 1) * tile_n / split of them all, in the order of k. The ring serves as the memory: it
 * is free, since meanwhile the loaders of the cluster wait in lls__sm90_finish_idle. */
template <typename Block>
__device__ __forceinline__ void lls__sm90_finish(const Block &block, const typename Block::Sums &sums,
                                                 const lls__sm90_tile &t, const typename Block::Writer &writer,
                                                 int32_t warpgroup, int32_t thread) {
    typedef typename Block::Sum Sum;
    const int threads = 128 * Block::warpgroups, quads = Block::tile_n / 8, panels = Block::tile_n / 32;
    static_assert(Block::tile_n % 32 == 0, "whole panels");
    const int32_t split = block.params.split;
    // Quad q of block b lies (b * quads + q) * threads * 16 further.
    uint32_t own = block.stages + (warpgroup * 128 + thread) * 16;
    if (split > 1) {
        asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory"); // all have multiplied
#pragma unroll
        for (int i = 0; i < Block::blocks_m * quads; i++) {
            const Sum *q = &sums[i / quads][0][i % quads * 4];
            asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(own + i * threads * 16),
                         "r"(lls__sm90_bits(q[0])), "r"(lls__sm90_bits(q[1])), "r"(lls__sm90_bits(q[2])),
                         "r"(lls__sm90_bits(q[3]))
                         : "memory");
        }
        block.sync();
    }
    const int32_t count = panels / split;
#pragma unroll 1
    for (int32_t i = 0; i < Block::blocks_m * count; i++) {
        int32_t b = i / count, first = (block.split_rank * count + i % count) * 32;
        int64_t row = t.row + (warpgroup * Block::blocks_m + b) * 64, col = t.col + first;
        if (row >= t.row_end || col >= block.params.p.n) continue;
        writer.open_panels();
        if (split > 1) {
            Sum all[1][16] = {0};
#pragma unroll 2 // loads on their way
            for (int32_t r = 0; r < split; r++) {
                float4 more[4];
#pragma unroll
                for (int q = 0; q < 4; q++)
                    more[q] = lls__cluster_load(own + (b * quads + first / 8 + q) * threads * 16, r);
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    lls__sm90_add(all[0][4 * q], more[q].x), lls__sm90_add(all[0][4 * q + 1], more[q].y);
                    lls__sm90_add(all[0][4 * q + 2], more[q].z), lls__sm90_add(all[0][4 * q + 3], more[q].w);
                }
            }
            writer.template fill_32bit<32, false>(writer.panels, all, 0, 1);
        } else { // registers have no index: one copy of the filling for each panel
#pragma unroll
            for (int j = 0; j < Block::blocks_m * panels; j++)
                if (j == i) writer.template fill_32bit<32, false>(writer.panels, sums[j / panels], j % panels * 32, 1);
        }
        writer.sync();
        writer.template finish_panel<Sum>(t.batch, row, t.row_end, col);
    }
    if (split == 1) return;
    lls__tma_fence(); // TMA fills the ring again
    block.meet();
}
template <typename Block> __device__ __forceinline__ void lls__sm90_finish_idle(const Block &block) {
    if (block.params.split == 1) return;
    block.sync();
    block.meet();
}

/* Family (sm90_family.cuh): sum, the type of the accumulators; elems of k a stage; a_mn, b_mn; multiply, one step. */
template <typename Family, int tile_m, int tile_n>
__device__ __forceinline__ void lls__gemm_sm90(const lls__sm90_params &params) {
    typedef lls__sm90_block<Family, tile_m, tile_n> Block;
    extern __shared__ __align__(1024) char shared[];
    const Block block(params, shared);
    // From lane 0, so that the compiler sees that a warp goes one way.
    int32_t warp = __shfl_sync(~0u, threadIdx.x / 32, 0), warpgroup = warp / 4 - 1, thread = threadIdx.x % 128;
    // What does not depend on the kernel before comes first: it may run beside that one's end.
    if (threadIdx.x == 0) {
        lls__tma_prefetch(&params.a), lls__tma_prefetch(&params.b);
        if (params.tma_store) lls__tma_prefetch(&params.out);
        block.init_barriers();
    }
    block.meet();
    lls__grid_wait();
    lls__grid_release();
    if (params.p.offsets) {
        if (warp == 0) block.make_table();
        __syncthreads();
    }

    lls__sm90_ring ring = {0, 0};
    int32_t group = 0, first = blockIdx.x, step = gridDim.x, units = block.units();
    if (block.cluster > 1) first /= block.cluster, step /= block.cluster;
    if (warpgroup < 0) {
        if (Block::warpgroups == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (Block::warpgroups == 3) asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        for (int32_t unit = first; unit < units; unit += step) {
            lls__sm90_tile t = block.tile(unit, &group);
            if (threadIdx.x == 0) block.template load_tile<true>(t, &ring);
            if (threadIdx.x == 32) block.template load_tile<false>(t, &ring);
            __syncwarp();
            if (!Family::plain) lls__sm90_finish_idle(block);
        }
        if (block.shares()) lls__cluster_arrive();
    } else {
        if (Block::warpgroups == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        if (Block::warpgroups == 3) asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
        typename Block::Writer writer(params, block.staging, warpgroup, thread);
        if (Family::promoted && warpgroup == 1) block.pass_turn(warpgroup);
        for (int32_t unit = first; unit < units; unit += step) {
            typename Block::Sums sums;
            lls__sm90_tile t = block.tile(unit, &group);
            if constexpr (Family::promoted) block.multiply_tile_promoted(t, &ring, sums, warpgroup, thread);
            else block.multiply_tile(t, &ring, sums, warpgroup, thread);
            if (block.shares() && unit + step >= units) lls__cluster_arrive();
            if constexpr (!Family::plain) {
                if (!writer.is_plain()) {
                    lls__sm90_finish(block, sums, t, writer, warpgroup, thread);
                    continue;
                }
            }
#pragma unroll
            for (int b = 0; b < Block::blocks_m; b++)
                writer.template write<Family>(sums[b], t, (warpgroup * Block::blocks_m + b) * 64);
        }
        if (thread == 0) lls__tma_store_wait_read<0>(); // the panels may go
    }
    if (block.shares()) lls__cluster_wait(); // nobody leaves while others still load into it or arrive at its barriers
}
