/* The oracle: exact weights, products and sums in double, one rounding at the end. */
#include "core/element.h"
#include "ops/linear/blocks.h"
#include "ops/linear/linear_kernels.h"

// weight[n, k]; blocks as scale * code + min in double, where it is exact
static double weight_at(const lls_tensor *w, int64_t n, int64_t k) {
    int64_t row = w->shape[0] > 1 ? n * w->stride[0] : 0;
    if (lls__is_float(w->dtype)) return lls__get(w, row + k);
    int64_t elems = lls_dtype_block_elems(w->dtype);
    const uint8_t *block = (const uint8_t *)w->data + (row + k) / elems * lls_dtype_block_bytes(w->dtype);
    lls__block_scale s = lls__block_scale_at(w->dtype, block, (int)(k % elems));
    return (double)s.scale * lls__block_code(w->dtype, block, (int)(k % elems)) + (double)s.min;
}

lls_status lls__linear_ref(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)ctx, (void)stream;
    const lls_linear_args *a = args;
    for (int64_t m = 0; m < a->out->shape[0]; m++) {
        for (int64_t n = 0; n < a->out->shape[1]; n++) {
            double sum = 0;
            for (int64_t k = 0; k < a->x->shape[1]; k++) {
                sum += lls__get(a->x, m * a->x->stride[0] + k) * weight_at(a->weight, n, k);
            }
            if (a->bias) sum += lls__get(a->bias, n);
            lls__set(a->out, m * a->out->stride[0] + n, sum);
        }
    }
    return LLS_OK;
}
