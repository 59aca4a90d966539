/* The arithmetic of one tile: a block of query rows against a run of keys. Included by attn_cpu.c, once a SIMD level.
 *
 * Two layouts of the scores, after the number of rows:
 *  - many rows: vectors run along the rows, s[key][row]. A key element is broadcast against vectors of transposed
 *    queries, so that neither K nor the scores need
 *    a transpose, and maximum and sum of the softmax are lane by lane.
 *  - few rows (at most half a vector, as in decoding): vectors run along head_dim, s[row][key]. A key is read once for
 *    all rows, straight from the cache, and its
 *    dot products are summed a vector of keys at a time.
 *
 * A value that a row does not see is never multiplied for it, not even by zero: a NaN there stays there. */
#ifndef LLS_OPS_ATTN_COMMON_ATTN_TILE_CPU_H
#define LLS_OPS_ATTN_COMMON_ATTN_TILE_CPU_H

#include "cpu/simd.h"
#include "ops/attn_common/attn.h"

enum {
    TILE_ROWS = 48, /* query rows (token x head of the group) of a task */
    FEW_ROWS = LLS_VF / 2,
    WIDE_KEYS = 64, /* keys of a tile when rows are many: K, V, queries and scores stay in L2, near L1 */
    FEW_KEYS = 256, /* and when they are few */
    MAX_KEYS = FEW_KEYS,
    KEY_BLOCK = LLS_VF == 16 ? 8 : 4,    /* accumulators of the wide scores: KEY_BLOCK x 3 vectors */
    COLUMN_BLOCK = LLS_VF == 16 ? 4 : 2, /* and of the output: 4 rows x COLUMN_BLOCK vectors */
    KEY_STRIDE = LLS__ATTN_MAX_HEAD_DIM +
                 16 /* converted keys and values: a constant, which addressing modes can hold, and no power of two */
};

/* Rows of keys or values, wherever they lie. Pointers past the last key repeat it up to a whole vector of keys. */
typedef struct key_rows {
    lls_dtype dtype;
    const void *row[MAX_KEYS];
} key_rows;

typedef struct score_rule {
    float scale, softcap;
    bool alibi;
    const float *bias; /* of this tile, laid out as its scores; NULL: none */
} score_rule;

/* The rows of a task, and their running softmax. Rows past `count`, up to `padded`, see nothing. */
typedef struct query_rows {
    int32_t count, padded;
    int32_t begin[TILE_ROWS], end[TILE_ROWS]; /* visible keys */
    int32_t position[TILE_ROWS];              /* ALiBi counts from here */
    float slope[TILE_ROWS];
    const char *bias[TILE_ROWS]; /* of key 0; those of the next keys follow bias_key elements apart */
    int64_t bias_key;
    lls_dtype bias_dtype;
    int32_t last_begin, first_end; /* keys [last_begin, first_end) are seen by all */
    float *max, *sum;              /* [padded] */
    float *acc;                    /* [count][dvp], not yet divided by sum */
    float rescale[TILE_ROWS];      /* what acc still has to be multiplied by since the maximum moved */
} query_rows;

/* ---- Scores ---- */

// s[key][row] for KEY_BLOCK keys and `vectors` vectors of rows. k [KEY_BLOCK][KEY_STRIDE], qt [dim][TILE_ROWS], s
// [KEY_BLOCK][TILE_ROWS].
LLS_INLINE void wide_scores_block(const float *k, const float *qt, int64_t dim, float *s, int vectors) {
    vf acc[KEY_BLOCK][3] = {{{0}}};
    for (int64_t d = 0; d < dim; d++) {
        vf q[3];
        for (int v = 0; v < vectors; v++) q[v] = vf_load_f32(qt + d * TILE_ROWS + v * LLS_VF);
#pragma GCC unroll 8
        for (int i = 0; i < KEY_BLOCK; i++) {
            vf x = vf_set1(k[i * KEY_STRIDE + d]);
            for (int v = 0; v < vectors; v++) acc[i][v] = vf_fma(x, q[v], acc[i][v]);
        }
    }
    for (int i = 0; i < KEY_BLOCK; i++) {
        for (int v = 0; v < vectors; v++) vf_store_f32(s + i * TILE_ROWS + v * LLS_VF, acc[i][v]);
    }
}

