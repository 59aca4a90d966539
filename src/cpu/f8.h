/* Scalar f8 conversions, rounding to nearest even; NaN stays NaN. Readable by gcc and nvcc.
 * Source: Micikevicius et al. 2022, "FP8 Formats for Deep Learning". */
#ifndef LLS_CPU_F8_H
#define LLS_CPU_F8_H

#include "cpu/half.h"

/* e5m2 is the upper half of an f16. */
static inline float lls__e5m2_to_f32(uint8_t x) {
    return lls__f16_to_f32((uint16_t)(x << 8));
}

/* Without infinities: all ones is NaN, and the largest number is 448. */
static inline float lls__e4m3_to_f32(uint8_t x) {
    uint32_t sign = (uint32_t)(x & 0x80) << 24, exponent = (x >> 3) & 15, mantissa = x & 7;
    if ((x & 0x7f) == 0x7f) return lls__f32_from_bits(sign | 0x7fc00000);
    if (exponent == 0) { // zero or subnormal: mantissa * 2^-9
        float magnitude = (float)mantissa * 0x1p-9f;
        return sign ? -magnitude : magnitude;
    }
    return lls__f32_from_bits(sign | (exponent + 120) << 23 | mantissa << 20);
}

/* The bits of |f| as a small float with `mantissa_bits` whose numbers below 2^min_exponent are subnormal. |f| is finite. */
static inline uint32_t lls__small_float_bits(uint32_t magnitude, int mantissa_bits, int min_exponent) {
    int shift = 23 - mantissa_bits;
    if (magnitude < (uint32_t)(127 + min_exponent) << 23) { // subnormal: let the FPU round to its step
        float step_at = lls__f32_from_bits((uint32_t)(127 + 23 + min_exponent - mantissa_bits) << 23);
        return lls__f32_bits(lls__f32_from_bits(magnitude) + step_at) - lls__f32_bits(step_at);
    }
    uint32_t rounded = magnitude + (1u << (shift - 1)) - 1 + (magnitude >> shift & 1);
    return (rounded - ((uint32_t)(126 + min_exponent) << 23)) >> shift;
}

/* Beyond the largest finite number, infinity included: that number. */
static inline uint8_t lls__f32_to_e4m3(float f) {
    uint32_t u = lls__f32_bits(f), sign = u >> 24 & 0x80, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint8_t)(sign | 0x7f);
    if (magnitude > 0x43e00000) magnitude = 0x43e00000; // 448
    return (uint8_t)(sign | lls__small_float_bits(magnitude, 3, -6));
}

static inline uint8_t lls__f32_to_e5m2(float f) {
    uint32_t u = lls__f32_bits(f), sign = u >> 24 & 0x80, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint8_t)(sign | 0x7f);
    if (magnitude > 0x47600000) magnitude = 0x47600000; // 57344
    return (uint8_t)(sign | lls__small_float_bits(magnitude, 2, -14));
}

#endif
