/* Idea: feed the tensor cores without ever waiting for memory. Rung 04 waits for each step's loads, moves them through
 * registers, and lets WMMA hide where operands lie. Here
 *   - cp.async copies global memory straight into a ring of 2 to 4 stages (stages are launch data), so that the loads of
 *     the next steps are under way while this one is multiplied;
 *   - stages are swizzled (cuda/swizzle.cuh): neither the copies nor ldmatrix have bank conflicts, without padding;
 *   - ldmatrix reads fragments while the previous ones are multiplied, and turns operands that lie across, so that all
 *     four transpose pairs run alike;
 *   - a warp has 64 x 64 sums in registers: each fragment is used 4 or 8 times;
 *   - tiles are walked in bands (tile.cuh), so that blocks find each other's lines in L2.
 * Gain expected: 3 to 5 times rung 04.
 * Limited by: mma.sync itself. Per 32 bytes of depth, the 8 warps of a 128 x 256 tile read 8 * 4 KB of fragments and write
 * 12 KB of the next stage: 352 cycles of shared memory (128 bytes a cycle) beside 256 mma of 2048 multiply-adds each, which
 * are 512 cycles on sm_80 (1024 a cycle) and some 410 on sm_90, where mma.sync reaches 62 % of what wgmma does: 610 of 989
 * TFLOP/s. A full line of both operands passes through L2 once a band, far below its bandwidth.
 * Needs: sm_80. Any strides, sizes, alignment and batch: operands without 16-byte chunks are gathered element by element,
 * several times slower. f32 only as tf32.
 *
 * f8 products (05_mma_sync_f8.cu) and the others share the body, mma_tile.cuh. */
#include "ops/gemm/gemm_kernels.h"
#include "ops/gemm/mma_tile.cuh"

/* Instances: the type, the tile of a block and of a warp, and the blocks that an SM should hold. */
LLS__GEMM_MMA_KERNEL(f16, f16, 128, 256, 64, 64, 1)
LLS__GEMM_MMA_KERNEL(f16, f16, 128, 128, 64, 64, 2)
LLS__GEMM_MMA_KERNEL(f16, f16, 64, 64, 32, 32, 3)
LLS__GEMM_MMA_KERNEL(bf16, bf16, 128, 256, 64, 64, 1)
LLS__GEMM_MMA_KERNEL(bf16, bf16, 128, 128, 64, 64, 2)
LLS__GEMM_MMA_KERNEL(bf16, bf16, 64, 64, 32, 32, 3)
LLS__GEMM_MMA_KERNEL(tf32, tf32, 128, 128, 64, 64, 2)
LLS__GEMM_MMA_KERNEL(tf32, tf32, 64, 64, 32, 32, 3)
LLS__GEMM_MMA_KERNEL(i8, s8, 128, 128, 64, 64, 2)
LLS__GEMM_MMA_KERNEL(i8, s8, 64, 64, 32, 32, 3)
