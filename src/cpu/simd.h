/* Vectors of fp32 for the level that the including file is compiled for. GCC's vector extensions carry the arithmetic
 * (+ - * / and comparisons work on vf and vi), so that one source serves every level; only conversions and reductions
 * are named here.
 *
 * vf_load(dtype, base, i) reads LLS_VF elements of a float dtype as fp32, vf_store rounds to nearest even. Both inline:
 * with a loop-invariant dtype the compiler hoists the switch out of the loop. The _n forms touch only the first n
 * elements: row tails need no padding. */
#ifndef LLS_CPU_SIMD_H
#define LLS_CPU_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cpu/half.h"
#include "cpu/level.h"
#include "llmspeed/core.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LLS_VF 16
#elif defined(__AVX2__)
#define LLS_VF 8
#else
#define LLS_VF 4
#endif

typedef float vf __attribute__((vector_size(LLS_VF * 4)));
typedef int32_t vi __attribute__((vector_size(LLS_VF * 4)));

#define LLS_INLINE static inline __attribute__((always_inline, unused))

LLS_INLINE vf vf_set1(float x) {
    return x - (vf){0}; // the scalar broadcasts; x - 0 keeps the sign of zero
}

LLS_INLINE vi vi_set1(int32_t x) {
    return x + (vi){0};
}

LLS_INLINE vf vf_load_f32(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

LLS_INLINE void vf_store_f32(float *p, vf v) {
    memcpy(p, &v, sizeof v);
}

LLS_INLINE vf vf_load_f16(const uint16_t *p) {
#if defined(__AVX512F__)
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif defined(__AVX2__)
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#else
    vf v;
    for (int i = 0; i < LLS_VF; i++) v[i] = lls__f16_to_f32(p[i]);
    return v;
#endif
}

LLS_INLINE void vf_store_f16(uint16_t *p, vf v) {
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__AVX2__)
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
    for (int i = 0; i < LLS_VF; i++) p[i] = lls__f32_to_f16(v[i]);
#endif
}

LLS_INLINE vf vf_load_bf16(const uint16_t *p) {
#if defined(__AVX512F__)
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16);
#elif defined(__AVX2__)
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16);
#else
    typedef uint16_t vh __attribute__((vector_size(LLS_VF * 2)));
    vh h;
    memcpy(&h, p, sizeof h);
    vi wide = __builtin_convertvector(h, vi) << 16;
    return (vf)wide;
#endif
}

LLS_INLINE void vf_store_bf16(uint16_t *p, vf v) {
    typedef uint32_t vu __attribute__((vector_size(LLS_VF * 4)));
    typedef uint16_t vh __attribute__((vector_size(LLS_VF * 2)));
    vu u = (vu)v;
    vu rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16, quiet = u >> 16 | 0x40;
    vu nan = (vu)(v != v);
    vh h = __builtin_convertvector((nan & quiet) | (~nan & rounded), vh);
    memcpy(p, &h, sizeof h);
}

LLS_INLINE vf vf_load(lls_dtype dtype, const void *base, int64_t i) {
    switch (dtype) {
    case LLS_F16: return vf_load_f16((const uint16_t *)base + i);
    case LLS_BF16: return vf_load_bf16((const uint16_t *)base + i);
    default: return vf_load_f32((const float *)base + i);
    }
}

LLS_INLINE void vf_store(lls_dtype dtype, void *base, int64_t i, vf v) {
    switch (dtype) {
    case LLS_F16: vf_store_f16((uint16_t *)base + i, v); break;
    case LLS_BF16: vf_store_bf16((uint16_t *)base + i, v); break;
    default: vf_store_f32((float *)base + i, v); break;
    }
}

/* Elements past n read as 0. */
LLS_INLINE vf vf_load_n(lls_dtype dtype, const void *base, int64_t i, int64_t n) {
    char block[LLS_VF * 4] = {0};
    size_t size = dtype == LLS_F32 ? 4 : 2;
    memcpy(block, (const char *)base + (size_t)i * size, (size_t)n * size);
    return vf_load(dtype, block, 0);
}

LLS_INLINE void vf_store_n(lls_dtype dtype, void *base, int64_t i, int64_t n, vf v) {
    char block[LLS_VF * 4];
    size_t size = dtype == LLS_F32 ? 4 : 2;
    vf_store(dtype, block, 0, v);
    memcpy((char *)base + (size_t)i * size, block, (size_t)n * size);
}

/* a * b + c with one rounding where the level has FMA. */
LLS_INLINE vf vf_fma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

