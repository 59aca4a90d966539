/* The oracle: one weight at a time. A block's weight is an fp32 number by definition (see blocks.h); the product is
 * formed in double and rounded once. */
#include "core/element.h"
#include "ops/embed/embed_kernels.h"
#include "ops/linear/blocks.h"

static double weight(const lls_tensor *table, int64_t row, int64_t i) {
    if (lls__is_float(table->dtype)) return lls__get(table, row * table->stride[0] + i);
    int64_t row_bytes = table->shape[1] / lls_dtype_block_elems(table->dtype) * lls_dtype_block_bytes(table->dtype);
    return lls__block_weight(table->dtype, (const uint8_t *)table->data + row * row_bytes, i);
}

lls_status lls__embed_ref(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)ctx, (void)stream;
    const lls_embed_args *a = args;
    const int32_t *ids = a->ids->data;
    for (int64_t t = 0; t < a->out->shape[0]; t++) {
        for (int64_t i = 0; i < a->out->shape[1]; i++)
            lls__set(a->out, t * a->out->stride[0] + i, weight(a->table, ids[t], i) * (double)a->scale);
    }
    return LLS_OK;
}
