/* Activations in fp32. Forms that keep their relative accuracy for negative x and give x or 0, never inf * 0, for large
 * |x|; -inf has the limit 0. */
#pragma once

#include <float.h>

__device__ __forceinline__ float lls__silu(float x) {
    x = x < -FLT_MAX ? -FLT_MAX : x;
    return x / (1.0f + expf(-x));
}
__device__ __forceinline__ float lls__gelu(float x) {
    x = x < -FLT_MAX ? -FLT_MAX : x;
    return x * normcdff(x);
}
__device__ __forceinline__ float lls__gelu_tanh(float x) {
    x = x < -FLT_MAX ? -FLT_MAX : x;
    return x / (1.0f + expf(x * (-1.59576912f - 0.0713548163f * x * x))); // (1 + tanh u) / 2 = 1 / (1 + e^-2u)
}
