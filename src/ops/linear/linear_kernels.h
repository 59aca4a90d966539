/* What linear.c launches: one declaration a variant. Read by gcc and nvcc. */
#ifndef LLS_OPS_LINEAR_KERNELS_H
#define LLS_OPS_LINEAR_KERNELS_H

#include "cpu/level.h"
#include "llmspeed/ops.h"

lls_status lls__linear_ref(lls_ctx *ctx, const void *args, lls_stream stream);
LLS_CPU_DECLARE(lls_status, lls__linear_cpu, lls_ctx *ctx, const void *args, lls_stream stream);

#if LLS_WITH_CUDA
#include <cuda_runtime_api.h>

typedef struct lls__linear_params {
    const void *x, *weight, *bias; /* bias may be NULL */
    void *out;
    int64_t m, n, k;
    int64_t x_stride, weight_stride, out_stride; /* elements; weight_stride of block types: k */
    lls_dtype x_dtype, weight_dtype, bias_dtype, out_dtype;
} lls__linear_params;

#ifdef __cplusplus
extern "C" {
#endif
/* A warp an output: grid.x * 8 >= n, grid.y walks m; block: 256. */
__global__ void lls_linear_01_naive(lls__linear_params p);
#ifdef __cplusplus
}
#endif
#endif

#endif
