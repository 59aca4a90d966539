/* int8 at this SIMD level: what a word of a panel (pack.h) holds, and how the inner loop (micro.h) multiplies words.
 * Sums are int32 modulo 2^32, exact, so it does not matter where blocks cut them.
 *
 * AVX-512 VNNI: a word is four bytes along depth, and one instruction adds four products to each sum. It takes one
 * factor unsigned: panels of a hold a + 128, and sums start at -128 times the sum of their column of b.
 * AVX2: two 16-bit integers, whose products one instruction adds up and a second adds to the sum.
 * Portable: one element as fp32, like any float dtype. A product of int8 is at most 2^14, so a block of 256 adds up
 * exactly within fp32's 24 bits, and only then becomes an integer.
 * Included by pack.h and micro.h, once a SIMD level. */
#ifndef LLS_OPS_GEMM_I8_H
#define LLS_OPS_GEMM_I8_H

#include "cpu/simd.h"

typedef uint32_t vu __attribute__((vector_size(LLS_VF * 4))); /* sums: unsigned ones may wrap */

/* Each level has four functions. `p` is the first element of the word or words; `left` (along depth) and `lanes` count
 * the elements from p on, of which there may be none: what is past them is 0.
 *   i8_along_depth   LLS_VF words of one lane whose elements are neighbours in memory
 *   i8_across_lanes  one word each of LLS_VF lanes that are neighbours in memory
 *   i8_gather        one word of one lane, at any stride
 *   i8_multiply_add  sum + a b, for each lane of the vectors */
#if defined(__AVX512VNNI__)

enum { I8_A_WORD = 4, I8_IS_BIASED = 1 };

LLS_INLINE uint64_t i8_mask(int64_t count) {
    return count >= 64 ? ~UINT64_C(0) : count > 0 ? (UINT64_C(1) << count) - 1 : 0;
}

LLS_INLINE vf i8_along_depth(const int8_t *p, int64_t left) {
    return (vf)_mm512_maskz_loadu_epi8(i8_mask(left), p);
}

LLS_INLINE vf i8_across_lanes(const int8_t *p, int64_t lanes, int64_t depth_stride, int64_t left) {
    vu quads = {0};
    for (int d = 0; d < 4 && d < left; d++) {
        __m128i bytes = _mm_maskz_loadu_epi8((__mmask16)i8_mask(lanes), p + d * depth_stride);
        quads |= (vu)_mm512_cvtepu8_epi32(bytes) << 8 * d;
    }
    return (vf)quads;
}

LLS_INLINE void i8_gather(const int8_t *p, int64_t depth_stride, int64_t left, float *word) {
    int8_t quad[4] = {0};
    for (int d = 0; d < 4 && d < left; d++) quad[d] = p[d * depth_stride];
    memcpy(word, quad, sizeof quad);
}

LLS_INLINE vf i8_multiply_add(vf a, vf b, vf sum) {
    return (vf)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
}

#elif defined(__AVX2__)

enum { I8_A_WORD = 2, I8_IS_BIASED = 0 };

// 16 bytes, of which `count` are there.
LLS_INLINE __m128i i8_load(const int8_t *p, int64_t count) {
    int8_t block[16] = {0};
    if (count < 16) p = memcpy(block, p, count > 0 ? (size_t)count : 0);
    return _mm_loadu_si128((const __m128i *)p);
}

LLS_INLINE vf i8_along_depth(const int8_t *p, int64_t left) {
    return (vf)_mm256_cvtepi8_epi16(i8_load(p, left));
}

LLS_INLINE vf i8_across_lanes(const int8_t *p, int64_t lanes, int64_t depth_stride, int64_t left) {
    vi first = (vi)_mm256_cvtepi8_epi32(i8_load(p, lanes)), second = {0};
    if (left > 1) second = (vi)_mm256_cvtepi8_epi32(i8_load(p + depth_stride, lanes));
    return (vf)((first & 0xffff) | second << 16);
}

LLS_INLINE void i8_gather(const int8_t *p, int64_t depth_stride, int64_t left, float *word) {
    int16_t pair[2] = {p[0], left > 1 ? p[depth_stride] : 0};
    memcpy(word, pair, sizeof pair);
}

LLS_INLINE vf i8_multiply_add(vf a, vf b, vf sum) {
    return (vf)_mm256_add_epi32((__m256i)sum, _mm256_madd_epi16((__m256i)a, (__m256i)b));
}

#else

enum { I8_A_WORD = 1, I8_IS_BIASED = 0 };

LLS_INLINE vf i8_along_depth(const int8_t *p, int64_t left) {
    int8_t block[LLS_VF] = {0}, bytes __attribute__((vector_size(LLS_VF)));
    if (left < LLS_VF) p = memcpy(block, p, left > 0 ? (size_t)left : 0);
    memcpy(&bytes, p, sizeof bytes);
    return __builtin_convertvector(__builtin_convertvector(bytes, vi), vf);
}

LLS_INLINE vf i8_across_lanes(const int8_t *p, int64_t lanes, int64_t depth_stride, int64_t left) {
    (void)depth_stride, (void)left;
    return i8_along_depth(p, lanes);
}

LLS_INLINE void i8_gather(const int8_t *p, int64_t depth_stride, int64_t left, float *word) {
    (void)depth_stride, (void)left;
    *word = *p;
}

LLS_INLINE vf i8_multiply_add(vf a, vf b, vf sum) {
    return vf_fma(a, b, sum);
}

#endif

LLS_INLINE vf i8_broadcast(const float *word) {
    if (I8_A_WORD == 1) return vf_set1(*word);
    int32_t bits;
    memcpy(&bits, word, sizeof bits);
    return (vf)vi_set1(bits);
}

/* sums [LLS_VF] = or += those of a register, as integers. */
LLS_INLINE void i8_store_sums(float *sums, vf sum, bool first) {
    vu integers = I8_A_WORD == 1 ? (vu) __builtin_convertvector(sum, vi) : (vu)sum;
    if (!first) integers += (vu)vf_load_f32(sums);
    vf_store_f32(sums, (vf)integers);
}

/* Turns a packed panel into one of a. */
LLS_INLINE void i8_finish_a(float *panel, int64_t words) {
    for (int64_t i = 0; I8_IS_BIASED && i < words; i += LLS_VF)
        vf_store_f32(panel + i, (vf)((vu)vf_load_f32(panel + i) ^ 0x80808080u)); // + 128 in each byte
}

/* The sums of LLS_VF columns before any product; b [words][stride]. */
LLS_INLINE vf i8_start(const float *b, int64_t words, int stride) {
    vf sum = {0}, all_128 = (vf)((vu){0} + 0x80808080u);
    for (int64_t k = 0; I8_IS_BIASED && k < words; k++)
        sum = i8_multiply_add(all_128, vf_load_f32(b + k * stride), sum);
    return (vf)(-(vu)sum);
}

#endif
