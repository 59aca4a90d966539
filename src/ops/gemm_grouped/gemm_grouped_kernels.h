/* What gemm_grouped.c launches: one declaration a variant. The CUDA rungs are gemm's. */
#ifndef LLS_OPS_GEMM_GROUPED_KERNELS_H
#define LLS_OPS_GEMM_GROUPED_KERNELS_H

#include "ops/gemm/gemm_kernels.h"

/* Of validated arguments. */
lls__gemm_problem lls__gemm_grouped_problem_of(const lls_gemm_grouped_args *args);

LLS_CPU_DECLARE(lls_status, lls__gemm_grouped_cpu, lls_ctx *ctx, const void *args, lls_stream stream);
lls_status lls__gemm_grouped_ref(lls_ctx *ctx, const void *args, lls_stream stream);

#endif
