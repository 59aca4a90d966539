/* Host side of rungs 02 to 05, which run on every device since sm_80. */
#include <math.h>

#include "core/tensor.h"
#include "dispatch/launch.h"
#include "ops/gemm/gemm_kernels.h"

// Where each rung's kernels begin: f32, f16, bf16; f16, bf16 (WMMA); those of `instances`.
enum { SMEM_TILE = 0, REGISTER_TILE = 3, WMMA = 6, MMA_SYNC = 8 };
#define MMA_SYNC_KERNEL(types_and_tile) LLS_KERNEL(lls_gemm_05_mma_sync_##types_and_tile)
const lls__kernel lls__gemm_portable_kernels[] = {
    LLS_KERNEL(lls_gemm_02_smem_tile_f32),
    LLS_KERNEL(lls_gemm_02_smem_tile_f16),
    LLS_KERNEL(lls_gemm_02_smem_tile_bf16),
    LLS_KERNEL(lls_gemm_03_register_tile_f32),
    LLS_KERNEL(lls_gemm_03_register_tile_f16),
    LLS_KERNEL(lls_gemm_03_register_tile_bf16),
    LLS_KERNEL(lls_gemm_04_wmma_f16),
    LLS_KERNEL(lls_gemm_04_wmma_bf16),
    MMA_SYNC_KERNEL(f16_128x256),
    MMA_SYNC_KERNEL(f16_128x128),
    MMA_SYNC_KERNEL(f16_64x64),
    MMA_SYNC_KERNEL(bf16_128x256),
    MMA_SYNC_KERNEL(bf16_128x128),
    MMA_SYNC_KERNEL(bf16_64x64),
    MMA_SYNC_KERNEL(tf32_128x128),
    MMA_SYNC_KERNEL(tf32_64x64),
    MMA_SYNC_KERNEL(i8_128x128),
    MMA_SYNC_KERNEL(i8_64x64),
    MMA_SYNC_KERNEL(e4m3_e4m3_128x128),
    MMA_SYNC_KERNEL(e4m3_e4m3_64x64),
    MMA_SYNC_KERNEL(e4m3_e5m2_128x128),
    MMA_SYNC_KERNEL(e4m3_e5m2_64x64),
    MMA_SYNC_KERNEL(e5m2_e4m3_128x128),
    MMA_SYNC_KERNEL(e5m2_e4m3_64x64),
    MMA_SYNC_KERNEL(e5m2_e5m2_128x128),
    MMA_SYNC_KERNEL(e5m2_e5m2_64x64),
    {0},
};

int64_t lls__gemm_num_tiles(const lls__gemm_problem *p, int64_t rows, int64_t cols) {
    int64_t row_tiles = (p->m + rows - 1) / rows, col_tiles = (p->n + cols - 1) / cols;
    return (p->offsets ? row_tiles + p->batch : row_tiles * p->batch) * col_tiles;
}

const char *lls__gemm_refuse_tiles(const lls__gemm_problem *p, int64_t rows, int64_t cols) {
    return lls__gemm_num_tiles(p, rows, cols) > LLS__MAX_GRID_X ? "has more tiles than a grid has blocks" : NULL;
}

static lls_status launch(lls_ctx *ctx, const lls__gemm_problem *p, int32_t kernel, int32_t rows, int32_t cols,
                         int32_t threads, int32_t shared_bytes, const lls__gemm_mma_config *config, lls_stream stream) {
    lls__grid shape = {
        .grid = {(uint32_t)lls__gemm_num_tiles(p, rows, cols), 1, 1},
        .block = {(uint32_t)threads, 1, 1},
        .shared_bytes = (uint32_t)shared_bytes,
    };
    return lls__launch(ctx, &lls__gemm_portable_kernels[kernel], &shape, (void *[]){(void *)p, (void *)config}, stream);
}

// ---- 02_smem_tile, 03_register_tile, 04_wmma

static const char *refuse_but_floats(const lls__gemm_problem *p, int64_t tile) {
    return lls__is_float(p->a.dtype) ? lls__gemm_refuse_tiles(p, tile, tile) : "takes f32, f16 and bf16";
}

const char *lls__gemm_refuse_smem_tile(const lls__gemm_problem *p) {
    return refuse_but_floats(p, 32);
}

lls_status lls__gemm_launch_smem_tile(lls_ctx *ctx, const lls__gemm_problem *p, lls_stream stream) {
    return launch(ctx, p, SMEM_TILE + lls__float_index(p->a.dtype), 32, 32, 256, 0, NULL, stream);
}

const char *lls__gemm_refuse_register_tile(const lls__gemm_problem *p) {
    return refuse_but_floats(p, 128);
}

lls_status lls__gemm_launch_register_tile(lls_ctx *ctx, const lls__gemm_problem *p, lls_stream stream) {
    return launch(ctx, p, REGISTER_TILE + lls__float_index(p->a.dtype), 128, 128, 256, LLS__GEMM_03_SHARED, NULL,
                  stream);
}

const char *lls__gemm_refuse_wmma(const lls__gemm_problem *p) {
    return p->a.dtype == LLS_F16 || p->a.dtype == LLS_BF16 ? lls__gemm_refuse_tiles(p, 128, 128) : "takes f16 and bf16";
}

lls_status lls__gemm_launch_wmma(lls_ctx *ctx, const lls__gemm_problem *p, lls_stream stream) {
    return launch(ctx, p, WMMA + (p->a.dtype == LLS_BF16), 128, 128, 256, LLS__GEMM_04_SHARED, NULL, stream);
}

