/* Multiply-adds that stay in registers, at the rate of this level's vector units. CHAINS of them do not wait for each
 * other: two units of 5 cycles' latency, the most that current cores have, are busy with 10. */
#include "cpu/simd.h"
#include "profile/ceilings.h"

enum { CHAINS = 12 };

LLS__UNCHECKED static int32_t run_f32(int64_t rounds) {
    const vf factor = vf_set1(0.999f), addend = vf_set1(0.001f); // towards 1: never infinite, never subnormal
    vf chain[CHAINS];
    for (int c = 0; c < CHAINS; c++) chain[c] = vf_set1((float)(c + 2)); // not 1, which stays what it is
    for (int64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) chain[c] = vf_fma(chain[c], factor, addend);
    }
    for (int c = 1; c < CHAINS; c++) chain[0] += chain[c];
    return (int32_t)vf_sum(chain[0]);
}

lls__chains LLS_CPU(lls__f32_chains)(void) {
    return (lls__chains){2.0 * CHAINS * LLS_VF, run_f32};
}

// Products of bytes are summed in 32 bits where the level has an instruction for that (vpdpbusd), else in 16 bits, which
// the kernels have to widen now and then: that is left out here.
#if defined(__AVX512F__)
typedef vi bytes;
enum { BYTES = LLS_VF * 4, BYTE_CHAINS = CHAINS };

LLS_INLINE bytes multiply_add(bytes chain, bytes x, bytes y) {
    return (bytes)_mm512_dpbusd_epi32((__m512i)chain, (__m512i)x, (__m512i)y);
}
#elif defined(__AVX2__)
typedef vi bytes;
enum { BYTES = LLS_VF * 4, BYTE_CHAINS = 10 }; // two instructions a step: with more, GCC leaves the registers

LLS_INLINE bytes multiply_add(bytes chain, bytes x, bytes y) {
    return (bytes)_mm256_add_epi16(_mm256_maddubs_epi16((__m256i)chain, (__m256i)x), (__m256i)y);
}
#else
typedef int16_t bytes __attribute__((vector_size(LLS_VF * 4))); // one a lane
enum { BYTES = LLS_VF * 2, BYTE_CHAINS = 10 };

LLS_INLINE bytes multiply_add(bytes chain, bytes x, bytes y) {
    return chain * x + y;
}
#endif

LLS__UNCHECKED static int32_t run_i8(int64_t rounds) {
    const bytes x = (bytes)vi_set1(0x01020304), y = (bytes)vi_set1(0x04030201);
    bytes chain[BYTE_CHAINS];
    for (int c = 0; c < BYTE_CHAINS; c++) chain[c] = (bytes)vi_set1(c);
    for (int64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < BYTE_CHAINS; c++) chain[c] = multiply_add(chain[c], x, y);
    }
    for (int c = 1; c < BYTE_CHAINS; c++) chain[0] ^= chain[c];
    return ((vi)chain[0])[0];
}

lls__chains LLS_CPU(lls__i8_chains)(void) {
    return (lls__chains){2.0 * BYTE_CHAINS * BYTES, run_i8};
}
