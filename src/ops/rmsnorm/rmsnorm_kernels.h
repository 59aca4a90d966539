/* What rmsnorm.c launches: one declaration a variant. Read by gcc and nvcc. */
#ifndef LLS_OPS_RMSNORM_KERNELS_H
#define LLS_OPS_RMSNORM_KERNELS_H

#include "core/rows.h"
#include "cpu/level.h"
#include "llmspeed/ops.h"

lls_status lls__rmsnorm_ref(lls_ctx *ctx, const void *args, lls_stream stream);
LLS_CPU_DECLARE(lls_status, lls__rmsnorm_cpu, lls_ctx *ctx, const void *args, lls_stream stream);

#if LLS_WITH_CUDA
#include <cuda_runtime_api.h>

typedef struct lls__rmsnorm_params {
    const void *x, *residual, *weight; /* residual, weight may be NULL */
    void *residual_out, *out;
    lls__rows x_rows, residual_rows, residual_out_rows, out_rows;
    int32_t hidden;
    bool weight_is_f32;
    float eps, weight_offset;
} lls__rmsnorm_params;

#ifdef __cplusplus
extern "C" {
#endif
/* grid: rows; block: 256. */
__global__ void lls_rmsnorm_01_naive_f32(lls__rmsnorm_params p);
__global__ void lls_rmsnorm_01_naive_f16(lls__rmsnorm_params p);
__global__ void lls_rmsnorm_01_naive_bf16(lls__rmsnorm_params p);
#ifdef __cplusplus
}
#endif
#endif

#endif
