/* Launching the naive kernels: a warp for each (sequence, row, head, split). Only builds with CUDA include this; read
 * by gcc and nvcc. */
#ifndef LLS_OPS_ATTN_COMMON_ATTN_NAIVE_H
#define LLS_OPS_ATTN_COMMON_ATTN_NAIVE_H

#include <cuda_runtime_api.h>

#include "ops/attn_common/attn.h"

enum { LLS__ATTN_NAIVE_WARPS = 4 }; /* a block */

/* The running softmax of every (row of q, head, split), where there is more than one split; in the context's workspace.
 * */
typedef struct lls__attn_parts {
    float *acc;     /* [total_q, num_heads, num_splits, head_dim_v], not divided by the sum */
    float *max_sum; /* [total_q, num_heads, num_splits, 2] */
} lls__attn_parts;

#ifndef __CUDACC__
#include "dispatch/variant.h"

/* Bytes of lls__attn_parts; 0 for one split. */
size_t lls__attn_parts_bytes(const lls__attn_problem *p);
const char *lls__attn_naive_reject(const void *args);
/* kernel(problem, parts) and, for more than one split, merge(problem, parts). */
lls_status lls__attn_naive_launch(lls_ctx *ctx, const lls__attn_problem *p, const lls__kernel *kernel,
                                  const lls__kernel *merge, lls_stream stream);
#endif

#endif
