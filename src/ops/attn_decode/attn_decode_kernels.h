/* The CUDA kernels that attn_decode.c launches; its other variants are attn_common's. Read by gcc and nvcc. */
#ifndef LLS_OPS_ATTN_DECODE_KERNELS_H
#define LLS_OPS_ATTN_DECODE_KERNELS_H

#include "ops/attn_common/attn.h"

#if LLS_WITH_CUDA
#include "ops/attn_common/attn_naive.h"

#ifdef __cplusplus
extern "C" {
#endif
/* ..._<dtype of q>_<dtype of the cache>; a warp each (sequence, row, head, split). */
__global__ void lls_attn_decode_01_naive_f32_f32(lls__attn_problem p, lls__attn_parts parts);
__global__ void lls_attn_decode_01_naive_f32_f16(lls__attn_problem p, lls__attn_parts parts);
__global__ void lls_attn_decode_01_naive_f32_bf16(lls__attn_problem p, lls__attn_parts parts);
__global__ void lls_attn_decode_01_naive_f16_f32(lls__attn_problem p, lls__attn_parts parts);
__global__ void lls_attn_decode_01_naive_f16_f16(lls__attn_problem p, lls__attn_parts parts);
__global__ void lls_attn_decode_01_naive_f16_bf16(lls__attn_problem p, lls__attn_parts parts);
__global__ void lls_attn_decode_01_naive_bf16_f32(lls__attn_problem p, lls__attn_parts parts);
__global__ void lls_attn_decode_01_naive_bf16_f16(lls__attn_problem p, lls__attn_parts parts);
__global__ void lls_attn_decode_01_naive_bf16_bf16(lls__attn_problem p, lls__attn_parts parts);
/* A warp each (sequence, row, head). */
__global__ void lls_attn_decode_01_naive_merge_f32(lls__attn_problem p, lls__attn_parts parts);
__global__ void lls_attn_decode_01_naive_merge_f16(lls__attn_problem p, lls__attn_parts parts);
__global__ void lls_attn_decode_01_naive_merge_bf16(lls__attn_problem p, lls__attn_parts parts);
#ifdef __cplusplus
}
#endif
#endif

#endif