/* Lanes of `mask` are 0 or -1, as comparisons make them. */
LLS_INLINE vf vf_select(vi mask, vf yes, vf no) {
#if defined(__AVX512F__)
    return (vf)_mm512_mask_blend_ps(_mm512_movepi32_mask((__m512i)mask), (__m512)no, (__m512)yes);
#elif defined(__AVX2__)
    return (vf)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)mask);
#else
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
#endif
}

/* a > b ? a : b and a < b ? a : b: a NaN on either side gives b. */
LLS_INLINE vf vf_max(vf a, vf b) {
#if defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vf_select(a > b, a, b);
#endif
}

LLS_INLINE vf vf_min(vf a, vf b) {
#if defined(__AVX512F__)
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return vf_select(a < b, a, b);
#endif
}

/* The even and the odd half of the perfect shuffle of two vectors. */
#if LLS_VF == 16
#define LLS__SHUFFLE_LOW(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define LLS__SHUFFLE_HIGH(a, b) \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif LLS_VF == 8
#define LLS__SHUFFLE_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define LLS__SHUFFLE_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define LLS__SHUFFLE_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define LLS__SHUFFLE_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* Transposes LLS_VF x LLS_VF: each perfect shuffle of the rows turns the index (row, column) by one bit, log2(LLS_VF)
 * of them exchange the two halves. */
LLS_INLINE void vf_transpose(vf rows[LLS_VF]) {
#pragma GCC unroll 4
    for (int turned = 1; turned < LLS_VF; turned *= 2) {
        vf next[LLS_VF];
#pragma GCC unroll 8
        for (int i = 0; i < LLS_VF / 2; i++) {
            next[2 * i] = LLS__SHUFFLE_LOW(rows[i], rows[i + LLS_VF / 2]);
            next[2 * i + 1] = LLS__SHUFFLE_HIGH(rows[i], rows[i + LLS_VF / 2]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < LLS_VF; i++) rows[i] = next[i];
    }
}

/* Sum and maximum of the lanes, in a fixed order. */
LLS_INLINE float vf_sum(vf v) {
    float lanes[LLS_VF];
    memcpy(lanes, &v, sizeof v);
    for (int width = LLS_VF / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
    }
    return lanes[0];
}

LLS_INLINE float vf_reduce_max(vf v) {
    float lanes[LLS_VF];
    memcpy(lanes, &v, sizeof v);
    for (int width = LLS_VF / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) lanes[i] = lanes[i] > lanes[i + width] ? lanes[i] : lanes[i + width];
    }
    return lanes[0];
}

/* e^x to under 1 ulp (1.2 without FMA): 2^n times a degree-6 polynomial on [-ln2/2, ln2/2] (Cody and Waite range
 * reduction). -inf gives 0, above 88.72 gives +inf, NaN stays NaN; results under 2^-126 flush to 0. */
LLS_INLINE vf vf_exp(vf x) {
    vf clamped = vf_min(vf_max(x, vf_set1(-87.33654f)), vf_set1(88.72284f));
    vf shifted = vf_fma(clamped, vf_set1(1.44269504f),
                        vf_set1(12582912.0f)); // 1.5 * 2^23: the integer lands in the low mantissa bits
    vf n = shifted - vf_set1(12582912.0f);
    vf r = vf_fma(n, vf_set1(-0.693145752f), clamped);
    r = vf_fma(n, vf_set1(-1.42860677e-6f), r);
    vf p = vf_set1(
        // minimax fit with the first two coefficients held at 1: 3e-9 from e^r, where Taylor's seventh term is 1e-7
        0.00138212263f);
    p = vf_fma(p, r, vf_set1(0.00836866722f));
    p = vf_fma(p, r, vf_set1(0.0416682586f));
    p = vf_fma(p, r, vf_set1(0.166665211f));
    p = vf_fma(p, r, vf_set1(0.49999994f));
    p = vf_fma(p, r, vf_set1(1.0f));
    p = vf_fma(p, r, vf_set1(1.0f));
#if defined(__AVX512F__)
    vf y = (vf)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    vi exponent = (vi)shifted - vi_set1(0x4b400000);
    vi half = exponent >> 1; // two factors, so that n = 128 does not overflow the exponent field
    vf scale = (vf)((half + 127) << 23), rest = (vf)((exponent - half + 127) << 23);
    vf y = p * scale * rest;
#endif
    y = vf_select(x < vf_set1(-87.33654f), vf_set1(0), y);
    y = vf_select(x > vf_set1(88.72284f), vf_set1(INFINITY), y);
    return vf_select(x != x, x, y);
}

#endif
