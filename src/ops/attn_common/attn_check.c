#include "ops/attn_common/attn_check.h"

#include <math.h>

#include "core/ctx.h"
#include "core/error.h"
#include "core/tensor.h"

// The view of a tensor whose last three axes are (row, head, element), with or without a batch axis before them.
static lls__attn_view view_of(const lls_tensor *t) {
    int32_t row = t->ndim - 3;
    return (lls__attn_view){
        .data = t->data, .batch = row == 1 ? t->stride[0] : 0, .row = t->stride[row], .head = t->stride[row + 1]};
}

static lls_status check_head_dim(const char *op, const char *name, const lls_tensor *t) {
    int64_t dim = t->shape[t->ndim - 1];
    if (dim >= 1 && dim <= LLS__ATTN_MAX_HEAD_DIM) return LLS_OK;
    return lls__fail(LLS_ERR_SHAPE, "%s: %s.shape[%d] is %lld, a head must have 1 to %d elements", op, name,
                     t->ndim - 1, (long long)dim, LLS__ATTN_MAX_HEAD_DIM);
}

static lls_status check_count(const char *op, const char *name, const lls_tensor *t, int32_t dim) {
    if (t->shape[dim] <= INT32_MAX) return LLS_OK;
    return lls__fail(LLS_ERR_SHAPE, "%s: %s.shape[%d] is %lld, must be below 2^31", op, name, dim,
                     (long long)t->shape[dim]);
}

lls_status lls__attn_check_bounds(const lls_ctx *ctx, const char *op, lls__attn_arg bounds, int64_t batch,
                                  int64_t total) {
    LLS_TRY(lls__check_vector(ctx, op, bounds.name, bounds.t, batch + 1, "batch + 1", LLS__DTYPE(LLS_I32)));
    if (ctx->device.type != LLS_CPU) return LLS_OK;
    const int32_t *value = bounds.t->data;
    if (value[0] != 0) return lls__fail(LLS_ERR_ARGUMENT, "%s: %s[0] is %d, must be 0", op, bounds.name, value[0]);
    for (int64_t b = 0; b < batch; b++) {
        if (value[b + 1] < value[b]) {
            return lls__fail(LLS_ERR_ARGUMENT, "%s: %s[%lld] is %d, must be at least the one before it, %d", op,
                             bounds.name, (long long)b + 1, value[b + 1], value[b]);
        }
    }
    if (value[batch] > total) {
        return lls__fail(LLS_ERR_ARGUMENT, "%s: %s[%lld] is %d, must be at most the tensor's %lld rows", op,
                         bounds.name, (long long)batch, value[batch], (long long)total);
    }
    return LLS_OK;
}

static lls_status take_ragged_queries(const lls_ctx *ctx, const char *op, const lls_tensor *q,
                                      const lls_tensor *cu_seqlens_q, int32_t max_q_len, lls__attn_problem *p) {
    LLS_TRY(lls__check_tensor(ctx, op, "q", q, 3, 3, LLS__FLOATS));
    LLS_TRY(lls__check_tensor(ctx, op, "cu_seqlens_q", cu_seqlens_q, 1, 1, LLS__DTYPE(LLS_I32)));
    if (cu_seqlens_q->shape[0] < 1)
        return lls__fail(LLS_ERR_SHAPE, "%s: cu_seqlens_q.shape[0] is 0, must be batch + 1", op);
    p->batch = cu_seqlens_q->shape[0] - 1;
    p->total_q = q->shape[0];
    p->cu_q = cu_seqlens_q->data;
    p->max_q_len = max_q_len;
    LLS_TRY(lls__attn_check_bounds(ctx, op, (lls__attn_arg){"cu_seqlens_q", cu_seqlens_q}, p->batch, p->total_q));
    if (max_q_len < 0 || (max_q_len == 0 && p->total_q > 0)) {
        return lls__fail(LLS_ERR_ARGUMENT,
                         "%s: max_q_len is %d, must be at least the longest q_len (it goes with cu_seqlens_q)", op,
                         max_q_len);
    }
    for (int64_t b = 0; ctx->device.type == LLS_CPU && b < p->batch; b++) {
        int32_t len = p->cu_q[b + 1] - p->cu_q[b];
        if (len > max_q_len) {
            return lls__fail(LLS_ERR_ARGUMENT,
                             "%s: max_q_len is %d, must be at least the longest q_len; sequence %lld has %d", op,
                             max_q_len, (long long)b, len);
        }
    }
    return LLS_OK;
}

