/* What gemm.c launches: one declaration a variant. Read by gcc and nvcc. */
#ifndef LLS_OPS_GEMM_KERNELS_H
#define LLS_OPS_GEMM_KERNELS_H

#include "cpu/level.h"
#include "ops/gemm/problem.h"

/* gemm_check.c */
lls_status lls__gemm_check(const lls_ctx *ctx, const lls_gemm_args *args);
/* For gemm_grouped: b [groups, k, n], bias [groups, n] and scale_b have the axis of groups, a and out do not. */
lls_status lls__gemm_check_grouped(const lls_ctx *ctx, const lls_gemm_args *args);
/* Of validated arguments of either; a grouped product's offsets are left to add. */
lls__gemm_problem lls__gemm_problem_of(const lls_gemm_args *args);

/* Of products of this dtype (gemm.c). */
lls_math lls__gemm_math(lls_dtype input, uint32_t flags);

/* One row of out; for a grouped product `batch` is the row's group. */
void lls__gemm_ref_row(const lls__gemm_problem *p, int64_t batch, int64_t row);
lls_status lls__gemm_ref(lls_ctx *ctx, const void *args, lls_stream stream);
LLS_CPU_DECLARE(lls_status, lls__gemm_cpu, lls_ctx *ctx, const void *args, lls_stream stream);
LLS_CPU_DECLARE(lls_status, lls__gemm_cpu_problem, lls_ctx *ctx, const lls__gemm_problem *p); /* not grouped */

#if LLS_WITH_CUDA
#include <cuda.h>
#include <cuda_runtime_api.h>
#ifndef __cplusplus
#include "dispatch/variant.h"
#endif

/* How 05_mma_sync runs: tile.cuh has the bands. */
typedef struct lls__gemm_mma_config {
    int32_t stages; /* of the ring, 2 to 4 */
    int32_t band;   /* row tiles */
} lls__gemm_mma_config;

/* Dynamic shared memory of 03 and 04. */
enum { LLS__GEMM_03_SHARED = 128 * 132 * 4, LLS__GEMM_04_SHARED = 8 * 64 * 40 * 4 };

/* 06 and 07 (wgmma_tile.cuh): the tile of a block, k of a stage, the ring with two barriers a stage. */
enum {
    LLS__WGMMA_TILE = 128,
    LLS__WGMMA_DEPTH = 64,
    LLS__WGMMA_STAGES = 3,
    LLS__WGMMA_STAGE_BYTES = 2 * LLS__WGMMA_TILE * LLS__WGMMA_DEPTH * 2,
    LLS__WGMMA_SHARED = LLS__WGMMA_STAGES * (LLS__WGMMA_STAGE_BYTES + 2 * 8),
    LLS__GEMM_06_THREADS = 256,
    LLS__GEMM_07_THREADS = 256 + 32
};

/* 02 to 05 (portable.c): why a rung does not take a problem, grouped or not, or NULL; and its launch. */
#ifndef __cplusplus
/* 02 to 07 have a block a tile. Tiles of rows x cols, in the order of tile.cuh; a grouped product may have one row of them
 * more for each group. NULL, or that a grid has no room for them. */
int64_t lls__gemm_num_tiles(const lls__gemm_problem *p, int64_t rows, int64_t cols);
const char *lls__gemm_refuse_tiles(const lls__gemm_problem *p, int64_t rows, int64_t cols);

extern const lls__kernel lls__gemm_portable_kernels[]; /* ended by a NULL name */
const char *lls__gemm_refuse_smem_tile(const lls__gemm_problem *p);
lls_status lls__gemm_launch_smem_tile(lls_ctx *ctx, const lls__gemm_problem *p, lls_stream stream);
const char *lls__gemm_refuse_register_tile(const lls__gemm_problem *p);
lls_status lls__gemm_launch_register_tile(lls_ctx *ctx, const lls__gemm_problem *p, lls_stream stream);
const char *lls__gemm_refuse_wmma(const lls__gemm_problem *p);
lls_status lls__gemm_launch_wmma(lls_ctx *ctx, const lls__gemm_problem *p, lls_stream stream);
const char *lls__gemm_refuse_mma_sync(const lls__gemm_problem *p);
lls_status lls__gemm_launch_mma_sync(lls_ctx *ctx, const lls__gemm_problem *p, lls_stream stream);

/* How a launch of 05 goes: a pure function of the problem and the device. */
typedef struct lls__gemm_mma_plan {
    int32_t instance;   /* of the rung's kernels */
    int32_t rows, cols; /* of a tile */
    int32_t threads, shared_bytes;
    lls__gemm_mma_config config;
} lls__gemm_mma_plan;
lls__gemm_mma_plan lls__gemm_mma_plan_of(const lls__gemm_problem *p, int32_t sm, int32_t num_sms);
#endif