// k [keys, rounded up to KEY_BLOCK][KEY_STRIDE]; scores past the last key are of whatever lies there.
static void wide_scores(const float *k, int64_t keys, const float *qt, int64_t padded, int64_t dim, float *s) {
    for (int64_t j = 0; j < keys; j += KEY_BLOCK) {
        const float *block = k + j * KEY_STRIDE;
        float *out = s + j * TILE_ROWS;
        int64_t r = 0;
        for (; r + 3 * LLS_VF <= padded; r += 3 * LLS_VF) wide_scores_block(block, qt + r, dim, out + r, 3);
        if (padded - r == 2 * LLS_VF) wide_scores_block(block, qt + r, dim, out + r, 2);
        if (padded - r == LLS_VF) wide_scores_block(block, qt + r, dim, out + r, 1);
    }
}

/* One level of a sum over the lanes of many vectors at once. Lanes whose number has bit `level` clear take from a, the
 * others from b, and each adds the lane at distance 2^level in the same source: one blend, one shuffle, one addition.
 * After all levels lane i holds the sum of vector i. */
LLS_INLINE vf fold_lanes(vf a, vf b, int level) {
#if LLS_VF == 16
    switch (level) {
    case 0:
        return __builtin_shufflevector(a, b, 0, 17, 2, 19, 4, 21, 6, 23, 8, 25, 10, 27, 12, 29, 14, 31) +
               __builtin_shufflevector(a, b, 1, 16, 3, 18, 5, 20, 7, 22, 9, 24, 11, 26, 13, 28, 15, 30);
    case 1:
        return __builtin_shufflevector(a, b, 0, 1, 18, 19, 4, 5, 22, 23, 8, 9, 26, 27, 12, 13, 30, 31) +
               __builtin_shufflevector(a, b, 2, 3, 16, 17, 6, 7, 20, 21, 10, 11, 24, 25, 14, 15, 28, 29);
    case 2:
        return __builtin_shufflevector(a, b, 0, 1, 2, 3, 20, 21, 22, 23, 8, 9, 10, 11, 28, 29, 30, 31) +
               __builtin_shufflevector(a, b, 4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
    default:
        return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 24, 25, 26, 27, 28, 29, 30, 31) +
               __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23);
    }
#elif LLS_VF == 8
    switch (level) {
    case 0:
        return __builtin_shufflevector(a, b, 0, 9, 2, 11, 4, 13, 6, 15) +
               __builtin_shufflevector(a, b, 1, 8, 3, 10, 5, 12, 7, 14);
    case 1:
        return __builtin_shufflevector(a, b, 0, 1, 10, 11, 4, 5, 14, 15) +
               __builtin_shufflevector(a, b, 2, 3, 8, 9, 6, 7, 12, 13);
    default:
        return __builtin_shufflevector(a, b, 0, 1, 2, 3, 12, 13, 14, 15) +
               __builtin_shufflevector(a, b, 4, 5, 6, 7, 8, 9, 10, 11);
    }
#else
    if (level == 0) return __builtin_shufflevector(a, b, 0, 5, 2, 7) + __builtin_shufflevector(a, b, 1, 4, 3, 6);
    return __builtin_shufflevector(a, b, 0, 1, 6, 7) + __builtin_shufflevector(a, b, 2, 3, 4, 5);
#endif
}

// Lane i is the sum of v[i]; v is used up.
LLS_INLINE vf sums_of(vf v[LLS_VF]) {
#pragma GCC unroll 4
    for (int level = 0, width = LLS_VF / 2; width > 0; level++, width /= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < width; i++) v[i] = fold_lanes(v[2 * i], v[2 * i + 1], level);
    }
    return v[0];
}

// s[row][key] for `rows` rows and LLS_VF keys. q [rows][dp], s [rows][FEW_KEYS].
LLS_INLINE void few_scores_block(lls_dtype dtype, const void *const *k, const float *q, int64_t dp, float *s,
                                 int rows) {
    enum { AT_ONCE = 4 };
    vf part[4][LLS_VF];
    for (int j = 0; j < LLS_VF; j += AT_ONCE) {
        vf acc[AT_ONCE][4] = {{{0}}};
        for (int64_t d = 0; d < dp; d += LLS_VF) {
            vf x[AT_ONCE];
            for (int i = 0; i < AT_ONCE; i++) x[i] = vf_load(dtype, k[j + i], d);
            for (int r = 0; r < rows; r++) {
                vf w = vf_load_f32(q + r * dp + d);
                for (int i = 0; i < AT_ONCE; i++) acc[i][r] = vf_fma(x[i], w, acc[i][r]);
            }
        }
        for (int r = 0; r < rows; r++) {
            for (int i = 0; i < AT_ONCE; i++) part[r][j + i] = acc[i][r];
        }
    }
    for (int r = 0; r < rows; r++) vf_store_f32(s + r * FEW_KEYS, sums_of(part[r]));
}

