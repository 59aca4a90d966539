/* Scalar f16 and bf16 conversions, rounding to nearest even; NaN stays NaN. Readable by gcc and nvcc. */
#ifndef LLS_CPU_HALF_H
#define LLS_CPU_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t lls__f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float lls__f32_from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float lls__f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return lls__f32_from_bits(sign | 0x7f800000 | mantissa << 13);
    if (exponent == 0) { // zero or subnormal: mantissa * 2^-24, exact in f32
        float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return lls__f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t lls__f32_to_f16(float f) {
    uint32_t u = lls__f32_bits(f), sign = (u >> 16) & 0x8000, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); // 65520 and above round to infinity
    if (magnitude < 0x38800000) {                                  // below 2^-14: subnormal, let the FPU round
        float scaled = lls__f32_from_bits(magnitude) + 0.5f;       // ulp of [0.5, 1) is 2^-24, f16's subnormal step
        return (uint16_t)(sign | (lls__f32_bits(scaled) - 0x3f000000));
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

static inline float lls__bf16_to_f32(uint16_t b) {
    return lls__f32_from_bits((uint32_t)b << 16);
}

static inline uint16_t lls__f32_to_bf16(float f) {
    uint32_t u = lls__f32_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#endif
