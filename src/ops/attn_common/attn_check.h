/* What attn_prefill.c and attn_decode.c are made of. Of their validators, each function checks a part of the arguments
 * and fills that part of the problem. */
#ifndef LLS_OPS_ATTN_COMMON_ATTN_CHECK_H
#define LLS_OPS_ATTN_COMMON_ATTN_CHECK_H

#include "dispatch/variant.h"
#include "ops/attn_common/attn.h"

/* A tensor with the name that messages give it. */
typedef struct lls__attn_arg {
    const char *name;
    const lls_tensor *t;
} lls__attn_arg;

/* q, cu_seqlens_q and max_q_len: dense [batch, q_len, heads, head_dim], or ragged [total_q, heads, head_dim]. Sets
 * p->op, too. */
lls_status lls__attn_take_queries(const lls_ctx *ctx, const char *op, const lls_tensor *q,
                                  const lls_tensor *cu_seqlens_q, int32_t max_q_len, lls__attn_problem *p);
/* Keys and values of `ndim` axes that end in (row, kv head, head_dim); after take_queries. */
lls_status lls__attn_take_keys(const lls_ctx *ctx, lls__attn_arg k, lls__attn_arg v, int32_t ndim, const lls_tensor *q,
                               lls__attn_problem *p);
/* out and lse (may be NULL), which must be apart from each other and from the inputs; after take_queries and take_keys.
 * */
lls_status lls__attn_take_outputs(const lls_ctx *ctx, const lls_tensor *q, const lls_tensor *out, const lls_tensor *lse,
                                  const lls__attn_arg *inputs, int32_t num_inputs, lls__attn_problem *p);
/* Mask and score parameters; after take_queries. */
lls_status lls__attn_take_score(const lls_ctx *ctx, const lls_attn_mask *mask, const lls_attn_score *score,
                                lls__attn_problem *p);
/* bias (may be NULL) [batch, num_heads, q_len, kv_len], any strides; after take_queries and take_keys, dense form only.
 */
lls_status lls__attn_take_bias(const lls_ctx *ctx, const lls_tensor *bias, lls__attn_problem *p);
/* An i32 vector of batch + 1 bounds. On the CPU also its values: non-decreasing from 0, at most `total`. */
lls_status lls__attn_check_bounds(const lls_ctx *ctx, const char *op, lls__attn_arg bounds, int64_t batch,
                                  int64_t total);
/* Has nothing to write. */
bool lls__attn_is_empty(const lls__attn_problem *p);

/* The `cost` of both ops. */
void lls__attn_cost(lls_ctx *ctx, const void *args, lls_stream stream, lls__cost *cost);

#endif
