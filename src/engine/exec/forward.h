/* One forward pass of a ragged batch: every sequence brings one or more new tokens. Calls ops.h like any user, the same
 * on the CPU and on CUDA. */
#ifndef LLS_ENGINE_FORWARD_H
#define LLS_ENGINE_FORWARD_H

#include "engine/model/weights.h"
#include "llmspeed/engine.h"

/* What one step computes. Host arrays, filled by the engine. B sequences, T tokens in all, R rows that get logits. */
typedef struct lls__batch {
    int32_t num_sequences, num_tokens, num_rows;
    int32_t max_q_len;
    int32_t *ids;        /* [T] */
    int32_t *positions;  /* [T] */
    int64_t *slots;      /* [T] page * page_size + offset */
    int32_t *cu_seqlens; /* [B + 1] */
    int32_t *kv_lens;    /* [B], new tokens included */
    int32_t *page_table; /* [B, max_pages] */
    int32_t *rows;       /* [R] indices into the T tokens */
    /* sampling, one of each a row */
    float *temperature, *top_p, *min_p, *penalty; /* [R] */
    int32_t *top_k;                               /* [R] */
    int64_t *seed, *step;                         /* [R] */
    int32_t *history, *history_lens;              /* [R, context_length], [R]; read when use_history */
    bool use_history;
} lls__batch;

typedef struct lls__forward_limits {
    int32_t max_tokens;    /* T */
    int32_t max_sequences; /* B, and R */
    int32_t context_length;
    int32_t num_pages, page_size;
    lls_dtype kv_dtype;
    bool f32_activations;
} lls__forward_limits;

typedef struct lls__forward lls__forward;

/* The weights must outlive it. */
lls_status lls__forward_create(const lls_model *model, const lls__weights *weights, lls_ctx *ctx,
                               const lls__forward_limits *limits, lls__forward **out);
void lls__forward_destroy(lls__forward *f);

/* The batch whose arrays the caller fills before lls__forward_run. */
lls__batch *lls__forward_batch(lls__forward *f);
int32_t lls__forward_max_pages(const lls__forward *f); /* columns of page_table */
int64_t lls__forward_kv_bytes(const lls__forward *f);
void *lls__forward_kv(const lls__forward *f); /* on the device */

/* Computes the batch and samples its rows: ids[r] (-1: no logit was a number) and probabilities[r], on the host. */
lls_status lls__forward_run(lls__forward *f, int32_t *ids, float *probabilities);

/* Logits [vocab] of row r of the last run, copied to the host for CUDA. */
lls_status lls__forward_logits(lls__forward *f, int32_t row, const float **out);

#endif
