/* Rows over threads. A row is converted once into padded fp32 scratch; every truncation then becomes a cutoff in the
 * ranking (see sample_kernels.h), found by selection among the few tokens that matter, and one pass draws among the
 * tokens from the cutoff on. */
#include "core/ctx.h"
#include "core/element.h"
#include "core/error.h"
#include "cpu/simd.h"
#include "ops/sample/sample_kernels.h"
#include "ops/sample/sample_prefix.h"

typedef uint32_t vu __attribute__((vector_size(LLS_VF * 4)));
typedef double vd __attribute__((vector_size(LLS_VF * 4))); // LLS_VF / 2 lanes
typedef float vf_half __attribute__((vector_size(LLS_VF * 2)));
typedef int64_t vq __attribute__((vector_size(LLS_VF * 4)));

// A row in scratch, padded with -inf to whole vectors.
typedef struct row {
    const lls__sample_row *param;
    const float *logits; // [padded]
    int64_t padded;
    float best; // the largest logit
    float inverse_temperature;
    lls__sample_mass mass;
} row;

// Tokens that are kept: above `logit`, or equal to it with an index up to `id`.
typedef struct cutoff {
    float logit;
    int32_t id;
} cutoff;

LLS_INLINE bool any(vi mask) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask);
#elif defined(__AVX2__)
    return !_mm256_testz_si256((__m256i)mask, (__m256i)mask);
#else
    vq wide = (vq)mask;
    return wide[0] | wide[1];
#endif
}

LLS_INLINE vi lane_numbers(void) {
    vi n;
    for (int i = 0; i < LLS_VF; i++) n[i] = i;
    return n;
}

LLS_INLINE vi kept(vf v, vi ids, cutoff c) {
    return (v > vf_set1(c.logit)) | ((v == vf_set1(c.logit)) & (ids <= vi_set1(c.id)));
}

/* ---- The row in scratch ---- */

LLS_INLINE vf clean(vf v) { // lls__sample_clean
    v = vf_select(v >= vf_set1(-FLT_MAX), v, vf_set1(-INFINITY));
    return vf_min(v, vf_set1(FLT_MAX)) + vf_set1(0);
}

static void load_row(lls_dtype dtype, const void *source, int64_t n, float *logits) {
    int64_t i = 0;
    for (; i + LLS_VF <= n; i += LLS_VF) vf_store_f32(logits + i, clean(vf_load(dtype, source, i)));
    if (i == n) return;
    vf tail = clean(vf_load_n(dtype, source, i, n - i));
    vf_store_f32(logits + i, vf_select(lane_numbers() < vi_set1((int32_t)(n - i)), tail, vf_set1(-INFINITY)));
}

static void penalise(const lls__sample_params *p, int64_t r, const lls__sample_row *param, float *logits) {
    lls_tensor source = {.data = (void *)p->logits, .dtype = p->dtype};
    for (int64_t j = 0; j < param->history_len; j++) {
        int32_t id = param->history[j];
        if (id < 0 || id >= p->vocab) continue;
        // From the source, so that a second time changes nothing.
        logits[id] = lls__sample_penalise(lls__sample_clean((float)lls__get(&source, r * p->logits_stride + id)),
                                          param->penalty);
    }
}

static float largest(const float *logits, int64_t padded) {
    vf best[4];
    for (int j = 0; j < 4; j++) best[j] = vf_set1(-INFINITY);
    int64_t i = 0;
    for (; i + 4 * LLS_VF <= padded; i += 4 * LLS_VF) {
        for (int j = 0; j < 4; j++) best[j] = vf_max(vf_load_f32(logits + i + j * LLS_VF), best[j]);
    }
    for (; i < padded; i += LLS_VF) best[0] = vf_max(vf_load_f32(logits + i), best[0]);
    return vf_reduce_max(vf_max(vf_max(best[0], best[1]), vf_max(best[2], best[3])));
}

