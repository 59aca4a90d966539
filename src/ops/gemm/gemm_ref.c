/* The oracle: sums in double over the stored inputs, one rounding at the end. */
#include "core/element.h"
#include "ops/gemm/gemm_kernels.h"

static double element(const lls__gemm_matrix *x, int64_t batch, int64_t row, int64_t col) {
    lls_tensor t = {.data = x->data, .dtype = x->dtype};
    return lls__get(&t, batch * x->batch + row * x->row + col * x->col);
}

lls_status lls__gemm_ref(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)ctx, (void)stream;
    lls__gemm_problem p = lls__gemm_problem_of(args);
    lls_tensor out = {.data = p.out.data, .dtype = p.out.dtype};
    for (int64_t i = 0; i < p.batch; i++) {
        for (int64_t row = 0; row < p.m; row++) {
            for (int64_t col = 0; col < p.n; col++) {
                double sum = 0;
                for (int64_t k = 0; k < p.k; k++) sum += element(&p.a, i, row, k) * element(&p.b, i, k, col);
                double value = (double)p.alpha * sum;
                if (p.c.data) value += (double)p.beta * element(&p.c, i, row, col);
                lls__set(&out, i * p.out.batch + row * p.out.row + col * p.out.col, value);
            }
        }
    }
    return LLS_OK;
}
