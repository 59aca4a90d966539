/* What embed.c launches: one declaration a variant. Read by gcc and nvcc. */
#ifndef LLS_OPS_EMBED_KERNELS_H
#define LLS_OPS_EMBED_KERNELS_H

#include "cpu/level.h"
#include "llmspeed/ops.h"

lls_status lls__embed_ref(lls_ctx *ctx, const void *args, lls_stream stream);
LLS_CPU_DECLARE(lls_status, lls__embed_cpu, lls_ctx *ctx, const void *args, lls_stream stream);

#if LLS_WITH_CUDA
#include <cuda_runtime_api.h>

typedef struct lls__embed_params {
    const void *table;
    const int32_t *ids; /* [tokens] */
    void *out;
    int64_t tokens, vocab, hidden;
    int64_t table_stride, out_stride; /* elements from row to row; of blocks too */
    lls_dtype table_dtype;
    float scale;
} lls__embed_params;

#ifdef __cplusplus
extern "C" {
#endif
/* One a dtype of out. grid: tokens, as far as the grid goes; block: 256. */
__global__ void lls_embed_01_naive_f32(lls__embed_params p);
__global__ void lls_embed_01_naive_f16(lls__embed_params p);
__global__ void lls_embed_01_naive_bf16(lls__embed_params p);
#ifdef __cplusplus
}
#endif
#endif

#endif
