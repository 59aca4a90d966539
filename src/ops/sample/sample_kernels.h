/* What every variant of sample receives, the parts that they share, and what sample.c launches. Read by gcc and nvcc.
 * */
#ifndef LLS_OPS_SAMPLE_KERNELS_H
#define LLS_OPS_SAMPLE_KERNELS_H

#include <float.h>
#include <math.h>

#include "cpu/level.h"
#include "llmspeed/ops.h"
#include "ops/sample/sample_noise.h"

/* Below it a row is greedy. */
#define LLS__SAMPLE_MIN_TEMPERATURE 1e-4f

typedef struct lls__sample_params {
    const void *logits; /* [batch, vocab] */
    int64_t logits_stride;
    lls_dtype dtype;
    int32_t batch, vocab;
    const float *temperature; /* [batch], like the others; NULL: the default */
    const int32_t *top_k;
    const float *top_p, *min_p, *penalty;
    const int64_t *seed, *step;
    const int32_t *history; /* [batch, max_history] or NULL */
    int64_t history_stride;
    int32_t max_history;
    const int32_t *history_lens;
    int32_t *out_ids;
    float *out_probs; /* may be NULL */
} lls__sample_params;

/* One row's parameters. */
typedef struct lls__sample_row {
    float temperature, top_p, min_p, penalty;
    int32_t top_k, history_len; /* history_len 0 where nothing is penalised */
    const int32_t *history;
    uint64_t noise_key;
} lls__sample_row;

LLS_HOST_DEVICE static inline lls__sample_row lls__sample_row_of(const lls__sample_params *p, int64_t r) {
    lls__sample_row row;
    row.temperature = p->temperature ? p->temperature[r] : 0;
    row.top_p = p->top_p ? p->top_p[r] : 1;
    row.min_p = p->min_p ? p->min_p[r] : 0;
    row.penalty = p->penalty ? p->penalty[r] : 1;
    row.top_k = p->top_k ? p->top_k[r] : 0;
    row.history = p->history ? p->history + r * p->history_stride : NULL;
    row.history_len = p->history_lens && row.penalty != 1 ? p->history_lens[r] : 0;
    row.noise_key = lls__sample_noise_key(p->seed ? p->seed[r] : 0, p->step ? p->step[r] : 0);
    return row;
}

typedef enum lls__sample_fault {
    LLS__SAMPLE_SOUND,
    LLS__SAMPLE_TEMPERATURE,
    LLS__SAMPLE_TOP_K,
    LLS__SAMPLE_TOP_P,
    LLS__SAMPLE_MIN_P,
    LLS__SAMPLE_PENALTY,
    LLS__SAMPLE_HISTORY_LEN
} lls__sample_fault;

/* The first impossible parameter; NaN fails every comparison. */
LLS_HOST_DEVICE static inline lls__sample_fault lls__sample_row_fault(const lls__sample_params *p, int64_t r) {
    lls__sample_row row = lls__sample_row_of(p, r);
    if (!(row.temperature >= 0 && row.temperature <= FLT_MAX)) return LLS__SAMPLE_TEMPERATURE;
    if (row.top_k < 0) return LLS__SAMPLE_TOP_K;
    if (!(row.top_p >= 0 && row.top_p <= 1)) return LLS__SAMPLE_TOP_P;
    if (!(row.min_p >= 0 && row.min_p <= 1)) return LLS__SAMPLE_MIN_P;
    if (!(row.penalty > 0 && row.penalty <= FLT_MAX)) return LLS__SAMPLE_PENALTY;
    if (p->history_lens && (p->history_lens[r] < 0 || p->history_lens[r] > p->max_history))
        return LLS__SAMPLE_HISTORY_LEN;
    return LLS__SAMPLE_SOUND;
}

/* NaN counts as -inf, +inf as the largest finite number, and -0 as 0, so that equal logits have equal bits. */
LLS_HOST_DEVICE static inline float lls__sample_clean(float logit) {
    if (!(logit >= -FLT_MAX)) return -INFINITY;
    return logit > FLT_MAX ? FLT_MAX : logit + 0.0f;
}

LLS_HOST_DEVICE static inline float lls__sample_penalise(float logit, float penalty) {
    return lls__sample_clean(logit > 0 ? LLS__DIV_RN(logit, penalty) : LLS__MUL_RN(logit, penalty));
}

/* Tokens as integers in the order of their rank: by logit, then lowest index first. A truncated distribution is all
 * keys from some cutoff on. */
LLS_HOST_DEVICE static inline uint64_t lls__sample_key(float logit, uint32_t id) {
    uint32_t bits;
    memcpy(&bits, &logit, sizeof bits);
    uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)ordered << 32 | (uint32_t)~id;
}

LLS_HOST_DEVICE static inline uint32_t lls__sample_key_id(uint64_t key) {
    return ~(uint32_t)key;
}

LLS_HOST_DEVICE static inline float lls__sample_key_logit(uint64_t key) {
    uint32_t ordered = (uint32_t)(key >> 32), bits = ordered >> 31 ? ordered & 0x7fffffffu : ~ordered;
    float logit;
    memcpy(&logit, &bits, sizeof logit);
    return logit;
}

/* The lowest logit that min_p keeps beside the best one: probabilities are compared through their logarithms, in
 * double. */
LLS_HOST_DEVICE static inline float lls__sample_min_p_logit(float best, const lls__sample_row *row) {
    double bound = (double)best + (double)row->temperature * log((double)row->min_p);
    float logit = (float)bound;
    return (double)logit < bound ? nextafterf(logit, INFINITY) : logit;
}

/* What the draw compares. */
LLS_HOST_DEVICE static inline float lls__sample_perturbed(float logit, float best, float inverse_temperature,
                                                          uint64_t noise_key, uint32_t id) {
    float scaled = LLS__MUL_RN(LLS__ADD_RN(logit, -best), inverse_temperature);
    return LLS__ADD_RN(scaled, lls__sample_noise(noise_key, id));
}

lls_status lls__sample_ref(lls_ctx *ctx, const void *params, lls_stream stream);
LLS_CPU_DECLARE(lls_status, lls__sample_cpu, lls_ctx *ctx, const void *params, lls_stream stream);

#if LLS_WITH_CUDA
#include <cuda_runtime_api.h>

/* The repetition penalty's bitmap lies in shared memory. */
#define LLS__SAMPLE_MAX_PENALISED_VOCAB (1 << 20)

#ifdef __cplusplus
extern "C" {
#endif
/* grid: batch; block: 512; dynamic shared memory: a bit a token, in words, where there is a history. */
__global__ void lls_sample_01_naive_f32(lls__sample_params p);
__global__ void lls_sample_01_naive_f16(lls__sample_params p);
__global__ void lls_sample_01_naive_bf16(lls__sample_params p);
#ifdef __cplusplus
}
#endif
#endif

#endif
