/* The bias of one tile: brought into the layout of the tile's scores, so that the softmax adds it a vector at a time
 * whatever its strides and dtype are. Included by attn_cpu.c, once a SIMD level.
 *
 * A key that the bias hides gets weight 0, which is harmless for finite values alone. Tiles that hold others, where
 * keys are hidden, are summed row by row over runs of visible keys. */
#ifndef LLS_OPS_ATTN_COMMON_ATTN_BIAS_CPU_H
#define LLS_OPS_ATTN_COMMON_ATTN_BIAS_CPU_H

#include "ops/attn_common/attn_tile_cpu.h"

// n elements from `at` on, `step` apart; the rest of the vector is 0.
LLS_INLINE vf gather(lls_dtype dtype, const void *at, int64_t step, int64_t n) {
    union {
        uint16_t half[LLS_VF];
        float full[LLS_VF];
    } lanes = {.full = {0}};
    for (int64_t i = 0; i < n; i++) {
        if (dtype == LLS_F32) lanes.full[i] = ((const float *)at)[i * step];
        else lanes.half[i] = ((const uint16_t *)at)[i * step];
    }
    return vf_load(dtype, &lanes, 0);
}

LLS_INLINE int64_t load_bias_row_of(lls_dtype dtype, const void *from, int64_t step, int64_t n, float *to) {
    int64_t size = dtype == LLS_F32 ? 4 : 2;
    vi hidden = {0};
    for (int64_t i = 0; i < n; i += LLS_VF) {
        bool whole = n - i >= LLS_VF;
        vf x = whole && step == 1 ? vf_load(dtype, from, i)
                                  : gather(dtype, (const char *)from + i * step * size, step, whole ? LLS_VF : n - i);
        vf_store_f32(to + i, x);
        hidden -= x == vf_set1(-INFINITY);
    }
    int64_t count = 0;
    for (int i = 0; i < LLS_VF; i++) count += hidden[i];
    return count;
}

// to [n rounded up to whole vectors] = n elements `step` apart, the rest 0; returns how many of them are -inf.
static int64_t load_bias_row(lls_dtype dtype, const void *from, int64_t step, int64_t n, float *to) {
    switch (dtype) {
    case LLS_F16: return load_bias_row_of(LLS_F16, from, step, n, to);
    case LLS_BF16: return load_bias_row_of(LLS_BF16, from, step, n, to);
    default: return load_bias_row_of(LLS_F32, from, step, n, to);
    }
}

// to = the bias of keys [first, first + keys), [row][FEW_KEYS] for few rows, [key][TILE_ROWS] for many; returns how
// many (row, key) pairs it hides.
static int64_t load_bias(const query_rows *rows, int64_t first, int64_t keys, bool few, float *to) {
    int64_t hidden = 0, offset = first * rows->bias_key * (rows->bias_dtype == LLS_F32 ? 4 : 2);
    if (few) {
        for (int32_t r = 0; r < rows->count; r++)
            hidden += load_bias_row(rows->bias_dtype, rows->bias[r] + offset, rows->bias_key, keys, to + r * FEW_KEYS);
        return hidden;
    }
    _Alignas(64) float block[LLS_VF][WIDE_KEYS];
    for (int32_t r = 0; r < rows->padded; r += LLS_VF) {
        for (int32_t i = 0; i < LLS_VF; i++) {
            if (r + i < rows->count)
                hidden += load_bias_row(rows->bias_dtype, rows->bias[r + i] + offset, rows->bias_key, keys, block[i]);
            else memset(block[i], 0, sizeof block[i]);
        }
        for (int64_t j = 0; j < keys; j += LLS_VF) {
            vf square[LLS_VF];
            for (int i = 0; i < LLS_VF; i++) square[i] = vf_load_f32(block[i] + j);
            vf_transpose(square);
            for (int i = 0; i < LLS_VF; i++) vf_store_f32(to + (j + i) * TILE_ROWS + r, square[i]);
        }
    }
    return hidden;
}

LLS_INLINE bool are_finite_of(lls_dtype dtype, const key_rows *v, int64_t keys, int64_t dvp) {
    vi bad = {0};
    for (int64_t j = 0; j < keys; j++) {
        for (int64_t d = 0; d < dvp; d += LLS_VF) {
            vf x = vf_load(dtype, v->row[j], d);
            bad |= x - x != vf_set1(0);
        }
    }
    int32_t any = 0;
    for (int i = 0; i < LLS_VF; i++) any |= bad[i];
    return !any;
}

static bool are_finite(const key_rows *v, int64_t keys, int64_t dvp) {
    switch (v->dtype) {
    case LLS_F16: return are_finite_of(LLS_F16, v, keys, dvp);
    case LLS_BF16: return are_finite_of(LLS_BF16, v, keys, dvp);
    default: return are_finite_of(LLS_F32, v, keys, dvp);
    }
}

// add_values without ever touching a value for a row from which the bias hides it. `bias` lies as the weights do.
static void add_visible_values(query_rows *rows, int32_t first, int64_t keys, const key_rows *v, weights w,
                               const float *bias, int64_t dvp) {
    static const float one = 1;
    for (int32_t r = 0; r < rows->count; r++) {
        weights own = {w.w + r * w.row_step, w.row_step, w.key_step};
        const float *hides = bias + r * w.row_step, *rescale = rows->rescale + r;
        int64_t j = lls__attn_clamp(rows->begin[r] - first, 0, keys), end = rows->end[r] - first;
        end = lls__attn_clamp(end, j, keys);
        do { // at least once: acc is due to be rescaled
            while (j < end && hides[j * w.key_step] == -INFINITY) j++;
            int64_t begin = j;
            while (j < end && hides[j * w.key_step] != -INFINITY) j++;
            values_any(v, begin, j, own, rescale, rows->acc + r * dvp, dvp, 1);
            rescale = &one;
        } while (j < end);
    }
}

#endif
