/* Rows of a tensor: all axes but the last, in row-major order. Plain data, so that C passes it to a kernel by value;
 * read by gcc and nvcc. */
#ifndef LLS_CORE_ROWS_H
#define LLS_CORE_ROWS_H

#include "llmspeed/core.h"

#if defined(__CUDACC__)
#define LLS_HOST_DEVICE __host__ __device__
#else
#define LLS_HOST_DEVICE
#endif

typedef struct lls__rows {
    int32_t num_axes; /* 0 to LLS_MAX_DIMS - 1 */
    int64_t shape[LLS_MAX_DIMS - 1];
    int64_t stride[LLS_MAX_DIMS - 1]; /* elements */
} lls__rows;

static inline lls__rows lls__rows_of(const lls_tensor *t) {
    lls__rows rows = {.num_axes = t->ndim - 1};
    for (int32_t i = 0; i < rows.num_axes; i++) {
        rows.shape[i] = t->shape[i];
        rows.stride[i] = t->stride[i];
    }
    return rows;
}

static inline int64_t lls__rows_count(const lls__rows *rows) {
    int64_t n = 1;
    for (int32_t i = 0; i < rows->num_axes; i++) n *= rows->shape[i];
    return n;
}

/* Offset in elements of row r, counted row-major over the outer axes. */
LLS_HOST_DEVICE static inline int64_t lls__row_offset(const lls__rows *rows, int64_t r) {
    int64_t offset = 0;
    for (int32_t i = rows->num_axes - 1; i > 0; i--) {
        offset += r % rows->shape[i] * rows->stride[i];
        r /= rows->shape[i];
    }
    return rows->num_axes > 0 ? offset + r * rows->stride[0] : 0;
}

#endif
