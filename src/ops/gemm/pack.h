/* Panels: the fp32 copies of a block of a or b that the inner loop of gemm_cpu.c reads. A panel is a row of strips,
 * each `width` lanes wide (rows of a, columns of b) and stored [depth][width], so that the inner loop reads memory in
 * one line. Packing takes in every stride and dtype: past it there is one case only.
 * Included by gemm_cpu.c, once a SIMD level. */
#ifndef LLS_OPS_GEMM_PACK_H
#define LLS_OPS_GEMM_PACK_H

#include "core/element.h"
#include "cpu/simd.h"

/* Vectors written for a strip whose width is no multiple of LLS_VF hang over its end by less than this many floats.
 * Depth goes upwards, so the next store overwrites the overhang; panels have this much room behind their last strip. */
enum { PANEL_SLACK = LLS_VF, PREFETCH_DEPTH = 16 };

typedef struct block {
    const void *data; /* element (lane 0, depth 0) */
    lls_dtype dtype;
    int64_t lane_stride, depth_stride; /* elements */
    int64_t lanes, depth;
} block;

// Lanes are neighbours in memory: copies. A strip is a narrow column of a wide matrix, which hardware prefetchers do
// not follow: hence ours.
LLS_INLINE void pack_copied(lls_dtype dtype, const block *x, int64_t first, int width, float *strip) {
    int64_t size = dtype == LLS_F32 ? 4 : 2;
    for (int64_t d = 0; d < x->depth; d++) {
        const char *ahead = (const char *)x->data + ((d + PREFETCH_DEPTH) * x->depth_stride + first) *
                                                        size; // a prefetch past the end is harmless
        for (int64_t byte = 0; byte < width * size; byte += 64) __builtin_prefetch(ahead + byte);
        for (int v = 0; v < width; v += LLS_VF) {
            int64_t i = d * x->depth_stride + first + v, left = x->lanes - first - v;
            vf lanes = left >= LLS_VF ? vf_load(dtype, x->data, i)
                       : left > 0     ? vf_load_n(dtype, x->data, i, left)
                                      : vf_set1(0);
            vf_store_f32(strip + d * width + v, lanes);
        }
    }
}

// Depth is contiguous: square blocks of LLS_VF lanes are read along it and transposed.
LLS_INLINE void pack_transposed(lls_dtype dtype, const block *x, int64_t first, int width, float *strip) {
    for (int v = 0; v < width; v += LLS_VF) {
        int64_t lanes = x->lanes - first - v;
        for (int64_t d = 0; d < x->depth; d += LLS_VF) {
            int64_t left = x->depth - d;
            vf square[LLS_VF];
#pragma GCC unroll 16
            for (int lane = 0; lane < LLS_VF; lane++) {
                int64_t i = (first + v + lane) * x->lane_stride + d;
                square[lane] = lane >= lanes    ? vf_set1(0)
                               : left >= LLS_VF ? vf_load(dtype, x->data, i)
                                                : vf_load_n(dtype, x->data, i, left);
            }
            vf_transpose(square);
            float *to = strip + d * width + v;
            if (left >= LLS_VF) {
#pragma GCC unroll 16
                for (int i = 0; i < LLS_VF; i++) vf_store_f32(to + i * width, square[i]);
            } else {
                for (int i = 0; i < left; i++) vf_store_f32(to + i * width, square[i]);
            }
        }
    }
}

LLS_INLINE void pack_gathered(const block *x, int64_t first, int width, float *strip) {
    lls_tensor t = {.data = (void *)x->data, .dtype = x->dtype};
    for (int64_t d = 0; d < x->depth; d++) {
        for (int lane = 0; lane < width; lane++) {
            bool inside = first + lane < x->lanes;
            strip[d * width + lane] =
                inside ? (float)lls__get(&t, (first + lane) * x->lane_stride + d * x->depth_stride) : 0.0f;
        }
    }
}

LLS_INLINE void pack_typed(lls_dtype dtype, const block *x, int width, float *panel) {
    for (int64_t first = 0; first < x->lanes; first += width, panel += x->depth * width) {
        if (x->lane_stride == 1) pack_copied(dtype, x, first, width, panel);
        else if (x->depth_stride == 1) pack_transposed(dtype, x, first, width, panel);
        else pack_gathered(x, first, width, panel);
    }
}

/* Writes ceil(lanes / width) strips; lanes past the end are 0. */
static void pack(const block *x, int width, float *panel) {
    switch (x->dtype) { // a literal dtype in each call: the conversions are chosen outside the loops
    case LLS_F16: pack_typed(LLS_F16, x, width, panel); break;
    case LLS_BF16: pack_typed(LLS_BF16, x, width, panel); break;
    default: pack_typed(LLS_F32, x, width, panel); break;
    }
}

#endif
