/* One logical attention problem, run through any of the forms the library offers: the same rows of known-fault tests
 * serve attn_prefill and attn_decode. */
#ifndef LLS_OPS_ATTN_COMMON_ATTN_TEST_H
#define LLS_OPS_ATTN_COMMON_ATTN_TEST_H

#include "harness/harness.h"

typedef enum attn_form {
    ATTN_DENSE,      /* attn_prefill, equal lengths */
    ATTN_VARLEN,     /* attn_prefill with cu_seqlens */
    ATTN_CONTIGUOUS, /* attn_decode, q [batch, q_len, ...], equal q_len */
    ATTN_PAGED,      /* attn_decode, ragged q, pages in reverse order in a pool larger than needed */
} attn_form;

enum { ATTN_MAX_BATCH = 8 };

typedef struct attn_problem attn_problem;
/* Element d of row `row`, head `head` of sequence b; which is 'q', 'k' or 'v'. */
typedef double (*attn_fill)(const attn_problem *p, char which, int64_t b, int64_t row, int64_t head, int64_t d);

/* bias[b, head, i, j]; along a shared axis that is 0. */
typedef double (*attn_bias_fill)(const attn_problem *p, int64_t b, int64_t head, int64_t i, int64_t j);

typedef enum attn_bias_order {
    ATTN_BIAS_ROWS,   /* the keys of a row lie together */
    ATTN_BIAS_KEYS,   /* transposed: the rows of a key do */
    ATTN_BIAS_SPREAD, /* the heads do, three elements apart */
} attn_bias_order;

typedef struct attn_bias {
    attn_bias_fill fill; /* NULL: no bias */
    lls_dtype dtype;
    attn_bias_order order;
    bool shared[4]; /* axes of stride 0 */
} attn_bias;

struct attn_problem {
    int32_t batch;
    int32_t q_len[ATTN_MAX_BATCH], kv_len[ATTN_MAX_BATCH];
    int32_t num_heads, num_kv_heads, head_dim, head_dim_v; /* head_dim_v 0: head_dim */
    lls_dtype dtype, kv_dtype;                             /* kv_dtype 0: dtype */
    attn_fill fill;                                        /* NULL: attn_random */
    lls_attn_mask mask;
    float scale, softcap;
    bool alibi, sinks;
    attn_bias bias;         /* dense form only */
    int32_t page_size;      /* 0: 16 */
    int32_t extra_capacity; /* further keys, or pages, past the longest sequence */
    const int32_t *padding; /* page-table entries past the used range, taken in turn; NULL: 0 */
    int32_t num_padding;
    double unused;   /* what unused slots and pages hold */
    bool has_unused; /* false: NaN */
    bool transposed; /* q and out lie head by head instead of row by row */
    int32_t num_splits;
    const char *out_name; /* NULL: "out" */
    bool uncompared;      /* the outputs are not compared with the oracle's */
    double tol;           /* 0: th_tol */

    /* Made by attn_run. */
    attn_form form;
    lls_tensor q, k, v, out, lse, cu_q, cu_kv, kv_lens, page_table, slopes, sink, bias_view;
    int32_t q_begin[ATTN_MAX_BATCH + 1], kv_begin[ATTN_MAX_BATCH + 1];
    int32_t owner[4096]; /* paged: page -> b * max_pages + number, or -1 */
    int32_t max_pages;
};

#define ATTN_MASK(causal, left, right) ((lls_attn_mask){causal, left, right})

/* Makes the tensors and calls the op. */
lls_status attn_run(th *h, attn_problem *p, attn_form form);
double attn_out(th *h, const attn_problem *p, int64_t b, int64_t i, int64_t head, int64_t d);
void attn_expect_out(th *h, const attn_problem *p, int64_t b, int64_t i, int64_t head, int64_t d, double want,
                     double tol);
double attn_lse(th *h, const attn_problem *p, int64_t b, int64_t i, int64_t head);
void attn_expect_lse(th *h, const attn_problem *p, int64_t b, int64_t i, int64_t head, double want, double tol);

/* Near normal numbers, the same for the same arguments. */
double attn_random(const attn_problem *p, char which, int64_t b, int64_t row, int64_t head, int64_t d);
/* q = 0, so that every visible key weighs the same, and V[j] = j: any mask error shows as an exact number. */
double attn_uniform(const attn_problem *p, char which, int64_t b, int64_t row, int64_t head, int64_t d);

/* The forms of an op, and products of shapes, dtypes and options over them. */
void attn_generate(th *h, const attn_form *forms, int num_forms);

/* Known-fault rows; param points to an attn_form. */
void attn_a01(th *h, const void *form);
void attn_a03(th *h, const void *form);
void attn_a05(th *h, const void *form);
void attn_a06(th *h, const void *form);
void attn_a07(th *h, const void *form);
void attn_a08(th *h, const void *form);
void attn_a09(th *h, const void *form);
void attn_lse_of_equals(th *h, const void *form);

#endif
