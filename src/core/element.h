/* Single elements of a float tensor as double: what the fp64 oracles read and write. Rounds once, to nearest even. */
#ifndef LLS_CORE_ELEMENT_H
#define LLS_CORE_ELEMENT_H

#include <math.h>

#include "core/tensor.h"
#include "cpu/f8.h"
#include "cpu/half.h"

static inline double lls__get(const lls_tensor *t, int64_t i) {
    switch (t->dtype) {
    case LLS_F16: return lls__f16_to_f32(((const uint16_t *)t->data)[i]);
    case LLS_BF16: return lls__bf16_to_f32(((const uint16_t *)t->data)[i]);
    case LLS_F8_E4M3: return lls__e4m3_to_f32(((const uint8_t *)t->data)[i]);
    case LLS_F8_E5M2: return lls__e5m2_to_f32(((const uint8_t *)t->data)[i]);
    default: return ((const float *)t->data)[i];
    }
}

/* double to float with rounding to odd, so that a second rounding to a smaller format gives what one rounding would have
 * given. */
static inline float lls__round_to_odd(double x) {
    float f = (float)x;
    if ((double)f == x || f != f || isinf(f)) return f;
    if (!(lls__f32_bits(f) & 1)) f = nextafterf(f, x > (double)f ? INFINITY : -INFINITY);
    return f;
}

static inline void lls__set(const lls_tensor *t, int64_t i, double value) {
    switch (t->dtype) {
    case LLS_F16: ((uint16_t *)t->data)[i] = lls__f32_to_f16(lls__round_to_odd(value)); break;
    case LLS_BF16: ((uint16_t *)t->data)[i] = lls__f32_to_bf16(lls__round_to_odd(value)); break;
    case LLS_F8_E4M3: ((uint8_t *)t->data)[i] = lls__f32_to_e4m3(lls__round_to_odd(value)); break;
    case LLS_F8_E5M2: ((uint8_t *)t->data)[i] = lls__f32_to_e5m2(lls__round_to_odd(value)); break;
    default: ((float *)t->data)[i] = (float)value; break;
    }
}

#endif
