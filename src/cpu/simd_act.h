/* Activations on vectors of fp32. All are written as x * p or x / q with p in [0, 1] and q >= 1, so that they keep their
 * relative accuracy where the textbook forms 1 + tanh and 1 + erf cancel, and large |x| gives x or 0 instead of
 * inf * 0. */
#ifndef LLS_CPU_SIMD_ACT_H
#define LLS_CPU_SIMD_ACT_H

#include <float.h>

#include "cpu/simd.h"

/* -inf has the limit 0, where the forms below would say -inf * 0. NaN, as the second operand, passes. */
LLS_INLINE vf vf_finite_below(vf x) {
    return vf_max(vf_set1(-FLT_MAX), x);
}

LLS_INLINE vf vf_silu(vf x) {
    x = vf_finite_below(x);
    return x / (vf_set1(1) + vf_exp(-x));
}

/* (1 + tanh u) / 2 = 1 / (1 + e^-2u), with u = sqrt(2/pi) (x + 0.044715 x^3). */
LLS_INLINE vf vf_gelu_tanh(vf x) {
    x = vf_finite_below(x);
    vf minus_2u = x * vf_fma(x * x, vf_set1(-0.0713548163f), vf_set1(-1.59576912f));
    return x / (vf_set1(1) + vf_exp(minus_2u));
}

/* x * P(N <= x). The lower tail is e^(-x^2/2) t p(t), t = 1/(1 + 0.2125 |x|): Hastings' form for erfc (1955,
 * "Approximations for Digital Computers"), p of degree 8 fitted here by Remez exchange to a relative error of 2.2e-8 on
 * |x| <= 13.5, past which the exponential is 0; 3e-7 in fp32 arithmetic. */
LLS_INLINE vf vf_gelu(vf x) {
    x = vf_finite_below(x);
    vf magnitude = vf_max(x, -x);
    vf t = vf_set1(1) / vf_fma(magnitude, vf_set1(0.2125f), vf_set1(1));
    vf p = vf_set1(-0.063452296f);
    p = vf_fma(p, t, vf_set1(0.235362485f));
    p = vf_fma(p, t, vf_set1(-0.242742479f));
    p = vf_fma(p, t, vf_set1(0.260194659f));
    p = vf_fma(p, t, vf_set1(-0.0388566516f));
    p = vf_fma(p, t, vf_set1(0.104266562f));
    p = vf_fma(p, t, vf_set1(0.0750818476f));
    p = vf_fma(p, t, vf_set1(0.0853989944f));
    p = vf_fma(p, t, vf_set1(0.0847468749f));
    vf tail = vf_exp(x * x * vf_set1(-0.5f)) * (p * t);
    return x * vf_select(x > vf_set1(0), vf_set1(1) - tail, tail);
}

#endif