/* 06 and 07 (wgmma.c), which take the same problems, not grouped. */
#ifndef __cplusplus
extern const lls__kernel lls__gemm_wgmma_kernels[]; /* ended by a NULL name */
const char *lls__gemm_refuse_wgmma(const lls__gemm_problem *p);
lls_status lls__gemm_launch_tma_wgmma(lls_ctx *ctx, const lls__gemm_problem *p, lls_stream stream);
lls_status lls__gemm_launch_warp_specialised(lls_ctx *ctx, const lls__gemm_problem *p, lls_stream stream);
#endif

#ifndef __cplusplus
#include "ops/gemm/sm90_plan.h"

/* Takes everything, grouped products too. */
lls_status lls__gemm_launch_naive(lls_ctx *ctx, const lls__gemm_problem *p, lls_stream stream);

/* sm90.c: the Hopper rungs, grouped products too. Each allows what the ones before do. */
extern const lls__kernel lls__gemm_sm90_kernels[]; /* ended by a NULL name */
typedef enum lls__sm90_rung { LLS__SM90_PERSISTENT, LLS__SM90_CLUSTER, LLS__SM90_SPLIT_K } lls__sm90_rung;
const char *lls__gemm_sm90_reject(const lls__gemm_problem *p);
/* `config` pins one, NULL chooses; op is for messages. */
lls_status lls__gemm_sm90_launch(const char *op, lls_ctx *ctx, const lls__gemm_problem *p, const char *config,
                                 lls__sm90_rung rung, lls_stream stream);
/* What the product could run with, the model's choice first. */
int32_t lls__gemm_sm90_configs(const lls_ctx *ctx, const lls__gemm_problem *p,
                               lls__gemm_config out[LLS__SM90_MAX_CONFIGS]);
#endif

#ifdef __cplusplus
extern "C" {
#endif
/* Suffixes: dtype of a and b. The type of out is looked up at run time.
 * grid: pairs of columns / 32, rows / 8, batch, the last two cut at 65535 (the kernel loops); block: 32 x 8. */
__global__ void lls_gemm_01_naive_f32(lls__gemm_problem p);
__global__ void lls_gemm_01_naive_f16(lls__gemm_problem p);
__global__ void lls_gemm_01_naive_bf16(lls__gemm_problem p);
__global__ void lls_gemm_01_naive_i8(lls__gemm_problem p);
__global__ void lls_gemm_01_naive_f8(lls__gemm_problem p);

/* 02 to 05: a block a tile of out, and for grouped products a row of tiles more for each group (tile.cuh). */
__global__ void lls_gemm_02_smem_tile_f32(lls__gemm_problem p);
__global__ void lls_gemm_02_smem_tile_f16(lls__gemm_problem p);
__global__ void lls_gemm_02_smem_tile_bf16(lls__gemm_problem p);
__global__ void lls_gemm_03_register_tile_f32(lls__gemm_problem p);
__global__ void lls_gemm_03_register_tile_f16(lls__gemm_problem p);
__global__ void lls_gemm_03_register_tile_bf16(lls__gemm_problem p);
__global__ void lls_gemm_04_wmma_f16(lls__gemm_problem p);
__global__ void lls_gemm_04_wmma_bf16(lls__gemm_problem p);
/* Types of a and b, tile. Threads and shared memory: portable.c. */
__global__ void lls_gemm_05_mma_sync_f16_128x256(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_f16_128x128(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_f16_64x64(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_bf16_128x256(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_bf16_128x128(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_bf16_64x64(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_tf32_128x128(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_tf32_64x64(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_i8_128x128(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_i8_64x64(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_e4m3_e4m3_128x128(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_e4m3_e4m3_64x64(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_e4m3_e5m2_128x128(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_e4m3_e5m2_64x64(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_e5m2_e4m3_128x128(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_e5m2_e4m3_64x64(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_e5m2_e5m2_128x128(lls__gemm_problem p, lls__gemm_mma_config config);
__global__ void lls_gemm_05_mma_sync_e5m2_e5m2_64x64(lls__gemm_problem p, lls__gemm_mma_config config);

/* 06 and 07: a block a tile. a and b: boxes of 128 lines of 64 of k. */
__global__ void lls_gemm_06_tma_wgmma_f16(lls__gemm_problem p, const __grid_constant__ CUtensorMap a,
                                          const __grid_constant__ CUtensorMap b);
__global__ void lls_gemm_06_tma_wgmma_bf16(lls__gemm_problem p, const __grid_constant__ CUtensorMap a,
                                           const __grid_constant__ CUtensorMap b);
__global__ void lls_gemm_07_warp_specialised_f16(lls__gemm_problem p, const __grid_constant__ CUtensorMap a,
                                                 const __grid_constant__ CUtensorMap b);
__global__ void lls_gemm_07_warp_specialised_bf16(lls__gemm_problem p, const __grid_constant__ CUtensorMap a,
                                                  const __grid_constant__ CUtensorMap b);
#ifdef __cplusplus
}
#endif
#endif

#endif
