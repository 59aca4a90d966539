/* What attn_merge.c launches: one declaration a variant. Read by gcc and nvcc. */
#ifndef LLS_OPS_ATTN_MERGE_KERNELS_H
#define LLS_OPS_ATTN_MERGE_KERNELS_H

#include "core/rows.h"
#include "cpu/level.h"
#include "llmspeed/ops.h"

lls_status lls__attn_merge_ref(lls_ctx *ctx, const void *args, lls_stream stream);
LLS_CPU_DECLARE(lls_status, lls__attn_merge_cpu, lls_ctx *ctx, const void *args, lls_stream stream);

/* Offset in elements of row r = token * heads + head of a tensor whose first two axes are (tokens, heads). */
static inline int64_t lls__attn_merge_offset(const lls_tensor *t, int64_t r) {
    return r / t->shape[1] * t->stride[0] + r % t->shape[1] * t->stride[1];
}

#if LLS_WITH_CUDA
#include <cuda_runtime_api.h>

typedef struct lls__attn_merge_params {
    const void *a, *b;
    void *out;
    const float *lse_a, *lse_b;
    float *lse; /* may be NULL */
    lls__rows a_rows, b_rows, out_rows;
    int64_t lse_a_token, lse_a_head, lse_b_token, lse_b_head, lse_token, lse_head; /* strides */
    int64_t rows;                                                                  /* tokens * num_heads */
    int32_t num_heads, head_dim;
} lls__attn_merge_params;

enum { LLS__ATTN_MERGE_WARPS = 4 }; /* a block */

#ifdef __cplusplus
extern "C" {
#endif
/* A warp a row. */
__global__ void lls_attn_merge_01_naive_f32(lls__attn_merge_params p);
__global__ void lls_attn_merge_01_naive_f16(lls__attn_merge_params p);
__global__ void lls_attn_merge_01_naive_bf16(lls__attn_merge_params p);
#ifdef __cplusplus
}
#endif
#endif

#endif