/* Keys lie num_kv_heads * head_dim apart, further than hardware prefetchers follow, and decoding reads each once: ask
 * for the rows of the next vector of keys. */
LLS_INLINE void prefetch_rows(const key_rows *rows, int64_t first, int64_t bytes) {
    for (int64_t j = first; j < first + LLS_VF; j++) {
        for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch((const char *)rows->row[j] + at);
    }
}

LLS_INLINE void few_scores_of(lls_dtype dtype, const key_rows *k, const key_rows *v, int64_t keys, const float *q,
                              int64_t rows, int64_t dp, int64_t dvp, float *s) {
    int64_t size = dtype == LLS_F32 ? 4 : 2;
    for (int64_t j = 0; j < keys; j += LLS_VF) {
        if (j + LLS_VF < keys) prefetch_rows(k, j + LLS_VF, dp * size);
        prefetch_rows(v, j, dvp * size);
        for (int64_t r = 0; r < rows; r += 4) {
            switch (rows - r) {
            case 1: few_scores_block(dtype, k->row + j, q + r * dp, dp, s + r * FEW_KEYS + j, 1); break;
            case 2: few_scores_block(dtype, k->row + j, q + r * dp, dp, s + r * FEW_KEYS + j, 2); break;
            case 3: few_scores_block(dtype, k->row + j, q + r * dp, dp, s + r * FEW_KEYS + j, 3); break;
            default: few_scores_block(dtype, k->row + j, q + r * dp, dp, s + r * FEW_KEYS + j, 4); break;
            }
        }
    }
}

// Fetches the values v on the way, which come next.
static void few_scores(const key_rows *k, const key_rows *v, int64_t keys, const float *q, int64_t rows, int64_t dp,
                       int64_t dvp, float *s) {
    switch (k->dtype) {
    case LLS_F16: few_scores_of(LLS_F16, k, v, keys, q, rows, dp, dvp, s); break;
    case LLS_BF16: few_scores_of(LLS_BF16, k, v, keys, q, rows, dp, dvp, s); break;
    default: few_scores_of(LLS_F32, k, v, keys, q, rows, dp, dvp, s); break;
    }
}

/* ---- Softmax ---- */

// tanh to some 1e-7: the exponential form loses digits near 0, where three terms of the series suffice.
LLS_INLINE vf tanh_of(vf x) {
    vf square = x * x;
    vf series = x * (vf_set1(1) +
                     square * (vf_set1(-1.0f / 3) + square * (vf_set1(2.0f / 15) + square * vf_set1(-17.0f / 315))));
    vf closed = vf_set1(1) - vf_set1(2) / (vf_exp(x + x) + vf_set1(1));
    return vf_select(square < vf_set1(0.04f), series, closed);
}

// The score of key j for a row at `position`, from q . k = s[at].
LLS_INLINE vf score_of(const score_rule *rule, const float *s, int64_t at, vi j, vi position, vf slope) {
    vf score = vf_load_f32(s + at) * vf_set1(rule->scale);
    if (rule->softcap > 0) score = vf_set1(rule->softcap) * tanh_of(score / vf_set1(rule->softcap));
    if (rule->alibi) score += slope * __builtin_convertvector(j - position, vf);
    if (rule->bias) {
        vf bias = vf_load_f32(rule->bias + at);
        score = vf_select(bias == vf_set1(-INFINITY), bias, score + bias); // -inf hides a NaN, too
    }
    return score;
}

LLS_INLINE vi vi_load(const int32_t *p) {
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}

// Exponents are taken against `max`, or against 0 while a row has seen nothing, since -inf - -inf is NaN.
LLS_INLINE vf reference_of(vf max) {
    return vf_select(max == vf_set1(-INFINITY), vf_set1(0), max);
}