lls_status lls__attn_take_queries(const lls_ctx *ctx, const char *op, const lls_tensor *q,
                                  const lls_tensor *cu_seqlens_q, int32_t max_q_len, lls__attn_problem *p) {
    p->op = op;
    if (cu_seqlens_q) {
        LLS_TRY(take_ragged_queries(ctx, op, q, cu_seqlens_q, max_q_len, p));
    } else {
        LLS_TRY(lls__check_tensor(ctx, op, "q", q, 4, 4, LLS__FLOATS));
        p->batch = q->shape[0];
        p->q_len = p->max_q_len = q->shape[1];
        p->total_q = p->batch * p->q_len;
    }
    LLS_TRY(lls__check_inner_contiguous(op, "q", q));
    LLS_TRY(check_head_dim(op, "q", q));
    for (int32_t dim = 0; dim < q->ndim; dim++) LLS_TRY(check_count(op, "q", q, dim));
    p->dtype = q->dtype;
    p->q = view_of(q);
    p->num_heads = (int32_t)q->shape[q->ndim - 2];
    p->head_dim = (int32_t)q->shape[q->ndim - 1];
    return LLS_OK;
}

lls_status lls__attn_take_keys(const lls_ctx *ctx, lls__attn_arg k, lls__attn_arg v, int32_t ndim, const lls_tensor *q,
                               lls__attn_problem *p) {
    const char *op = p->op;
    LLS_TRY(lls__check_tensor(ctx, op, k.name, k.t, ndim, ndim, LLS__FLOATS));
    LLS_TRY(lls__check_tensor(ctx, op, v.name, v.t, ndim, ndim, LLS__FLOATS));
    LLS_TRY(lls__check_same_dtype(op, v.name, v.t, k.name, k.t));
    LLS_TRY(lls__check_inner_contiguous(op, k.name, k.t));
    LLS_TRY(lls__check_inner_contiguous(op, v.name, v.t));
    LLS_TRY(lls__check_dim(op, k.name, k.t, ndim - 1, q->shape[q->ndim - 1], "q's head_dim"));
    LLS_TRY(check_head_dim(op, v.name, v.t));
    for (int32_t dim = 0; dim < ndim - 1; dim++) {
        LLS_TRY(check_count(op, k.name, k.t, dim));
        LLS_TRY(lls__check_dim(op, v.name, v.t, dim, k.t->shape[dim], k.name));
    }
    int64_t num_kv_heads = k.t->shape[ndim - 2];
    if (num_kv_heads < 1 || p->num_heads % num_kv_heads) {
        return lls__fail(LLS_ERR_SHAPE, "%s: q has %d heads, must be a multiple of the %lld heads of %s", op,
                         p->num_heads, (long long)num_kv_heads, k.name);
    }
    p->kv_dtype = k.t->dtype;
    p->k = view_of(k.t);
    p->v = view_of(v.t);
    p->num_kv_heads = (int32_t)num_kv_heads;
    p->head_dim_v = (int32_t)v.t->shape[ndim - 1];
    return LLS_OK;
}

static lls_status check_apart(const char *op, lls__attn_arg t, const lls__attn_arg *inputs, int32_t num_inputs) {
    LLS_TRY(lls__check_no_self_overlap(op, t.name, t.t));
    for (int32_t i = 0; i < num_inputs; i++) {
        if (inputs[i].t) LLS_TRY(lls__check_disjoint(op, t.name, t.t, inputs[i].name, inputs[i].t));
    }
    return LLS_OK;
}

