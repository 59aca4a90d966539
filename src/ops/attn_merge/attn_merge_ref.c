/* The oracle: the formula in double. */
#include <math.h>

#include "core/element.h"
#include "ops/attn_merge/attn_merge_kernels.h"

lls_status lls__attn_merge_ref(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)ctx, (void)stream;
    const lls_attn_merge_args *m = args;
    int64_t rows = m->a->shape[0] * m->a->shape[1];
    for (int64_t r = 0; r < rows; r++) {
        double lse_a = lls__get(m->lse_a, lls__attn_merge_offset(m->lse_a, r)),
               lse_b = lls__get(m->lse_b, lls__attn_merge_offset(m->lse_b, r));
        bool has_a = lse_a != -INFINITY, has_b = lse_b != -INFINITY;
        double top = fmax(lse_a, lse_b), weight_a = has_a ? exp(lse_a - top) : 0,
               weight_b = has_b ? exp(lse_b - top) : 0, sum = weight_a + weight_b;
        int64_t a = lls__attn_merge_offset(m->a, r), b = lls__attn_merge_offset(m->b, r),
                out = lls__attn_merge_offset(m->out, r);
        for (int64_t d = 0; d < m->a->shape[2]; d++) {
            double x = has_a ? weight_a / sum * lls__get(m->a, a + d) : 0,
                   y = has_b ? weight_b / sum * lls__get(m->b, b + d) : 0;
            lls__set(m->out, out + d, !has_b ? x : !has_a ? y : x + y);
        }
        if (m->lse) lls__set(m->lse, lls__attn_merge_offset(m->lse, r), has_a || has_b ? top + log(sum) : -INFINITY);
    }
    return LLS_OK;
}
