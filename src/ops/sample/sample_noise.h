/* The noise of the draw: a standard Gumbel number for each (seed, step, id), without state.
 *
 * argmax(logit / T + noise) picks each token with its softmax probability (Gumbel 1954; Maddison, Tarlow and Minka
 * 2014, "A* Sampling"). The random bits are a hash of a counter, as in Salmon et al. 2011, "Parallel random numbers: as
 * easy as 1, 2, 3": SplitMix64's mixer (Steele, Lea and Flood 2014) makes a key of (seed, step), and two keyed rounds
 * of MurmurHash3's 32-bit finaliser (Appleby) make the bits of an id.
 *
 * Every step is a correctly rounded fp32 or an integer operation, and none is fused, so the oracle, each CPU level and
 * CUDA get the same bits and hence draw the same token. Read by gcc and nvcc; sample_cpu.c repeats it on vectors. */
#ifndef LLS_OPS_SAMPLE_NOISE_H
#define LLS_OPS_SAMPLE_NOISE_H

#include <stdint.h>
#include <string.h>

#include "core/rows.h" /* LLS_HOST_DEVICE */

/* No noise is larger. */
#define LLS__SAMPLE_NOISE_MAX 22.25f

#if defined(__CUDA_ARCH__)
#define LLS__MUL_RN(a, b) __fmul_rn(a, b)
#define LLS__ADD_RN(a, b) __fadd_rn(a, b)
#define LLS__DIV_RN(a, b) __fdiv_rn(a, b)
#else
#define LLS__MUL_RN(a, b) ((a) * (b))
#define LLS__ADD_RN(a, b) ((a) + (b))
#define LLS__DIV_RN(a, b) ((a) / (b))
#endif

LLS_HOST_DEVICE static inline uint64_t lls__splitmix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

LLS_HOST_DEVICE static inline uint64_t lls__sample_noise_key(int64_t seed, int64_t step) {
    return lls__splitmix64(lls__splitmix64((uint64_t)seed) + (uint64_t)step);
}

LLS_HOST_DEVICE static inline uint32_t lls__mix32(uint32_t x) {
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* ln(x) for normal x > 0. x_minus_1 may be more accurate than x - 1: it is what counts for x near 1. */
LLS_HOST_DEVICE static inline float lls__sample_ln(float x, float x_minus_1) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t exponent = (int32_t)(bits - 0x3f3504f3) >> 23; // x = m * 2^exponent, m in [sqrt(1/2), sqrt(2))
    bits -= (uint32_t)exponent << 23;
    float m;
    memcpy(&m, &bits, sizeof m);
    float f = exponent ? LLS__ADD_RN(m, -1.0f) : x_minus_1;
    float s = LLS__DIV_RN(f, LLS__ADD_RN(f, 2.0f)),
          z = LLS__MUL_RN(s, s); // ln(1 + f) = 2 atanh(s) = 2s (1 + z/3 + z^2/5 + ...), z < 0.03
    float p = 1.0f / 9;
    p = LLS__ADD_RN(LLS__MUL_RN(p, z), 1.0f / 7);
    p = LLS__ADD_RN(LLS__MUL_RN(p, z), 1.0f / 5);
    p = LLS__ADD_RN(LLS__MUL_RN(p, z), 1.0f / 3);
    s = LLS__ADD_RN(s, s);
    s = LLS__ADD_RN(LLS__MUL_RN(LLS__MUL_RN(p, z), s), s);
    return LLS__ADD_RN(LLS__MUL_RN((float)exponent, 0.693147181f), s);
}

/* -ln(-ln(1 - v)) for v uniform in (0, 1): small v, which 32 bits resolve finely, gives the large noise that decides
 * draws. */
LLS_HOST_DEVICE static inline float lls__sample_noise(uint64_t key, uint32_t id) {
    uint32_t h = lls__mix32(lls__mix32(id ^ (uint32_t)key) ^ (uint32_t)(key >> 32));
    float v = LLS__MUL_RN(LLS__ADD_RN((float)(int32_t)(h >> 1), 0.5f), 0x1p-31f);
    if (v > 1 - 0x1p-24f) v = 1 - 0x1p-24f;
    float e = -lls__sample_ln(LLS__ADD_RN(1.0f, -v), -v);
    return -lls__sample_ln(e, LLS__ADD_RN(e, -1.0f));
}

#endif