// The first token with this logit, which some token has.
static int32_t first_equal(const float *logits, float value) {
    int64_t i = 0;
    while (!any(vf_load_f32(logits + i) == vf_set1(value))) i += LLS_VF;
    while (logits[i] != value) i++;
    return (int32_t)i;
}

/* ---- Probability mass ---- */

// e^x in double for x <= 0, to some 1e-14; below -700 it stays near 1e-304. Cody and Waite's reduction, then Taylor's
// series on [-ln2/2, ln2/2].
LLS_INLINE vd exp_pd(vd x) {
    static const double coefficients[] = {1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,
                                          1.0 / 24,      1.0 / 6,      1.0 / 2,     1,          1};
    vd floor_x = (vd){0} - 700;
    x = (vd)(((vq)x & (x > floor_x)) | ((vq)floor_x & ~(x > floor_x)));
    vd shifted = x * 0x1.71547652b82fep0 + 0x1.8p52; // x / ln 2: the integer lands in the low mantissa bits
    vd n = shifted - 0x1.8p52;
    vd r = x - n * 0x1.62e42fefa38p-1 - n * 0x1.ef35793c7673p-45;
    vd p = (vd){0} + 1.0 / 39916800;
    for (int i = 0; i < 11; i++) p = p * r + coefficients[i];
    return p * (vd)(((vq)shifted + 1023) << 52);
}

// The mass of the tokens from the cutoff on. Those 40 temperatures below the best would add under 1e-17 each.
static double mass_from(const row *w, cutoff c) {
    vd acc[2] = {{0}, {0}};
    vf skip = vf_set1((float)((double)w->best - 40 / w->mass.inverse_temperature));
    vi ids = lane_numbers();
    for (int64_t i = 0; i < w->padded; i += LLS_VF, ids += LLS_VF) {
        vf v = vf_load_f32(w->logits + i);
        vi counts = kept(v, ids, c) & (v >= skip);
        if (!any(counts)) continue;
        v = vf_select(counts, v, vf_set1(-INFINITY));
        vf_half halves[2];
        memcpy(halves, &v, sizeof v);
        for (int j = 0; j < 2; j++)
            acc[j] += exp_pd((__builtin_convertvector(halves[j], vd) - (double)w->best) * w->mass.inverse_temperature);
    }
    acc[0] += acc[1];
    double sum = 0;
    for (int i = 0; i < LLS_VF / 2; i++) sum += acc[0][i];
    return sum;
}

/* ---- Truncation ---- */

// The keys of tokens above `floor`, at most the `most` largest of them, in no order. Once more than enough are found,
// the floor rises to the last that still counts: later tokens with an equal logit rank below it.
static int64_t collect(const row *w, float floor, int64_t most, uint64_t *keys) {
    int64_t room = 2 * most + 1024, n = 0; // selections are rare, and each is paid for by `most` tokens or more
    for (int64_t i = 0; i < w->padded; i += LLS_VF) {
        if (!any(vf_load_f32(w->logits + i) > vf_set1(floor))) continue;
        for (int64_t j = i; j < i + LLS_VF; j++) {
            if (w->logits[j] > floor) keys[n++] = lls__sample_key(w->logits[j], (uint32_t)j);
        }
        if (n < room) continue;
        n = lls__sample_prefix(keys, n, (double)most, NULL);
        floor = lls__sample_key_logit(keys[0]);
        for (int64_t j = 1; j < n; j++) floor = fminf(floor, lls__sample_key_logit(keys[j]));
    }
    return n > most ? lls__sample_prefix(keys, n, (double)most, NULL) : n;
}

static cutoff lowest(const uint64_t *keys, int64_t n) {
    uint64_t key = keys[0];
    for (int64_t i = 1; i < n; i++) key = keys[i] < key ? keys[i] : key;
    return (cutoff){lls__sample_key_logit(key), (int32_t)lls__sample_key_id(key)};
}

