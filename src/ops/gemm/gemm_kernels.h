/* The matrix product as its implementations see it, and what gemm.c launches: one declaration a variant. Read by gcc
 * and nvcc. */
#ifndef LLS_OPS_GEMM_KERNELS_H
#define LLS_OPS_GEMM_KERNELS_H

#include "core/rows.h"
#include "cpu/level.h"
#include "llmspeed/ops.h"

typedef struct lls__gemm_matrix {
    void *data;
    lls_dtype dtype;
    int64_t batch, row, col; /* strides in elements; 1 along an axis of size 1, so that it counts as contiguous */
} lls__gemm_matrix;

/* out[i, m, n] = alpha * sum_k a[i, m, k] b[i, k, n] + beta * c[i, m, n]. The BLAS rules are already applied: c.data is
 * NULL when beta is 0, and k and alpha are 0 together, so that a and b are not read for alpha = 0 and an infinite alpha
 * is harmless for k = 0. i8 products have i32 sums modulo 2^32, alpha 1 (or, with k, 0) and beta 0 or 1. */
typedef struct lls__gemm_problem {
    lls__gemm_matrix a, b, c, out;
    int64_t batch, m, n, k;
    float alpha, beta;
} lls__gemm_problem;

lls__gemm_problem lls__gemm_problem_of(const lls_gemm_args *args);

lls_status lls__gemm_ref(lls_ctx *ctx, const void *args, lls_stream stream);
LLS_CPU_DECLARE(lls_status, lls__gemm_cpu, lls_ctx *ctx, const void *args, lls_stream stream);

#if LLS_WITH_CUDA
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif
/* grid: columns / 32, rows / 8, batch, the last two cut at 65535 (the kernel loops); block: 32 x 8. Suffixes: dtype of
 * a and b, then of out where it differs. */
__global__ void lls_gemm_01_naive_f32(lls__gemm_problem p);
__global__ void lls_gemm_01_naive_f16(lls__gemm_problem p);
__global__ void lls_gemm_01_naive_bf16(lls__gemm_problem p);
__global__ void lls_gemm_01_naive_f16_f32(lls__gemm_problem p);
__global__ void lls_gemm_01_naive_bf16_f32(lls__gemm_problem p);
__global__ void lls_gemm_01_naive_i8_i32(lls__gemm_problem p);
#ifdef __cplusplus
}
#endif
#endif

#endif
