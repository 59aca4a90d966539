/* f8 and int8 to and from vectors of fp32, with the results of cpu/f8.h. */
#ifndef LLS_CPU_SIMD_F8_H
#define LLS_CPU_SIMD_F8_H

#include "cpu/simd.h"

typedef uint8_t vf_bytes __attribute__((vector_size(LLS_VF)));
typedef uint16_t vf_halves __attribute__((vector_size(LLS_VF * 2)));

LLS_INLINE vf_halves vf_load_bytes(const uint8_t *p) {
    vf_bytes bytes;
    memcpy(&bytes, p, sizeof bytes);
    return __builtin_convertvector(bytes, vf_halves);
}

LLS_INLINE vf vf_from_halves(vf_halves bits) {
    uint16_t halves[LLS_VF];
    memcpy(halves, &bits, sizeof bits);
    return vf_load_f16(halves);
}

/* e5m2 is the upper half of an f16. */
LLS_INLINE vf vf_load_e5m2(const uint8_t *p) {
    return vf_from_halves(vf_load_bytes(p) << 8);
}

/* As an f16 whose exponent is biased by 15 where e4m3's is by 7: 2^8 too small, subnormals included. Its largest
 * number is 448: what would be 480 is NaN. */
LLS_INLINE vf vf_load_e4m3(const uint8_t *p) {
    vf_halves bits = vf_load_bytes(p);
    vf x = vf_from_halves((bits & 0x80) << 8 | (bits & 0x7f) << 7) * vf_set1(256);
    return vf_select((x == vf_set1(480)) | (x == vf_set1(-480)), vf_set1(NAN), x);
}

/* A float with `mantissa_bits`, whose numbers below 2^min_exponent are subnormal. Saturates at `largest`, infinities
 * too; NaN becomes all ones. Rounds to nearest even. */
LLS_INLINE void vf_store_f8(uint8_t *p, vf v, int mantissa_bits, int min_exponent, float largest) {
    int shift = 23 - mantissa_bits;
    vi sign = ((vi)v >> 24) & 0x80, is_nan = v != v;
    vf magnitude = vf_min((vf)((vi)v & 0x7fffffff), vf_set1(largest));
    vf step_at = (vf)vi_set1((127 + shift + min_exponent) << 23); // its last bit is the step of subnormal numbers
    vi bits = (vi)magnitude, subnormal = (vi)(magnitude + step_at) - (vi)step_at;
    vi normal = (bits + ((1 << (shift - 1)) - 1) + (bits >> shift & 1) - ((126 + min_exponent) << 23)) >> shift;
    vi is_subnormal = bits < vi_set1((127 + min_exponent) << 23);
    vi code = (is_subnormal & subnormal) | (~is_subnormal & normal);
    code = sign | (is_nan & 0x7f) | (~is_nan & code);
    vf_bytes bytes = __builtin_convertvector(code, vf_bytes);
    memcpy(p, &bytes, sizeof bytes);
}

LLS_INLINE void vf_store_e4m3(uint8_t *p, vf v) {
    vf_store_f8(p, v, 3, -6, 448);
}

LLS_INLINE void vf_store_e5m2(uint8_t *p, vf v) {
    vf_store_f8(p, v, 2, -14, 57344);
}

/* Rounds to nearest even, saturates, NaN is 0. */
LLS_INLINE void vf_store_i8(int8_t *p, vf v) {
    vf clamped = vf_min(vf_max(v, vf_set1(-128)), vf_set1(127));
    vi integers = (vi)(clamped + vf_set1(12582912.0f)) - 0x4b400000; // 1.5 * 2^23: the sum's last bits are the integer
    integers &= v == v;
    vf_bytes bytes = __builtin_convertvector(integers, vf_bytes);
    memcpy(p, &bytes, sizeof bytes);
}

#endif
