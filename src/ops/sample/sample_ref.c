/* The oracle: a full sort, then the definition word for word, masses in double. The noise and the logits it perturbs
 * are fp32 by definition. */
#include <stdlib.h>

#include "core/ctx.h"
#include "core/element.h"
#include "core/error.h"
#include "ops/sample/sample_kernels.h"

static int by_falling_rank(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

// The row's tokens above -inf, best first, in keys [vocab]; logits [vocab] is scratch.
static int64_t ranking(const lls__sample_params *p, int64_t r, const lls__sample_row *row, float *logits,
                       uint64_t *keys) {
    lls_tensor source = {.data = (void *)p->logits, .dtype = p->dtype};
    for (int64_t i = 0; i < p->vocab; i++)
        logits[i] = lls__sample_clean((float)lls__get(&source, r * p->logits_stride + i));
    for (int64_t j = 0; j < row->history_len; j++) {
        int32_t id = row->history[j];
        if (id < 0 || id >= p->vocab) continue;
        // From the source, so that a second time changes nothing.
        logits[id] =
            lls__sample_penalise(lls__sample_clean((float)lls__get(&source, r * p->logits_stride + id)), row->penalty);
    }
    int64_t n = 0;
    for (int64_t i = 0; i < p->vocab; i++) {
        if (logits[i] >= -FLT_MAX) keys[n++] = lls__sample_key(logits[i], (uint32_t)i);
    }
    qsort(keys, (size_t)n, sizeof *keys, by_falling_rank);
    return n;
}

static double mass_of(uint64_t key, uint64_t best, double temperature) {
    return exp(((double)lls__sample_key_logit(key) - (double)lls__sample_key_logit(best)) / temperature);
}

// How many of the n best tokens the row's parameters keep.
static int64_t kept_of(const lls__sample_row *row, const uint64_t *keys, int64_t n) {
    if (row->top_k > 0 && row->top_k < n) n = row->top_k;
    if (row->top_p < 1) {
        double total = 0, reached = 0;
        for (int64_t i = 0; i < n; i++) total += mass_of(keys[i], keys[0], (double)row->temperature);
        int64_t kept = 0;
        do reached += mass_of(keys[kept++], keys[0], (double)row->temperature);
        while (kept < n && reached < (double)row->top_p * total);
        n = kept;
    }
    float lowest = row->min_p > 0 ? lls__sample_min_p_logit(lls__sample_key_logit(keys[0]), row) : -FLT_MAX;
    while (lls__sample_key_logit(keys[n - 1]) < lowest) n--;
    return n;
}

static void sample_row(const lls__sample_params *p, int64_t r, float *logits, uint64_t *keys, int32_t *id,
                       double *probability) {
    lls__sample_row row = lls__sample_row_of(p, r);
    int64_t n = ranking(p, r, &row, logits, keys);
    *id = n ? (int32_t)lls__sample_key_id(keys[0]) : -1;
    *probability = n ? 1 : 0;
    if (n == 0 || row.temperature < LLS__SAMPLE_MIN_TEMPERATURE) return;

    n = kept_of(&row, keys, n);
    float best = lls__sample_key_logit(keys[0]);
    uint64_t winner = 0;
    double total = 0, chosen = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t token = lls__sample_key_id(keys[i]);
        float value =
            lls__sample_perturbed(lls__sample_key_logit(keys[i]), best, 1.0f / row.temperature, row.noise_key, token);
        uint64_t rank = lls__sample_key(value, token);
        double mass = mass_of(keys[i], keys[0], (double)row.temperature);
        total += mass;
        if (rank > winner) winner = rank, chosen = mass;
    }
    *id = (int32_t)lls__sample_key_id(winner);
    *probability = chosen / total;
}

lls_status lls__sample_ref(lls_ctx *ctx, const void *params, lls_stream stream) {
    (void)stream;
    const lls__sample_params *p = params;
    void *scratch;
    LLS_TRY(lls__ctx_workspace(ctx, "sample", (size_t)p->vocab * (sizeof(uint64_t) + sizeof(float)), &scratch));
    uint64_t *keys = scratch;
    for (int64_t r = 0; r < p->batch; r++) {
        double probability;
        sample_row(p, r, (float *)(keys + p->vocab), keys, &p->out_ids[r], &probability);
        if (p->out_probs) p->out_probs[r] = (float)probability;
    }
    return LLS_OK;
}