lls_status lls__attn_take_outputs(const lls_ctx *ctx, const lls_tensor *q, const lls_tensor *out, const lls_tensor *lse,
                                  const lls__attn_arg *inputs, int32_t num_inputs, lls__attn_problem *p) {
    const char *op = p->op;
    LLS_TRY(lls__check_tensor(ctx, op, "out", out, q->ndim, q->ndim, LLS__FLOATS));
    LLS_TRY(lls__check_same_dtype(op, "out", out, "q", q));
    for (int32_t dim = 0; dim < q->ndim - 1; dim++)
        LLS_TRY(lls__check_dim(op, "out", out, dim, q->shape[dim], "that of q"));
    LLS_TRY(lls__check_dim(op, "out", out, q->ndim - 1, p->head_dim_v, "the head_dim of v"));
    LLS_TRY(lls__check_inner_contiguous(op, "out", out));
    LLS_TRY(check_apart(op, (lls__attn_arg){"out", out}, inputs, num_inputs));
    p->out = view_of(out);
    if (!lse) return LLS_OK;
    LLS_TRY(lls__check_tensor(ctx, op, "lse", lse, q->ndim - 1, q->ndim - 1, LLS__DTYPE(LLS_F32)));
    int32_t head = lse->ndim - 2; // [.., num_heads, rows]
    if (head == 1) LLS_TRY(lls__check_dim(op, "lse", lse, 0, p->batch, "the batch of q"));
    LLS_TRY(lls__check_dim(op, "lse", lse, head, p->num_heads, "the heads of q"));
    LLS_TRY(lls__check_dim(op, "lse", lse, head + 1, q->shape[q->ndim - 3], "the rows of q"));
    LLS_TRY(check_apart(op, (lls__attn_arg){"lse", lse}, inputs, num_inputs));
    LLS_TRY(lls__check_disjoint(op, "lse", lse, "out", out));
    p->lse = (lls__attn_view){.data = lse->data,
                              .batch = head == 1 ? lse->stride[0] : 0,
                              .row = lse->stride[head + 1],
                              .head = lse->stride[head]};
    return LLS_OK;
}

lls_status lls__attn_take_score(const lls_ctx *ctx, const lls_attn_mask *mask, const lls_attn_score *score,
                                lls__attn_problem *p) {
    const char *op = p->op;
    if (mask->window_left < -1)
        return lls__fail(LLS_ERR_ARGUMENT, "%s: mask.window_left is %d, must be >= -1 (-1: unlimited)", op,
                         mask->window_left);
    if (mask->window_right < -1)
        return lls__fail(LLS_ERR_ARGUMENT, "%s: mask.window_right is %d, must be >= -1 (-1: unlimited)", op,
                         mask->window_right);
    if (!isfinite(score->scale))
        return lls__fail(LLS_ERR_ARGUMENT, "%s: score.scale is %g, must be finite", op, (double)score->scale);
    if (!(score->softcap >= 0 && score->softcap < INFINITY)) {
        return lls__fail(LLS_ERR_ARGUMENT, "%s: score.softcap is %g, must be >= 0 and finite (0: off)", op,
                         (double)score->softcap);
    }
    p->window_left = mask->window_left;
    p->window_right = mask->causal ? 0 : mask->window_right;
    p->scale = score->scale != 0 ? score->scale : (float)(1 / sqrt((double)p->head_dim));
    p->softcap = score->softcap;
    if (score->alibi_slopes) {
        LLS_TRY(lls__check_vector(ctx, op, "score.alibi_slopes", score->alibi_slopes, p->num_heads, "the heads of q",
                                  LLS__DTYPE(LLS_F32)));
        p->alibi = score->alibi_slopes->data;
    }
    if (score->sinks) {
        LLS_TRY(lls__check_vector(ctx, op, "score.sinks", score->sinks, p->num_heads, "the heads of q",
                                  LLS__DTYPE(LLS_F32)));
        p->sinks = score->sinks->data;
    }
    return LLS_OK;
}

lls_status lls__attn_take_bias(const lls_ctx *ctx, const lls_tensor *bias, lls__attn_problem *p) {
    const char *op = p->op;
    if (!bias) return LLS_OK;
    LLS_TRY(lls__check_tensor(ctx, op, "bias", bias, 4, 4, LLS__DTYPE(LLS_F32) | LLS__DTYPE(p->dtype)));
    LLS_TRY(lls__check_dim(op, "bias", bias, 0, p->batch, "the batch of q"));
    LLS_TRY(lls__check_dim(op, "bias", bias, 1, p->num_heads, "the heads of q"));
    LLS_TRY(lls__check_dim(op, "bias", bias, 2, p->q_len, "the rows of q"));
    LLS_TRY(lls__check_dim(op, "bias", bias, 3, p->kv_len, "the rows of k"));
    p->bias =
        (lls__attn_view){.data = bias->data, .batch = bias->stride[0], .row = bias->stride[2], .head = bias->stride[1]};
    p->bias_key = bias->stride[3];
    p->bias_dtype = bias->dtype;
    return LLS_OK;
}

bool lls__attn_is_empty(const lls__attn_problem *p) {
    return p->batch == 0 || p->total_q == 0 || p->max_q_len == 0 || p->num_heads == 0;
}
