/* Panels: the copies of a block of a or b that the inner loop (micro.h) reads. A panel is a row of strips, each `width`
 * lanes wide (rows of a, columns of b) and stored [words][width], so that the inner loop reads memory in one line. A
 * word is an element as fp32, its block scale included; what it is for int8, i8.h says. Packing takes in every stride
 * and dtype: past it there is one case only.
 * Included by gemm_cpu.c, once a SIMD level. */
#ifndef LLS_OPS_GEMM_PACK_H
#define LLS_OPS_GEMM_PACK_H

#include "core/element.h"
#include "cpu/simd_f8.h"
#include "ops/gemm/i8.h"
#include "ops/gemm/problem.h"

/* Vectors written for a strip whose width is no multiple of LLS_VF hang over its end by less than this many words.
 * Depth goes upwards, so the next store overwrites the overhang; a strip has this much room behind it, so that threads
 * may pack neighbours. */
enum { STRIP_SLACK = LLS_VF };

/* What a strip is made of. */
typedef struct block {
    const void *data; /* element (lane 0, depth 0) */
    lls_dtype dtype;
    int64_t lane_stride, depth_stride; /* elements */
    int64_t lanes, depth;              /* that there are; lanes may be more than the strip takes */
    const lls__gemm_scale *scale;
    int64_t batch, line, k; /* which element (lane 0, depth 0) is to `scale` */
} block;

// Elements along depth that share a word.
LLS_INLINE int a_word(lls_dtype dtype) {
    return dtype == LLS_I8 ? I8_A_WORD : 1;
}

LLS_INLINE int64_t words_of(lls_dtype dtype, int64_t depth) {
    return (depth + a_word(dtype) - 1) / a_word(dtype);
}

// Of the dtypes of a, b and out but i32: inlined, and literal where the dtype is.
LLS_INLINE int64_t bytes_of(lls_dtype dtype) {
    return dtype == LLS_F32 ? 4 : dtype == LLS_F16 || dtype == LLS_BF16 ? 2 : 1;
}

LLS_INLINE vf load_all(lls_dtype dtype, const void *p) {
    switch (dtype) {
    case LLS_F8_E4M3: return vf_load_e4m3(p);
    case LLS_F8_E5M2: return vf_load_e5m2(p);
    default: return vf_load(dtype, p, 0);
    }
}

// Element i and its neighbours, `n` at most; past them 0.
LLS_INLINE vf load_some(lls_dtype dtype, const void *base, int64_t i, int64_t n) {
    const char *p = (const char *)base + i * bytes_of(dtype);
    if (n >= LLS_VF) return load_all(dtype, p);
    char buffer[LLS_VF * 4] = {0};
    if (n > 0) memcpy(buffer, p, (size_t)(n * bytes_of(dtype)));
    return load_all(dtype, buffer);
}

/* `whole` below is a literal: all that a loop of constant length would read is there, and tails cost nothing. */

// LLS_VF words of a lane whose depth is contiguous, from depth d on; past the last 0.
LLS_INLINE vf load_along_depth(lls_dtype dtype, const block *x, bool whole, int64_t lane, int64_t d) {
    int64_t i = lane * x->lane_stride + d, left = whole ? LLS_VF * a_word(dtype) : x->depth - d;
    if (dtype == LLS_I8) return i8_along_depth((const int8_t *)x->data + i, left);
    return load_some(dtype, x->data, i, left);
}

// The word at depth d of LLS_VF lanes that are neighbours in memory; past the last 0.
LLS_INLINE vf load_across_lanes(lls_dtype dtype, const block *x, bool whole, int64_t lane, int64_t d) {
    int64_t i = d * x->depth_stride + lane, left = whole ? LLS_VF : x->lanes - lane;
    if (dtype == LLS_I8) return i8_across_lanes((const int8_t *)x->data + i, left, x->depth_stride, x->depth - d);
    return load_some(dtype, x->data, i, left);
}

// Lanes are neighbours in memory: copies.
LLS_INLINE void copy_lanes(lls_dtype dtype, const block *x, bool whole, int width, float *strip) {
    for (int64_t d = 0; d < x->depth; d += a_word(dtype), strip += width) {
#pragma GCC unroll 4
        for (int v = 0; v < width; v += LLS_VF) vf_store_f32(strip + v, load_across_lanes(dtype, x, whole, v, d));
    }
}

LLS_INLINE void pack_copied(lls_dtype dtype, const block *x, int width, float *strip) {
    int whole_width = (width + LLS_VF - 1) / LLS_VF * LLS_VF;
    if (x->lanes >= whole_width) copy_lanes(dtype, x, true, width, strip);
    else copy_lanes(dtype, x, false, width, strip);
}

