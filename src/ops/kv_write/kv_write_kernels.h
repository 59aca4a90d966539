/* What kv_write.c launches: one declaration a variant. Read by gcc and nvcc. */
#ifndef LLS_OPS_KV_WRITE_KERNELS_H
#define LLS_OPS_KV_WRITE_KERNELS_H

#include "cpu/level.h"
#include "llmspeed/ops.h"

lls_status lls__kv_write_ref(lls_ctx *ctx, const void *args, lls_stream stream);
LLS_CPU_DECLARE(lls_status, lls__kv_write_cpu, lls_ctx *ctx, const void *args, lls_stream stream);

#if LLS_WITH_CUDA
#include <cuda_runtime_api.h>

/* Keys or values: rows [tokens, heads, width] and their cache [num_pages, page_size, heads, width]. Strides in
 * elements. */
typedef struct lls__kv_write_side {
    const void *rows;
    void *cache;
    int64_t token_stride, head_stride;
    int64_t page_stride, slot_stride, cache_head_stride;
    int32_t width;
} lls__kv_write_side;

typedef struct lls__kv_write_params {
    lls__kv_write_side sides[2];         /* keys, values */
    const int64_t *slots;                /* [tokens] */
    int64_t tokens, page_size, capacity; /* capacity: num_pages * page_size */
    int32_t heads;
    lls_dtype dtype; /* of rows */
} lls__kv_write_params;

#ifdef __cplusplus
extern "C" {
#endif
/* One a dtype of the caches. grid: tokens, as far as the grid goes, x 2 (keys, values); block: 128. */
__global__ void lls_kv_write_01_naive_f32(lls__kv_write_params p);
__global__ void lls_kv_write_01_naive_f16(lls__kv_write_params p);
__global__ void lls_kv_write_01_naive_bf16(lls__kv_write_params p);
#ifdef __cplusplus
}
#endif
#endif

#endif
