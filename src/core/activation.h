/* Activations as their papers define them, in double, for the oracles. */
#ifndef LLS_CORE_ACTIVATION_H
#define LLS_CORE_ACTIVATION_H

#include <math.h>

/* -inf has the limit 0; the formulas would say -inf * 0. */
static inline double lls__silu_f64(double x) {
    return x == -INFINITY ? -0.0 : x / (1 + exp(-x));
}
static inline double lls__gelu_f64(double x) {
    return x == -INFINITY ? -0.0 : x * 0.5 * erfc(-x / sqrt(2));
}
static inline double lls__gelu_tanh_f64(double x) {
    return x == -INFINITY ? -0.0 : x * 0.5 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

#endif