// s[key][row] of keys [first, first + keys): scores become weights; max, sum and rescale move on. `masked`: some row
// does not see all of the keys.
LLS_INLINE void wide_softmax_of(query_rows *rows, const score_rule *rule, int32_t first, int64_t keys, float *s,
                                bool masked) {
    for (int32_t r = 0; r < rows->padded; r += LLS_VF) {
        vi begin = vi_load(rows->begin + r), end = vi_load(rows->end + r), position = vi_load(rows->position + r);
        vf slope = vf_load_f32(rows->slope + r), old_max = vf_load_f32(rows->max + r), max = old_max;
        for (int64_t i = 0; i < keys; i++) {
            int64_t at = i * TILE_ROWS + r;
            vi j = vi_set1(first + (int32_t)i);
            vf score = score_of(rule, s, at, j, position, slope);
            if (masked) score = vf_select((j >= begin) & (j < end), score, vf_set1(-INFINITY));
            vf_store_f32(s + at, score);
            max = vf_max(score, max);
        }
        vf reference = reference_of(max), rescale = vf_exp(old_max - reference);
        vf sum = vf_load_f32(rows->sum + r) * rescale;
        for (int64_t i = 0; i < keys; i++) {
            float *at = s + i * TILE_ROWS + r;
            vf weight = vf_exp(vf_load_f32(at) - reference);
            vf_store_f32(at, weight);
            sum += weight;
        }
        vf_store_f32(rows->max + r, max);
        vf_store_f32(rows->sum + r, sum);
        vf_store_f32(rows->rescale + r, rescale);
    }
}

static void wide_softmax(query_rows *rows, const score_rule *rule, int32_t first, int64_t keys, float *s) {
    bool masked = first < rows->last_begin || first + keys > rows->first_end;
    const score_rule plain = {.scale = rule->scale};
    if (rule->softcap > 0 || rule->alibi || rule->bias) wide_softmax_of(rows, rule, first, keys, s, true);
    else if (masked) wide_softmax_of(rows, &plain, first, keys, s, true);
    else wide_softmax_of(rows, &plain, first, keys, s, false);
}

// The same for s[row][key]; lanes past the last key hold anything and get weight 0.
static void few_softmax(query_rows *rows, const score_rule *rule, int32_t first, int64_t keys, float *s) {
    vi lane;
    for (int i = 0; i < LLS_VF; i++) lane[i] = i;
    for (int32_t r = 0; r < rows->count; r++) {
        int32_t end = rows->end[r] < first + (int32_t)keys ? rows->end[r] : first + (int32_t)keys;
        vi row_begin = vi_set1(rows->begin[r]), row_end = vi_set1(end), position = vi_set1(rows->position[r]);
        vf slope = vf_set1(rows->slope[r]), max = vf_set1(rows->max[r]);
        for (int64_t i = 0; i < keys; i += LLS_VF) {
            int64_t at = r * FEW_KEYS + i;
            vi j = lane + vi_set1(first + (int32_t)i);
            vf score = score_of(rule, s, at, j, position, slope);
            score = vf_select((j >= row_begin) & (j < row_end), score, vf_set1(-INFINITY));
            vf_store_f32(s + at, score);
            max = vf_max(score, max);
        }
        max = vf_set1(vf_reduce_max(max));
        vf reference = reference_of(max), rescale = vf_exp(vf_set1(rows->max[r]) - reference), sum = {0};
        for (int64_t i = 0; i < keys; i += LLS_VF) {
            float *at = s + r * FEW_KEYS + i;
            vf weight = vf_exp(vf_load_f32(at) - reference);
            vf_store_f32(at, weight);
            sum += weight;
        }
        rows->max[r] = max[0];
        rows->sum[r] = rows->sum[r] * rescale[0] + vf_sum(sum);
        rows->rescale[r] = rescale[0];
    }
}

/* ---- Weighted sum of values ---- */

/* Weight of (row r, key i) is w[r * row_step + i * key_step]. */
typedef struct weights {
    const float *w;
    int64_t row_step, key_step;
} weights;

// acc[row][columns] = acc * rescale[row] + sum over keys [begin, end) of weight * v[key][columns], for `rows` rows and
// `vectors` vectors of columns.
LLS_INLINE void values_block(lls_dtype dtype, const key_rows *v, int64_t begin, int64_t end, int64_t column, weights w,
                             const float *rescale, float *acc, int64_t dvp, int rows, int vectors) {
    vf sum[4][COLUMN_BLOCK];
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < vectors; c++)
            sum[r][c] = vf_load_f32(acc + r * dvp + column + c * LLS_VF) * vf_set1(rescale[r]);
    }
    for (int64_t j = begin; j < end; j++) {
        vf x[COLUMN_BLOCK];
        for (int c = 0; c < vectors; c++) x[c] = vf_load(dtype, v->row[j], column + c * LLS_VF);
        for (int r = 0; r < rows; r++) {
            vf weight = vf_set1(w.w[r * w.row_step + j * w.key_step]);
            for (int c = 0; c < vectors; c++) sum[r][c] = vf_fma(weight, x[c], sum[r][c]);
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < vectors; c++) vf_store_f32(acc + r * dvp + column + c * LLS_VF, sum[r][c]);
    }
}

