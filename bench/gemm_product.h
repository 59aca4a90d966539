/* A product that the bench of gemm times and `llmspeed tune gemm` tunes. */
#ifndef BENCH_GEMM_PRODUCT_H
#define BENCH_GEMM_PRODUCT_H

#include "bench.h"

typedef struct bench_gemm_product {
    int64_t m, n, k;
    lls_dtype dtype, out_dtype; /* 0: i32 for i8, else dtype */
    uint32_t flags;
    bool plain_b; /* b is stored as [k, n], else as a weight [n, k] */
} bench_gemm_product;

/* The suite, whose cases a caller may replace. */
const bench_suite *bench_gemm_suite(void);
void bench_gemm_case(bench *b, const char *name, const char *phase, bench_gemm_product p);

#endif
