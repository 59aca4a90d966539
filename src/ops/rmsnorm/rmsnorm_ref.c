/* The oracle: the formula in double, one rounding at the end (two where residual_out is stored, as the definition
 * says). */
#include <math.h>

#include "core/element.h"
#include "core/rows.h"
#include "ops/rmsnorm/rmsnorm_kernels.h"

lls_status lls__rmsnorm_ref(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)ctx, (void)stream;
    const lls_rmsnorm_args *a = args;
    lls__rows x_rows = lls__rows_of(a->x), out_rows = lls__rows_of(a->out);
    int64_t hidden = a->x->shape[a->x->ndim - 1];
    for (int64_t r = 0; r < lls__rows_count(&x_rows); r++) {
        const lls_tensor *h = a->x;
        int64_t h_row = lls__row_offset(&x_rows, r), out_row = lls__row_offset(&out_rows, r);
        if (a->residual) {
            lls__rows residual_rows = lls__rows_of(a->residual), sum_rows = lls__rows_of(a->residual_out);
            int64_t residual_row = lls__row_offset(&residual_rows, r), sum_row = lls__row_offset(&sum_rows, r);
            for (int64_t i = 0; i < hidden; i++) {
                lls__set(a->residual_out, sum_row + i,
                         lls__get(a->x, h_row + i) + lls__get(a->residual, residual_row + i));
            }
            h = a->residual_out, h_row = sum_row;
        }
        double squares = 0;
        for (int64_t i = 0; i < hidden; i++) squares += lls__get(h, h_row + i) * lls__get(h, h_row + i);
        double scale = 1 / sqrt(squares / (double)hidden + (double)a->eps);
        for (int64_t i = 0; i < hidden; i++) {
            double w = a->weight ? lls__get(a->weight, i) + (double)a->weight_offset : 1;
            lls__set(a->out, out_row + i, lls__get(h, h_row + i) * scale * w);
        }
    }
    return LLS_OK;
}
