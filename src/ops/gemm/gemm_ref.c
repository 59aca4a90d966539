/* The oracle: sums in double over the stored inputs, one rounding at the end; sums of int8 in integers. */
#include "core/element.h"
#include "ops/gemm/gemm_kernels.h"

static int64_t offset(const lls__gemm_matrix *x, int64_t batch, int64_t row, int64_t col) {
    return batch * x->batch + row * x->row + col * x->col;
}

static double element(const lls__gemm_matrix *x, int64_t batch, int64_t row, int64_t col) {
    lls_tensor t = {.data = x->data, .dtype = x->dtype};
    return lls__get(&t, offset(x, batch, row, col));
}

static double float_result(const lls__gemm_problem *p, int64_t batch, int64_t row, int64_t col) {
    double sum = 0;
    for (int64_t k = 0; k < p->k; k++) sum += element(&p->a, batch, row, k) * element(&p->b, batch, k, col);
    return (double)p->alpha * sum + (p->c.data ? (double)p->beta * element(&p->c, batch, row, col) : 0);
}

static int32_t i8_result(const lls__gemm_problem *p, int64_t batch, int64_t row, int64_t col) {
    const int8_t *a = p->a.data, *b = p->b.data;
    const int32_t *c = p->c.data;
    uint32_t sum = c ? (uint32_t)c[offset(&p->c, batch, row, col)] : 0; // unsigned: it may wrap
    for (int64_t k = 0; k < p->k; k++)
        sum += (uint32_t)(a[offset(&p->a, batch, row, k)] * b[offset(&p->b, batch, k, col)]);
    return (int32_t)sum;
}

lls_status lls__gemm_ref(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)ctx, (void)stream;
    lls__gemm_problem p = lls__gemm_problem_of(args);
    lls_tensor out = {.data = p.out.data, .dtype = p.out.dtype};
    for (int64_t i = 0; i < p.batch; i++) {
        for (int64_t row = 0; row < p.m; row++) {
            for (int64_t col = 0; col < p.n; col++) {
                int64_t to = offset(&p.out, i, row, col);
                if (p.out.dtype == LLS_I32) ((int32_t *)p.out.data)[to] = i8_result(&p, i, row, col);
                else lls__set(&out, to, float_result(&p, i, row, col));
            }
        }
    }
    return LLS_OK;
}