// Depth is contiguous: a square block of LLS_VF lanes, `lanes` of which the strip takes, is read along it and transposed.
LLS_INLINE void transpose_lanes(lls_dtype dtype, const block *x, bool whole, int64_t lane, int lanes, int64_t word,
                                int width, float *to) {
    vf square[LLS_VF];
#pragma GCC unroll 16
    for (int i = 0; i < LLS_VF; i++) {
        bool is_there = i < lanes && (whole || lane + i < x->lanes);
        square[i] = is_there ? load_along_depth(dtype, x, whole, lane + i, word * a_word(dtype)) : vf_set1(0);
    }
    vf_transpose(square);
    int64_t left = words_of(dtype, x->depth) - word;
    if (whole || left >= LLS_VF) {
#pragma GCC unroll 16
        for (int i = 0; i < LLS_VF; i++) vf_store_f32(to + i * width, square[i]);
    } else {
        for (int i = 0; i < left; i++) vf_store_f32(to + i * width, square[i]);
    }
}

LLS_INLINE void pack_transposed(lls_dtype dtype, const block *x, int width, float *strip) {
    int64_t whole_words = x->lanes < width ? 0 : x->depth / (LLS_VF * a_word(dtype)) * LLS_VF;
    for (int v = 0; v < width; v += LLS_VF) {
        int lanes = width - v < LLS_VF ? width - v : LLS_VF;
        int64_t word = 0;
        for (; word < whole_words; word += LLS_VF)
            transpose_lanes(dtype, x, true, v, lanes, word, width, strip + word * width + v);
        for (; word < words_of(dtype, x->depth); word += LLS_VF)
            transpose_lanes(dtype, x, false, v, lanes, word, width, strip + word * width + v);
    }
}

LLS_INLINE void pack_gathered(lls_dtype dtype, const block *x, int width, float *strip) {
    lls_tensor t = {.data = (void *)x->data, .dtype = dtype};
    for (int64_t d = 0; d < x->depth; d += a_word(dtype), strip += width) {
        for (int lane = 0; lane < width; lane++) {
            int64_t i = lane * x->lane_stride + d * x->depth_stride;
            if (lane >= x->lanes) strip[lane] = 0;
            else if (dtype == LLS_I8)
                i8_gather((const int8_t *)x->data + i, x->depth_stride, x->depth - d, strip + lane);
            else strip[lane] = (float)lls__get(&t, i);
        }
    }
}

LLS_INLINE void pack_typed(lls_dtype dtype, const block *x, int width, float *strip) {
    if (x->lane_stride == 1) pack_copied(dtype, x, width, strip);
    else if (x->depth_stride == 1) pack_transposed(dtype, x, width, strip);
    else pack_gathered(dtype, x, width, strip);
}

// Multiplies by the block scales, each of which holds up to the next multiple of 128 of k. An f8 has so few bits that
// its product with a scale is as good as one rounding of the scale.
LLS_INLINE void scale_strip(const block *x, int width, float *strip) {
    for (int64_t d = 0; d < x->depth;) {
        float scale[2 * LLS_VF];
        for (int lane = 0; lane < width; lane++) {
            scale[lane] = lane < x->lanes ? lls__gemm_scale_at(x->scale, x->batch, x->line + lane, x->k + d) : 1;
        }
        int64_t end = d + LLS__GEMM_BLOCK - (x->k + d) % LLS__GEMM_BLOCK;
        for (; d < end && d < x->depth; d++, strip += width) {
            for (int lane = 0; lane < width; lane++) strip[lane] *= scale[lane];
        }
    }
}

/* Lanes past the last are 0. */
LLS_INLINE void pack(const block *x, int width, float *strip) {
    switch (x->dtype) { // a literal dtype in each call: the conversions are chosen outside the loops
    case LLS_F16: pack_typed(LLS_F16, x, width, strip); break;
    case LLS_BF16: pack_typed(LLS_BF16, x, width, strip); break;
    case LLS_F8_E4M3: pack_typed(LLS_F8_E4M3, x, width, strip); break;
    case LLS_F8_E5M2: pack_typed(LLS_F8_E5M2, x, width, strip); break;
    case LLS_I8: pack_typed(LLS_I8, x, width, strip); break;
    default: pack_typed(LLS_F32, x, width, strip); break;
    }
    if (x->scale->blocks) scale_strip(x, width, strip);
}

#endif
