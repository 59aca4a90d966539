/* The Hopper rungs 08 to 10: what C passes to their kernels, and which instances of the body (sm90.cuh) there are. Read by
 * gcc and nvcc. */
#ifndef LLS_OPS_GEMM_SM90_H
#define LLS_OPS_GEMM_SM90_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "ops/gemm/problem.h"

/* Warpgroups that multiply, 64 rows each (128 of the tallest tile's), and one that loads. */
#define LLS__SM90_WARPGROUPS(tile_m) ((tile_m) == 64 ? 1 : (tile_m) == 192 ? 3 : 2)
#define LLS__SM90_THREADS(tile_m) (128 * (1 + LLS__SM90_WARPGROUPS(tile_m)))
#define LLS__SM90_PANELS(tile_m) ((tile_m) == 192 ? 1 : 2) /* of a warpgroup */

enum {
    LLS__SM90_STAGE_ROW = 128, /* bytes of k in a stage: one row of the 128-byte swizzle */
    LLS__SM90_PANEL_BYTES = 64 *
                            128, /* a warpgroup's piece of out on its way through shared memory: 1 or 2 at a time */
    LLS__SM90_SWAPPED_ROWS = 16, /* of out, that one store of a swapped tile takes: its columns are multiples */
    LLS__SM90_MAX_STAGES = 16,
    LLS__SM90_MAX_GROUPS = 512 /* of a grouped product */
};

typedef struct lls__sm90_params {
    CUtensorMap a, b, out, out_rest; /* out_rest: of the last columns of a tile that fill no panel */
    lls__gemm_problem p;
    bool a_batched, b_batched;
    bool tma_store;           /* out is plain and TMA reaches it */
    int32_t units_m, units_n; /* clusters of tiles; along m unknown when grouped */
    int32_t units;            /* all; unknown when grouped */
    int32_t k_steps;          /* stages that k takes */
    int32_t stages, cluster_m, cluster_n, split, raster;
    int32_t a_lines, b_lines; /* of a tile's rows of a and columns of b, what a block of the cluster loads */
} lls__sm90_params;

/* The instances: X(family, tile_m, tile_n). A family is the types of a and b, the layouts that they lie in: K-major (k) or
 * along m or n, and what its tiles are good for (sm90_family.cuh). Plain products of the usual layouts have many tiles, so
 * that one of them fills all multiprocessors equally. A swapped family computes out^T = b^T a^T: the side that tiles cut
 * finely then lies along m.
 * f8: the tensor core keeps the whole sum; f8p: fp32 adds it up every 128 of k, and the block scales with it. */
// clang-format off
#define LLS_SM90_FEW_TILES(X, family) X(family, 128, 256) X(family, 128, 128) X(family, 64, 128)
#define LLS_SM90_ANY_TILES(X, family)                                                                \
    X(family, 64, 64) X(family, 64, 128) X(family, 64, 256)                                          \
    X(family, 128, 64) X(family, 128, 128) X(family, 128, 192) X(family, 128, 256) X(family, 256, 128)
#define LLS_SM90_PLAIN_TILES(X, family)                                                              \
    X(family, 64, 96)                                                                                \
    X(family, 128, 80) X(family, 128, 96) X(family, 128, 112) X(family, 128, 144) X(family, 128, 160) \
    X(family, 128, 176) X(family, 128, 208) X(family, 128, 224) X(family, 128, 320)                  \
    X(family, 192, 96) X(family, 192, 176) X(family, 192, 192) X(family, 256, 96)
#define LLS_SM90_SWAPPED_TILES(X, family)                                                            \
    X(family, 64, 16) X(family, 64, 32) X(family, 64, 48) X(family, 64, 64) X(family, 64, 80)        \
    X(family, 64, 96) X(family, 64, 128)                                                             \
    X(family, 128, 80) X(family, 128, 96) X(family, 128, 144) X(family, 128, 160) X(family, 128, 208) \
    X(family, 128, 256) X(family, 256, 96)
#define LLS_SM90_BF16(X)                                                  \
    LLS_SM90_ANY_TILES(X, bf16_kk) LLS_SM90_FEW_TILES(X, bf16_kn)         \
    LLS_SM90_FEW_TILES(X, bf16_mk) LLS_SM90_FEW_TILES(X, bf16_mn)
#define LLS_SM90_F16(X)                                                   \
    LLS_SM90_ANY_TILES(X, f16_kk) LLS_SM90_FEW_TILES(X, f16_kn)           \
    LLS_SM90_FEW_TILES(X, f16_mk) LLS_SM90_FEW_TILES(X, f16_mn)
#define LLS_SM90_PLAIN(X)                                                 \
    LLS_SM90_PLAIN_TILES(X, bf16_plain) LLS_SM90_SWAPPED_TILES(X, bf16_swap) \
    LLS_SM90_PLAIN_TILES(X, f16_plain) LLS_SM90_SWAPPED_TILES(X, f16_swap)
#define LLS_SM90_TF32(X) LLS_SM90_FEW_TILES(X, tf32)
#define LLS_SM90_I8(X) LLS_SM90_FEW_TILES(X, i8)
#define LLS_SM90_F8(X)                                                    \
    LLS_SM90_FEW_TILES(X, f8_e4m3_e4m3)                                   \
    X(f8p_e4m3_e4m3, 128, 192)                                            \
    X(f8p_e4m3_e4m3, 128, 128) X(f8p_e4m3_e4m3, 64, 128)                  \
    X(f8p_e4m3_e5m2, 128, 128) X(f8p_e4m3_e5m2, 64, 128)                  \
    X(f8p_e5m2_e4m3, 128, 128) X(f8p_e5m2_e4m3, 64, 128)                  \
    X(f8p_e5m2_e5m2, 128, 128) X(f8p_e5m2_e5m2, 64, 128)
// clang-format on

#define LLS_SM90_INSTANCES(X) \
    LLS_SM90_BF16(X) LLS_SM90_F16(X) LLS_SM90_PLAIN(X) LLS_SM90_TF32(X) LLS_SM90_I8(X) LLS_SM90_F8(X)

/* grid: blocks, a multiple of the cluster; block: LLS__SM90_THREADS. */
#define LLS_SM90_NAME(family, tile_m, tile_n) lls_gemm_sm90_##family##_##tile_m##x##tile_n
#define LLS_SM90_PROTOTYPE(family, tile_m, tile_n) \
    __global__ void LLS_SM90_NAME(family, tile_m, tile_n)(const __grid_constant__ lls__sm90_params params);
#ifdef __cplusplus
extern "C" {
#endif
LLS_SM90_INSTANCES(LLS_SM90_PROTOTYPE)
#ifdef __cplusplus
}
#endif

#endif
