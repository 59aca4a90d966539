/* What layernorm.c launches: one declaration a variant. Read by gcc and nvcc. */
#ifndef LLS_OPS_LAYERNORM_KERNELS_H
#define LLS_OPS_LAYERNORM_KERNELS_H

#include "core/rows.h"
#include "cpu/level.h"
#include "llmspeed/ops.h"

lls_status lls__layernorm_ref(lls_ctx *ctx, const void *args, lls_stream stream);
LLS_CPU_DECLARE(lls_status, lls__layernorm_cpu, lls_ctx *ctx, const void *args, lls_stream stream);

#if LLS_WITH_CUDA
#include <cuda_runtime_api.h>

typedef struct lls__layernorm_params {
    const void *x, *weight, *bias; /* weight, bias [hidden] may be NULL */
    void *out;
    lls__rows x_rows, out_rows;
    int64_t num_rows;
    int32_t hidden;
    lls_dtype weight_dtype, bias_dtype;
    float eps;
} lls__layernorm_params;

#ifdef __cplusplus
extern "C" {
#endif
/* grid: rows, as far as the grid goes; block: 256. */
__global__ void lls_layernorm_01_naive_f32(lls__layernorm_params p);
__global__ void lls_layernorm_01_naive_f16(lls__layernorm_params p);
__global__ void lls_layernorm_01_naive_bf16(lls__layernorm_params p);
#ifdef __cplusplus
}
#endif
#endif

#endif