// ---- 05_mma_sync

typedef enum types { F16, BF16, TF32, I8, F8 /* + 2 if a is e5m2, + 1 if b is */ } types;

// A kernel: the tile of a block and of a warp, how many blocks an SM should hold, and what share of the largest tile's
// speed it reaches where all SMs are busy (estimates from how often a fragment is used).
typedef struct instance {
    types types;
    int32_t rows, cols, warp_rows, warp_cols, blocks;
    double rate;
} instance;
#define F8_INSTANCES(types)              \
    {types, 128, 128, 64, 32, 1, 1.0}, { \
        types, 64, 64, 32, 32, 3, 0.6    \
    }
static const instance instances[] = {
    {F16, 128, 256, 64, 64, 1, 1.0},
    {F16, 128, 128, 64, 64, 2, 0.85},
    {F16, 64, 64, 32, 32, 3, 0.55},
    {BF16, 128, 256, 64, 64, 1, 1.0},
    {BF16, 128, 128, 64, 64, 2, 0.85},
    {BF16, 64, 64, 32, 32, 3, 0.55},
    {TF32, 128, 128, 64, 64, 2, 1.0},
    {TF32, 64, 64, 32, 32, 3, 0.6},
    {I8, 128, 128, 64, 64, 2, 1.0},
    {I8, 64, 64, 32, 32, 3, 0.6},
    F8_INSTANCES(F8),
    F8_INSTANCES(F8 + 1),
    F8_INSTANCES(F8 + 2),
    F8_INSTANCES(F8 + 3),
};
_Static_assert(LLS_COUNT(lls__gemm_portable_kernels) == MMA_SYNC + LLS_COUNT(instances) + 1, "a kernel an instance");

static types types_of(const lls__gemm_problem *p) {
    switch (p->a.dtype) {
    case LLS_F16: return F16;
    case LLS_BF16: return BF16;
    case LLS_F32: return TF32;
    case LLS_I8: return I8;
    default: return (types)(F8 + 2 * (p->a.dtype == LLS_F8_E5M2) + (p->b.dtype == LLS_F8_E5M2));
    }
}

static int32_t threads_of(const instance *i) {
    return i->rows / i->warp_rows * (i->cols / i->warp_cols) * 32;
}

// Bytes of a stage: 128 of each line (mma_tile.cuh). Of the room for sums, which takes the place of the stages.
static int32_t stage_bytes(const instance *i) {
    return (i->rows + i->cols) * 128;
}
static int32_t room_bytes(const instance *i) {
    return threads_of(i) / 32 * i->warp_rows * (i->warp_cols + 8) * 4;
}

// Shared memory of an SM; each block costs 1 KB of it besides its own.
static int32_t shared_of_sm(int32_t sm) {
    return (sm == 80 || sm == 87 ? 164 : sm >= 90 && sm < 120 ? 228 : 100) * 1024;
}

// The deepest ring that lets an SM hold the blocks it should, or as many as it can; 0 where not even one fits.
static int32_t stages_for(const instance *i, int32_t sm) {
    int32_t least = 2 * stage_bytes(i) > room_bytes(i) ? 2 * stage_bytes(i) : room_bytes(i);
    for (int32_t blocks = i->blocks; blocks > 0; blocks--) {
        int32_t bytes = shared_of_sm(sm) / blocks - 1024, stages = bytes / stage_bytes(i);
        if (bytes >= least) return stages < 4 ? stages : 4;
    }
    return 0;
}

lls__gemm_mma_plan lls__gemm_mma_plan_of(const lls__gemm_problem *p, int32_t sm, int32_t num_sms) {
    lls__gemm_mma_plan best = {0};
    double best_cost = INFINITY;
    for (int32_t n = 0; n < LLS_COUNT(instances); n++) {
        const instance *i = &instances[n];
        int32_t stages = i->types == types_of(p) ? stages_for(i, sm) : 0;
        if (stages == 0) continue;
        double rounds = ceil((double)lls__gemm_num_tiles(p, i->rows, i->cols) / num_sms); // of one tile on every SM
        double cost = rounds * i->rows * i->cols / i->rate;
        if (cost >= best_cost) continue;
        best_cost = cost;
        // Blocks that run together take band x blocks / band tiles: fewest lines when both sides are equally long.
        double side = sqrt((double)num_sms * i->blocks * i->cols / i->rows);
        int32_t ring = stages * stage_bytes(i), room = room_bytes(i);
        best = (lls__gemm_mma_plan){
            .instance = n,
            .rows = i->rows,
            .cols = i->cols,
            .threads = threads_of(i),
            .shared_bytes = ring > room ? ring : room,
            .config = {.stages = stages, .band = side < 1 ? 1 : (int32_t)lround(side)},
        };
    }
    return best;
}

const char *lls__gemm_refuse_mma_sync(const lls__gemm_problem *p) {
    if (p->a.dtype == LLS_F32 && !(p->flags & LLS_GEMM_TF32)) return "takes f32 with LLS_GEMM_TF32 only";
    return lls__gemm_refuse_tiles(p, 64, 64);
}

lls_status lls__gemm_launch_mma_sync(lls_ctx *ctx, const lls__gemm_problem *p, lls_stream stream) {
    lls__gemm_mma_plan plan = lls__gemm_mma_plan_of(p, ctx->sm, ctx->num_sms);
    return launch(ctx, p, MMA_SYNC + plan.instance, plan.rows, plan.cols, plan.threads, plan.shared_bytes, &plan.config,
                  stream);
}