LLS_INLINE void values_rows(lls_dtype dtype, const key_rows *v, int64_t begin, int64_t end, weights w,
                            const float *rescale, float *acc, int64_t dvp, int rows) {
    int64_t column = 0;
    for (; column + COLUMN_BLOCK * LLS_VF <= dvp; column += COLUMN_BLOCK * LLS_VF) {
        values_block(dtype, v, begin, end, column, w, rescale, acc, dvp, rows, COLUMN_BLOCK);
    }
    for (; column < dvp; column += LLS_VF) values_block(dtype, v, begin, end, column, w, rescale, acc, dvp, rows, 1);
}

LLS_INLINE void values_rows_n(lls_dtype dtype, const key_rows *v, int64_t begin, int64_t end, weights w,
                              const float *rescale, float *acc, int64_t dvp, int64_t rows) {
    switch (rows) {
    case 1: values_rows(dtype, v, begin, end, w, rescale, acc, dvp, 1); break;
    case 2: values_rows(dtype, v, begin, end, w, rescale, acc, dvp, 2); break;
    case 3: values_rows(dtype, v, begin, end, w, rescale, acc, dvp, 3); break;
    default: values_rows(dtype, v, begin, end, w, rescale, acc, dvp, 4); break;
    }
}

static void values_any(const key_rows *v, int64_t begin, int64_t end, weights w, const float *rescale, float *acc,
                       int64_t dvp, int64_t rows) {
    switch (v->dtype) {
    case LLS_F16: values_rows_n(LLS_F16, v, begin, end, w, rescale, acc, dvp, rows); break;
    case LLS_BF16: values_rows_n(LLS_BF16, v, begin, end, w, rescale, acc, dvp, rows); break;
    default: values_rows_n(LLS_F32, v, begin, end, w, rescale, acc, dvp, rows); break;
    }
}

// The visible part of keys [first, first + keys) added to every row. Four rows share the loads of a value where all
// four see it; the keys at either side of that range, a few at a causal border, go row by row.
static void add_values(query_rows *rows, int32_t first, int64_t keys, const key_rows *v, weights w, int64_t dvp) {
    static const float one[4] = {1, 1, 1, 1};
    for (int32_t r0 = 0; r0 < rows->count; r0 += 4) {
        int32_t count = rows->count - r0 < 4 ? rows->count - r0 : 4;
        int64_t begin[4], end[4], shared_begin = 0, shared_end = keys;
        for (int32_t r = 0; r < count; r++) {
            begin[r] = lls__attn_clamp(rows->begin[r0 + r] - first, 0, keys);
            end[r] = lls__attn_clamp(rows->end[r0 + r] - first, begin[r], keys);
            if (begin[r] > shared_begin) shared_begin = begin[r];
            if (end[r] < shared_end) shared_end = end[r];
        }
        if (shared_end < shared_begin) shared_end = shared_begin;
        float *acc = rows->acc + r0 * dvp;
        const float *rescale = rows->rescale + r0;
        weights block = {w.w + r0 * w.row_step, w.row_step, w.key_step};
        bool ahead = false;
        for (int32_t r = 0; r < count; r++) ahead |= begin[r] < shared_begin && begin[r] < end[r];
        for (int32_t r = 0; ahead && r < count; r++) {
            weights own = {block.w + r * w.row_step, w.row_step, w.key_step};
            values_any(v, begin[r], end[r] < shared_begin ? end[r] : shared_begin, own, rescale + r, acc + r * dvp, dvp,
                       1);
        }
        values_any(v, shared_begin, shared_end, block, ahead ? one : rescale, acc, dvp, count);
        for (int32_t r = 0; r < count; r++) {
            int64_t from = begin[r] > shared_end ? begin[r] : shared_end;
            weights own = {block.w + r * w.row_step, w.row_step, w.key_step};
            if (from < end[r]) values_any(v, from, end[r], own, one, acc + r * dvp, dvp, 1);
        }
    }
}

#endif
