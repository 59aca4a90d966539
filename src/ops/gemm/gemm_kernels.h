/* What gemm.c launches: one declaration a variant. Read by gcc and nvcc. */
#ifndef LLS_OPS_GEMM_KERNELS_H
#define LLS_OPS_GEMM_KERNELS_H

#include "cpu/level.h"
#include "ops/gemm/problem.h"

/* gemm_check.c */
lls_status lls__gemm_check(const lls_ctx *ctx, const lls_gemm_args *args);
/* Of validated arguments. */
lls__gemm_problem lls__gemm_problem_of(const lls_gemm_args *args);

/* One row of out; for a grouped product `batch` is the row's group. */
void lls__gemm_ref_row(const lls__gemm_problem *p, int64_t batch, int64_t row);
lls_status lls__gemm_ref(lls_ctx *ctx, const void *args, lls_stream stream);
LLS_CPU_DECLARE(lls_status, lls__gemm_cpu, lls_ctx *ctx, const void *args, lls_stream stream);

#if LLS_WITH_CUDA
#include <cuda_runtime_api.h>

/* Takes everything, grouped products too. */
#ifndef __cplusplus
lls_status lls__gemm_launch_naive(lls_ctx *ctx, const lls__gemm_problem *p, lls_stream stream);
#endif

#ifdef __cplusplus
extern "C" {
#endif
/* Suffixes: dtype of a and b. The type of out is looked up at run time.
 * grid: pairs of columns / 32, rows / 8, batch, the last two cut at 65535 (the kernel loops); block: 32 x 8. */
__global__ void lls_gemm_01_naive_f32(lls__gemm_problem p);
__global__ void lls_gemm_01_naive_f16(lls__gemm_problem p);
__global__ void lls_gemm_01_naive_bf16(lls__gemm_problem p);
__global__ void lls_gemm_01_naive_i8(lls__gemm_problem p);
__global__ void lls_gemm_01_naive_f8(lls__gemm_problem p);
#ifdef __cplusplus
}
#endif
#endif

#endif
