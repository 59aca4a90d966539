/* Descriptors for cuda/tma.cuh. Only files built with LLS_WITH_CUDA include this. */
#ifndef LLS_DISPATCH_TMA_H
#define LLS_DISPATCH_TMA_H

#include <cuda.h>

#include "llmspeed/core.h"

/* A tensor [depth][rows][cols] as TMA sees it, and the box of it that one load or store moves. In shared memory a box's rows
 * follow each other; rows of 128 bytes, the most, have the 128-byte swizzle. */
typedef struct lls__tma_tensor {
    void *data; /* aligned to 16 bytes */
    lls_dtype dtype;
    int64_t depth, rows, cols;
    int64_t depth_stride, row_stride; /* elements; multiples of 16 bytes. Ignored for axes of size 1. */
    int32_t box_rows, box_cols;       /* box_rows at most 256 */
} lls__tma_tensor;

/* Whether TMA can reach the tensor: alignment, strides and sizes. */
bool lls__tma_reaches(const lls__tma_tensor *t);
lls_status lls__tma_encode(const lls__tma_tensor *t, CUtensorMap *out);

#endif
