/* Panels: the copies of a block of a or b that the inner loop (micro.h) reads. A panel is a row of strips, each `width`
 * lanes wide (rows of a, columns of b) and stored [words][width], so that the inner loop reads memory in one line. A
 * word is an element as fp32; what it is for int8, i8.h says. Packing takes in every stride and float dtype: past it
 * there is one case only.
 * Included by gemm_cpu.c, once a SIMD level. */
#ifndef LLS_OPS_GEMM_PACK_H
#define LLS_OPS_GEMM_PACK_H

#include "core/element.h"
#include "ops/gemm/i8.h"

/* Vectors written for a strip whose width is no multiple of LLS_VF hang over its end by less than this many words.
 * Depth goes upwards, so the next store overwrites the overhang; panels have this much room behind their last strip. */
enum { PANEL_SLACK = LLS_VF, PREFETCH_DEPTH = 16 };

typedef struct block {
    const void *data; /* element (lane 0, depth 0) */
    lls_dtype dtype;
    int64_t lane_stride, depth_stride; /* elements */
    int64_t lanes, depth;
} block;

// Elements along depth that share a word.
LLS_INLINE int a_word(lls_dtype dtype) {
    return dtype == LLS_I8 ? I8_A_WORD : 1;
}

LLS_INLINE int64_t words_of(lls_dtype dtype, int64_t depth) {
    return (depth + a_word(dtype) - 1) / a_word(dtype);
}

// LLS_VF words of a lane whose depth is contiguous, from depth d on; past the last 0.
LLS_INLINE vf load_along_depth(lls_dtype dtype, const block *x, int64_t lane, int64_t d) {
    int64_t i = lane * x->lane_stride + d, left = x->depth - d;
    if (dtype == LLS_I8) return i8_along_depth((const int8_t *)x->data + i, left);
    return left >= LLS_VF ? vf_load(dtype, x->data, i) : vf_load_n(dtype, x->data, i, left);
}

// The word at depth d of LLS_VF lanes that are neighbours in memory; past the last 0.
LLS_INLINE vf load_across_lanes(lls_dtype dtype, const block *x, int64_t lane, int64_t d) {
    int64_t i = d * x->depth_stride + lane, left = x->lanes - lane;
    if (dtype == LLS_I8) return i8_across_lanes((const int8_t *)x->data + i, left, x->depth_stride, x->depth - d);
    return left >= LLS_VF ? vf_load(dtype, x->data, i) : left > 0 ? vf_load_n(dtype, x->data, i, left) : vf_set1(0);
}

// Lanes are neighbours in memory: copies. A strip is a narrow column of a wide matrix, which hardware prefetchers do
// not follow: hence ours.
LLS_INLINE void pack_copied(lls_dtype dtype, const block *x, int64_t first, int width, float *strip) {
    int64_t size = dtype == LLS_F32 ? 4 : dtype == LLS_I8 ? 1 : 2, ahead = PREFETCH_DEPTH * a_word(dtype);
    for (int64_t d = 0; d < x->depth; d += a_word(dtype), strip += width) {
        for (int64_t row = d + ahead; row < d + ahead + a_word(dtype); row++) { // past the end it is harmless
            const char *start = (const char *)x->data + (row * x->depth_stride + first) * size;
            for (int64_t byte = 0; byte < width * size; byte += 64) __builtin_prefetch(start + byte);
        }
        for (int v = 0; v < width; v += LLS_VF) vf_store_f32(strip + v, load_across_lanes(dtype, x, first + v, d));
    }
}

// Depth is contiguous: square blocks of LLS_VF lanes are read along it and transposed.
LLS_INLINE void pack_transposed(lls_dtype dtype, const block *x, int64_t first, int width, float *strip) {
    int64_t words = words_of(dtype, x->depth);
    for (int v = 0; v < width; v += LLS_VF) {
        int64_t lanes = x->lanes - first - v;
        for (int64_t word = 0; word < words; word += LLS_VF) {
            vf square[LLS_VF];
#pragma GCC unroll 16
            for (int lane = 0; lane < LLS_VF; lane++) {
                square[lane] = lane < lanes ? load_along_depth(dtype, x, first + v + lane, word * a_word(dtype))
                                            : vf_set1(0);
            }
            vf_transpose(square);
            float *to = strip + word * width + v;
            if (words - word >= LLS_VF) {
#pragma GCC unroll 16
                for (int i = 0; i < LLS_VF; i++) vf_store_f32(to + i * width, square[i]);
            } else {
                for (int i = 0; i < words - word; i++) vf_store_f32(to + i * width, square[i]);
            }
        }
    }
}

LLS_INLINE void pack_gathered(lls_dtype dtype, const block *x, int64_t first, int width, float *strip) {
    lls_tensor t = {.data = (void *)x->data, .dtype = dtype};
    for (int64_t d = 0; d < x->depth; d += a_word(dtype), strip += width) {
        for (int lane = 0; lane < width; lane++) {
            int64_t i = (first + lane) * x->lane_stride + d * x->depth_stride;
            if (first + lane >= x->lanes) strip[lane] = 0;
            else if (dtype == LLS_I8)
                i8_gather((const int8_t *)x->data + i, x->depth_stride, x->depth - d, strip + lane);
            else strip[lane] = (float)lls__get(&t, i);
        }
    }
}

LLS_INLINE void pack_typed(lls_dtype dtype, const block *x, int width, float *panel) {
    int64_t strip_words = words_of(dtype, x->depth) * width;
    for (int64_t first = 0; first < x->lanes; first += width, panel += strip_words) {
        if (x->lane_stride == 1) pack_copied(dtype, x, first, width, panel);
        else if (x->depth_stride == 1) pack_transposed(dtype, x, first, width, panel);
        else pack_gathered(dtype, x, first, width, panel);
    }
}

/* Writes ceil(lanes / width) strips; lanes past the end are 0. */
static void pack(const block *x, int width, float *panel) {
    switch (x->dtype) { // a literal dtype in each call: the conversions are chosen outside the loops
    case LLS_F16: pack_typed(LLS_F16, x, width, panel); break;
    case LLS_BF16: pack_typed(LLS_BF16, x, width, panel); break;
    case LLS_I8: pack_typed(LLS_I8, x, width, panel); break;
    default: pack_typed(LLS_F32, x, width, panel); break;
    }
}

#endif
