/* The matrix product as all its implementations see it: plain data that C passes to kernels by value, read by gcc and
 * nvcc. The formula and the shapes are in ops.h. */
#ifndef LLS_OPS_GEMM_PROBLEM_H
#define LLS_OPS_GEMM_PROBLEM_H

#include "core/rows.h"
#include "llmspeed/ops.h"

enum { LLS__GEMM_BLOCK = 128 }; /* of the block scales */

typedef struct lls__gemm_matrix {
    void *data;                  /* NULL: absent; not NULL with pointers */
    const void *const *pointers; /* not NULL: matrix i begins at pointers[i], whatever data and batch say */
    lls_dtype dtype;
    int64_t batch, row, col; /* strides in elements; 1 along a row or column axis of size 1, so that it counts as
                              * contiguous */
} lls__gemm_matrix;

/* The factor of element (line, k): data[batch i + line stride * (line / line_size) + k stride * (k / 128)], where a line
 * is a row of a or out, or a column of b or out. */
typedef struct lls__gemm_scale {
    const float *data; /* NULL: 1 */
    int64_t batch, line, k;
    int32_t line_size; /* 1, or 128: b's blocks */
    bool blocks;       /* along k */
} lls__gemm_scale;

/* The BLAS rules are already applied: c is absent when beta is 0, and k and alpha are 0 together, so that a and b are not
 * read for alpha = 0 and an infinite alpha is harmless for k = 0. */
typedef struct lls__gemm_problem {
    lls__gemm_matrix a, b, c, out, residual;
    lls__gemm_matrix bias;  /* row stride 0; batch stride 0 unless grouped */
    int64_t batch, m, n, k; /* of the product: out has n / 2 columns when gated */
    float alpha, beta;
    lls_gemm_act act;
    bool gated;
    lls__gemm_scale scale_a, scale_b;
    lls__gemm_scale scale_out, scale_out_col; /* by row or the only one; by column. At most one is there. */
    uint32_t flags;
    /* Grouped: [batch + 1] on the device, rows offsets[i] to offsets[i + 1] of a and out belong to matrix i of b. NULL: not.
     * m is then all rows. */
    const int32_t *offsets;
} lls__gemm_problem;

LLS_HOST_DEVICE static inline float lls__gemm_scale_at(const lls__gemm_scale *s, int64_t batch, int64_t line,
                                                       int64_t k) {
    if (!s->data) return 1;
    return s->data[batch * s->batch + line / s->line_size * s->line + k / LLS__GEMM_BLOCK * s->k];
}

/* Address of matrix i. */
LLS_HOST_DEVICE static inline char *lls__gemm_base(const lls__gemm_matrix *x, int64_t i, int64_t element_bytes) {
    return x->pointers ? (char *)x->pointers[i] : (char *)x->data + i * x->batch * element_bytes;
}

/* Rows of matrix i: all, or its group's. Offsets out of order or range never lead outside the tensors. */
typedef struct lls__gemm_span {
    int64_t begin, end;
} lls__gemm_span;
LLS_HOST_DEVICE static inline lls__gemm_span lls__gemm_rows(const lls__gemm_problem *p, int64_t i) {
    if (!p->offsets) return (lls__gemm_span){0, p->m};
    int64_t begin = p->offsets[i], end = p->offsets[i + 1];
    begin = begin < 0 ? 0 : begin < p->m ? begin : p->m;
    return (lls__gemm_span){begin, end < begin ? begin : end < p->m ? end : p->m};
}

LLS_HOST_DEVICE static inline int64_t lls__gemm_offset(const lls__gemm_matrix *x, int64_t row, int64_t col) {
    return row * x->row + col * x->col;
}

/* Whether the sums need nothing but alpha (and the tensors' scales): no rung's fast store does more. */
LLS_HOST_DEVICE static inline bool lls__gemm_is_plain(const lls__gemm_problem *p) {
    return !p->c.data && !p->bias.data && !p->residual.data && !p->gated && p->act == LLS_GEMM_ACT_NONE &&
           !p->scale_out.data && !p->scale_out_col.data;
}

#endif
