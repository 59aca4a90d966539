/* 05_mma_sync for f8 operands, both formats and mixed. A step is 128 of k, one block of block scales: its sums start at 0,
 * are scaled, and are added in fp32, which also keeps their precision where the tensor core's own sums have fewer bits
 * (LLS_GEMM_FAST_ACCUM leaves that out). The second set of sums halves a warp's tile. Only sm_89 and sm_12x multiply f8;
 * elsewhere products are made of f16, at its rate less the conversions (cuda/mma.cuh). */
#include "ops/gemm/gemm_kernels.h"
#include "ops/gemm/mma_tile.cuh"

LLS__GEMM_MMA_KERNEL(e4m3_e4m3, e4m3_e4m3, 128, 128, 64, 32, 1)
LLS__GEMM_MMA_KERNEL(e4m3_e4m3, e4m3_e4m3, 64, 64, 32, 32, 3)
LLS__GEMM_MMA_KERNEL(e4m3_e5m2, e4m3_e5m2, 128, 128, 64, 32, 1)
LLS__GEMM_MMA_KERNEL(e4m3_e5m2, e4m3_e5m2, 64, 64, 32, 32, 3)
LLS__GEMM_MMA_KERNEL(e5m2_e4m3, e5m2_e4m3, 128, 128, 64, 32, 1)
LLS__GEMM_MMA_KERNEL(e5m2_e4m3, e5m2_e4m3, 64, 64, 32, 32, 3)
LLS__GEMM_MMA_KERNEL(e5m2_e5m2, e5m2_e5m2, 128, 128, 64, 32, 1)
LLS__GEMM_MMA_KERNEL(e5m2_e5m2, e5m2_e5m2, 64, 64, 32, 32, 3)
