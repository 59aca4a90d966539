/* One description of attention that prefill and decode share: query rows over the keys of their sequence.
 *
 * The validated arguments of either op become an lls__attn_problem; every variant (oracle, CPU, CUDA) takes that and
 * nothing else. Dense, varlen, contiguous and paged forms differ only in lls__attn_seq_at (which rows belong to a
 * sequence) and lls__attn_kv_offset (where key j lies). Plain data: C passes it to kernels by value; read by gcc and
 * nvcc. */
#ifndef LLS_OPS_ATTN_COMMON_ATTN_H
#define LLS_OPS_ATTN_COMMON_ATTN_H

#include "core/rows.h"
#include "cpu/level.h"
#include "llmspeed/ops.h"

enum { LLS__ATTN_MAX_HEAD_DIM = 256, LLS__ATTN_MAX_SPLITS = 128 };

/* Element (b, i, h, :) lies at b * batch + i * row + h * head. Ragged tensors have batch = 0 and i counts from the
 * first sequence; a paged cache has batch = the step from page to page. */
typedef struct lls__attn_view {
    void *data;
    int64_t batch, row, head; /* elements */
} lls__attn_view;

typedef struct lls__attn_problem {
    const char *op; /* for messages; a host pointer */
    lls_dtype dtype, kv_dtype;
    lls__attn_view q, out, k, v;
    lls__attn_view lse; /* data NULL: not wanted */
    int32_t num_heads, num_kv_heads, head_dim, head_dim_v;

    int64_t batch;
    int64_t q_len;     /* of every sequence, without cu_q */
    int64_t max_q_len; /* q_len, or the caller's bound with cu_q */
    int64_t kv_len;    /* of every sequence, without cu_kv and kv_lens; with kv_lens the capacity */
    int64_t total_q, total_kv;
    const int32_t *cu_q, *cu_kv; /* [batch + 1] */
    const int32_t *kv_lens;      /* [batch] */

    const int32_t *page_table;       /* [batch, max_pages], NULL: not paged */
    int64_t table_batch, table_page; /* its strides */
    int64_t page_size, num_pages;

    int32_t window_left, window_right; /* -1: unlimited; causal is window_right = 0 */
    float scale, softcap;
    const float *alibi, *sinks; /* [num_heads] or NULL */
    lls__attn_view bias;        /* added to the score of key j at + j * bias_key; data NULL: none */
    int64_t bias_key;           /* elements */
    lls_dtype bias_dtype;
    int32_t num_splits; /* at least 1 */
} lls__attn_problem;

/* Sequence b: rows [q_begin, q_begin + q_len) of q, keys [kv_begin, kv_begin + kv_len). */
typedef struct lls__attn_seq {
    int64_t index, q_begin, q_len, kv_begin, kv_len;
    bool valid; /* false: kv_lens is outside the cache (only CUDA gets to see that) */
} lls__attn_seq;

/* Keys [begin, end) that a row sees. */
typedef struct lls__attn_span {
    int64_t begin, end;
} lls__attn_span;

LLS_HOST_DEVICE static inline int64_t lls__attn_clamp(int64_t x, int64_t low, int64_t high) {
    return x < low ? low : x > high ? high : x;
}

LLS_HOST_DEVICE static inline lls__attn_seq lls__attn_seq_at(const lls__attn_problem *p, int64_t b) {
    lls__attn_seq s;
    s.index = b, s.valid = true;
    s.q_begin = 0, s.q_len = p->q_len;
    s.kv_begin = 0, s.kv_len = p->kv_len;
    if (p->cu_q) { /* clipped to the tensor: on CUDA nobody has checked the values */
        s.q_begin = lls__attn_clamp(p->cu_q[b], 0, p->total_q);
        s.q_len = lls__attn_clamp(p->cu_q[b + 1], s.q_begin, p->total_q) - s.q_begin;
    }
    if (p->cu_kv) {
        s.kv_begin = lls__attn_clamp(p->cu_kv[b], 0, p->total_kv);
        s.kv_len = lls__attn_clamp(p->cu_kv[b + 1], s.kv_begin, p->total_kv) - s.kv_begin;
    }
    if (p->kv_lens) {
        s.valid = p->kv_lens[b] >= 0 && p->kv_lens[b] <= p->kv_len;
        s.kv_len = s.valid ? p->kv_lens[b] : 0;
    }
    return s;
}

/* Offset in elements of row i, head h of q or out, and of that row's lse. */
LLS_HOST_DEVICE static inline int64_t lls__attn_q_offset(const lls__attn_view *view, const lls__attn_seq *s, int64_t i,
                                                         int64_t h) {
    return s->index * view->batch + (s->q_begin + i) * view->row + h * view->head;
}

/* Offset in elements of key j, head h of k or v; 0 <= j < kv_len. */
LLS_HOST_DEVICE static inline int64_t lls__attn_kv_offset(const lls__attn_problem *p, const lls__attn_view *view,
                                                          const lls__attn_seq *s, int64_t j, int64_t h) {
    if (p->page_table) { /* both below 2^31: 32-bit division is several times faster */
        uint32_t number = (uint32_t)j / (uint32_t)p->page_size, row = (uint32_t)j % (uint32_t)p->page_size;
        int64_t page = p->page_table[s->index * p->table_batch + number * p->table_page];
        return page * view->batch + row * view->row + h * view->head;
    }
    return s->index * view->batch + (s->kv_begin + j) * view->row + h * view->head;
}

/* Position of row i among the keys: bottom-right alignment. */
LLS_HOST_DEVICE static inline int64_t lls__attn_position(const lls__attn_seq *s, int64_t i) {
    return s->kv_len - s->q_len + i;
}

LLS_HOST_DEVICE static inline lls__attn_span lls__attn_span_of(const lls__attn_problem *p, const lls__attn_seq *s,
                                                               int64_t i) {
    int64_t position = lls__attn_position(s, i);
    lls__attn_span span;
    span.begin = p->window_left < 0 ? 0 : lls__attn_clamp(position - p->window_left, 0, s->kv_len);
    span.end = p->window_right < 0 ? s->kv_len : lls__attn_clamp(position + p->window_right + 1, 0, s->kv_len);
    if (span.end < span.begin) span.end = span.begin;
    return span;
}

/* Variants that both ops share; args is the lls__attn_problem. */
lls_status lls__attn_ref(lls_ctx *ctx, const void *args, lls_stream stream);
LLS_CPU_DECLARE(lls_status, lls__attn_cpu, lls_ctx *ctx, const void *args, lls_stream stream);

#endif
