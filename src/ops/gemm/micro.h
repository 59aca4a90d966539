/* The inner loop of gemm_cpu.c: a strip of a times a strip of b (pack.h), MICRO_M x MICRO_N sums in registers.
 * Included by gemm_cpu.c, once a SIMD level. */
#ifndef LLS_OPS_GEMM_MICRO_H
#define LLS_OPS_GEMM_MICRO_H

#include "ops/gemm/i8.h"

// Sums take MICRO_M * MICRO_V of the level's 32 (AVX-512) or 16 vector registers; the rest hold a row of b and the
// broadcast element of a.
#if LLS_VF == 16
enum { MICRO_M = 14, MICRO_V = 2 };
#elif LLS_VF == 8
enum { MICRO_M = 6, MICRO_V = 2 };
#else
enum { MICRO_M = 4, MICRO_V = 2 };
#endif
enum { MICRO_N = MICRO_V * LLS_VF, PREFETCH_EVERY = 4 };

// sums [MICRO_M][MICRO_N] = or += start [MICRO_N] + a [words][MICRO_M]^T b [words][MICRO_N], the first `rows` of them.
// Meanwhile fetches words / PREFETCH_EVERY cache lines from `next` on, for later: at this pace L3 keeps up.
LLS_INLINE void micro_kernel(bool i8, int rows, int64_t words, const float *a, const float *b, const vf *start,
                             bool first, float *sums, const char *next) {
    vf sum[MICRO_M][MICRO_V];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < MICRO_V; v++) sum[r][v] = i8 ? start[v] : vf_set1(0);
    }
    for (int64_t k = 0; k < words; k++, a += MICRO_M, b += MICRO_N) {
        if (k % PREFETCH_EVERY == 0) __builtin_prefetch(next + k / PREFETCH_EVERY * 64);
        vf row[MICRO_V];
#pragma GCC unroll 4
        for (int v = 0; v < MICRO_V; v++) row[v] = vf_load_f32(b + v * LLS_VF);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            vf element = i8 ? i8_broadcast(a + r) : vf_set1(a[r]);
#pragma GCC unroll 4
            for (int v = 0; v < MICRO_V; v++) {
                sum[r][v] = i8 ? i8_multiply_add(element, row[v], sum[r][v]) : vf_fma(element, row[v], sum[r][v]);
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < MICRO_V; v++) {
            float *to = sums + r * MICRO_N + v * LLS_VF;
            if (i8) i8_store_sums(to, sum[r][v], first);
            else vf_store_f32(to, first ? sum[r][v] : vf_load_f32(to) + sum[r][v]);
        }
    }
}

// Few rows need few sums: without the shorter forms one row would cost as much as MICRO_M.
LLS_INLINE void micro_rows(bool i8, int64_t rows, int64_t words, const float *a, const float *b, const vf *start,
                           bool first, float *sums, const char *next) {
    if (rows == 1) micro_kernel(i8, 1, words, a, b, start, first, sums, next);
    else if (rows == 2) micro_kernel(i8, 2, words, a, b, start, first, sums, next);
    else if (rows <= 4 && MICRO_M > 4) micro_kernel(i8, 4, words, a, b, start, first, sums, next);
    else if (rows <= 8 && MICRO_M > 8) micro_kernel(i8, 8, words, a, b, start, first, sums, next);
    else micro_kernel(i8, MICRO_M, words, a, b, start, first, sums, next);
}

static void micro(bool i8, int64_t rows, int64_t words, const float *a, const float *b, const vf *start, bool first,
                  float *sums, const char *next) {
    if (i8) micro_rows(true, rows, words, a, b, start, first, sums, next);
    else micro_rows(false, rows, words, a, b, start, first, sums, next);
}

#endif
