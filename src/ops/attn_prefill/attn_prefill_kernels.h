/* The CUDA kernels that attn_prefill.c launches; its other variants are attn_common's. Read by gcc and nvcc. */
#ifndef LLS_OPS_ATTN_PREFILL_KERNELS_H
#define LLS_OPS_ATTN_PREFILL_KERNELS_H

#include "ops/attn_common/attn.h"

#if LLS_WITH_CUDA
#include "ops/attn_common/attn_naive.h"

#ifdef __cplusplus
extern "C" {
#endif
/* A warp each (sequence, row, head). */
__global__ void lls_attn_prefill_01_naive_f32(lls__attn_problem p, lls__attn_parts parts);
__global__ void lls_attn_prefill_01_naive_f16(lls__attn_problem p, lls__attn_parts parts);
__global__ void lls_attn_prefill_01_naive_bf16(lls__attn_problem p, lls__attn_parts parts);
#ifdef __cplusplus
}
#endif
#endif

#endif