// The logit that tokens must be above to weigh more than this.
static float logit_of_mass(const row *w, double mass) {
    return nextafterf((float)((double)w->best + log(mass) / w->mass.inverse_temperature), -INFINITY);
}

static cutoff truncate_row(const row *w, int64_t vocab, uint64_t *keys) {
    const lls__sample_row *param = w->param;
    cutoff c = {-FLT_MAX, INT32_MAX};
    bool by_k = param->top_k > 0 && param->top_k < vocab, by_p = param->top_p < 1;
    int64_t n = 0;
    if (by_k) n = collect(w, -INFINITY, param->top_k, keys);
    if (by_p) {
        double total = 0, top_p = (double)param->top_p;
        if (by_k) {
            for (int64_t i = 0; i < n; i++) total += lls__sample_mass_of(&w->mass, keys[i]);
        } else {
            // Tokens that weigh less than (1 - top_p) / vocab of the total cannot weigh 1 - top_p together: without
            // them, top_p is reached already.
            total = mass_from(w, c);
            n = collect(w, logit_of_mass(w, fmin((1 - top_p) * total / (double)vocab, 0.5)), vocab, keys);
        }
        n = lls__sample_prefix(keys, n, top_p * total, &w->mass);
    }
    if (by_k || by_p) c = lowest(keys, n);
    if (param->min_p > 0) {
        float bound = lls__sample_min_p_logit(w->best, param);
        if (bound > c.logit) c = (cutoff){bound, INT32_MAX};
    }
    return c;
}

/* ---- The draw ---- */

