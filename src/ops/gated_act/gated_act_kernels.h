/* What gated_act.c launches: one declaration a variant. Read by gcc and nvcc. */
#ifndef LLS_OPS_GATED_ACT_KERNELS_H
#define LLS_OPS_GATED_ACT_KERNELS_H

#include "cpu/level.h"
#include "llmspeed/ops.h"

lls_status lls__gated_act_ref(lls_ctx *ctx, const void *args, lls_stream stream);
LLS_CPU_DECLARE(lls_status, lls__gated_act_cpu, lls_ctx *ctx, const void *args, lls_stream stream);

#if LLS_WITH_CUDA
#include <cuda_runtime_api.h>

typedef struct lls__gated_act_params {
    const void *gate, *up; /* up may be NULL */
    void *out;
    int64_t rows, n;
    int64_t gate_stride, up_stride, out_stride; /* elements from row to row */
    lls_act act;
} lls__gated_act_params;

#ifdef __cplusplus
extern "C" {
#endif
/* grid: columns / 256, rows, each as far as the grid goes; block: 256. */
__global__ void lls_gated_act_01_naive_f32(lls__gated_act_params p);
__global__ void lls_gated_act_01_naive_f16(lls__gated_act_params p);
__global__ void lls_gated_act_01_naive_bf16(lls__gated_act_params p);
#ifdef __cplusplus
}
#endif
#endif

#endif
