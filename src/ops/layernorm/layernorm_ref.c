/* The oracle: the formula in double, one rounding at the end. */
#include <math.h>

#include "core/element.h"
#include "core/rows.h"
#include "ops/layernorm/layernorm_kernels.h"

lls_status lls__layernorm_ref(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)ctx, (void)stream;
    const lls_layernorm_args *a = args;
    lls__rows x_rows = lls__rows_of(a->x), out_rows = lls__rows_of(a->out);
    int64_t hidden = a->x->shape[a->x->ndim - 1];
    for (int64_t r = 0; r < lls__rows_count(&x_rows); r++) {
        int64_t x = lls__row_offset(&x_rows, r), out = lls__row_offset(&out_rows, r);
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < hidden; i++) mean += lls__get(a->x, x + i) / (double)hidden;
        for (int64_t i = 0; i < hidden; i++) {
            double d = lls__get(a->x, x + i) - mean;
            variance += d * d / (double)hidden;
        }
        double scale = 1 / sqrt(variance + (double)a->eps);
        for (int64_t i = 0; i < hidden; i++) {
            double w = a->weight ? lls__get(a->weight, i) : 1, b = a->bias ? lls__get(a->bias, i) : 0;
            lls__set(a->out, out + i, (lls__get(a->x, x + i) - mean) * scale * w + b);
        }
    }
    return LLS_OK;
}