LLS_INLINE vu mix32(vu x) { // lls__mix32
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

LLS_INLINE vf ln(vf x, vf x_minus_1) { // lls__sample_ln
    vi bits = (vi)x, exponent = (bits - 0x3f3504f3) >> 23;
    vf m = (vf)(bits - (exponent << 23));
    vf f = vf_select(exponent != 0, m + vf_set1(-1), x_minus_1);
    vf s = f / (f + vf_set1(2)), z = s * s, p = vf_set1(1.0f / 9);
    p = p * z + vf_set1(1.0f / 7);
    p = p * z + vf_set1(1.0f / 5);
    p = p * z + vf_set1(1.0f / 3);
    s = s + s;
    s = p * z * s + s;
    return __builtin_convertvector(exponent, vf) * vf_set1(0.693147181f) + s;
}

// lls__sample_noise in two steps: its uniform number, and the noise that this makes.
LLS_INLINE vf uniform(uint64_t key, vi ids) {
    vu h = mix32(mix32((vu)ids ^ (uint32_t)key) ^ (uint32_t)(key >> 32));
    vf v = (__builtin_convertvector((vi)(h >> 1), vf) + vf_set1(0.5f)) * vf_set1(0x1p-31f);
    return vf_min(v, vf_set1(1 - 0x1p-24f));
}

LLS_INLINE vf noise_of(vf v) {
    vf e = -ln(vf_set1(1) - v, -v);
    return -ln(e, e + vf_set1(-1));
}

// Noise can only reach x where v is below this: -ln(-ln(1 - v)) >= x needs v <= e^-x. As 2^f <= 1 + f on [0, 1], the
// bits of the linear function are an upper bound of the power, 6 % high at most; 1024 more covers all rounding.
LLS_INLINE vf uniform_bound(vf x) {
    x = vf_max(vf_min(x, vf_set1(80)), vf_set1(0));
    return (vf)(__builtin_convertvector(x * vf_set1(-1.44269504f * 0x1p23f), vi) + (0x3f800000 + 1024));
}

// argmax of (logit - best) / T + noise over the tokens from the cutoff on; the lowest index wins a tie.
static int32_t draw(const row *w, cutoff c) {
    vf most = vf_set1(-FLT_MAX);
    vi winner = vi_set1(INT32_MAX), ids = lane_numbers();
    for (int64_t i = 0; i < w->padded; i += LLS_VF, ids += LLS_VF) {
        vf v = vf_load_f32(w->logits + i);
        vf scaled = (v - vf_set1(w->best)) * vf_set1(w->inverse_temperature);
        vi may_win = kept(v, ids, c) & (scaled + vf_set1(LLS__SAMPLE_NOISE_MAX) > most);
        if (!any(may_win)) continue;
        vf u = uniform(w->param->noise_key, ids);
        may_win &= u < uniform_bound(most - scaled);
        if (!any(may_win)) continue; // nearly always, and before two logarithms
        vf value = scaled + noise_of(u);
        vi wins = may_win & (value > most);
        most = vf_select(wins, value, most);
        winner = (wins & ids) | (~wins & winner);
    }
    int best = 0;
    for (int j = 1; j < LLS_VF; j++) {
        if (most[j] > most[best] || (most[j] == most[best] && winner[j] < winner[best])) best = j;
    }
    return winner[best];
}

/* ---- Rows ---- */

typedef struct job {
    const lls__sample_params *params;
    char *scratch; // for each worker: keys [padded], logits [padded]
    int64_t padded;
    size_t worker_bytes;
} job;

static void sample_row(const job *j, int64_t r, char *scratch) {
    const lls__sample_params *p = j->params;
    lls__sample_row param = lls__sample_row_of(p, r);
    uint64_t *keys = (uint64_t *)scratch;
    float *logits = (float *)(keys + j->padded);
    lls_tensor source = {.data = (void *)p->logits, .dtype = p->dtype};
    load_row(p->dtype, lls__at(&source, r * p->logits_stride), p->vocab, logits);
    penalise(p, r, &param, logits);

    row w = {.param = &param, .logits = logits, .padded = j->padded, .best = largest(logits, j->padded)};
    int32_t id = -1;
    float probability = 0;
    if (w.best >= -FLT_MAX && param.temperature < LLS__SAMPLE_MIN_TEMPERATURE) {
        id = first_equal(logits, w.best);
        probability = 1;
    } else if (w.best >= -FLT_MAX) {
        w.inverse_temperature = 1.0f / param.temperature;
        w.mass = (lls__sample_mass){w.best, 1 / (double)param.temperature};
        cutoff c = truncate_row(&w, p->vocab, keys);
        id = draw(&w, c);
        if (p->out_probs)
            probability =
                (float)(lls__sample_mass_of(&w.mass, lls__sample_key(logits[id], (uint32_t)id)) / mass_from(&w, c));
    }
    p->out_ids[r] = id;
    if (p->out_probs) p->out_probs[r] = probability;
}

static void rows(void *arg, int64_t begin, int64_t end, int worker) {
    const job *j = arg;
    for (int64_t r = begin; r < end; r++) sample_row(j, r, j->scratch + (size_t)worker * j->worker_bytes);
}

lls_status LLS_CPU(lls__sample_cpu)(lls_ctx *ctx, const void *params, lls_stream stream) {
    (void)stream;
    const lls__sample_params *p = params;
    job j = {.params = p, .padded = ((int64_t)p->vocab + LLS_VF - 1) / LLS_VF * LLS_VF};
    j.worker_bytes = ((size_t)j.padded * (sizeof(uint64_t) + sizeof(float)) + 63) / 64 *
                     64; // no two workers in a cache line
    void *scratch;
    LLS_TRY(lls__ctx_workspace(ctx, "sample", j.worker_bytes * (size_t)lls_ctx_num_threads(ctx), &scratch));
    j.scratch = scratch;
    int64_t grain = 16384 / ((int64_t)p->vocab + 1) +
                    1; // below some 16k logits a thread's wake-up costs more than it saves
    lls__parallel(ctx, p->batch, grain, rows, &j);
    return LLS_OK;
}
