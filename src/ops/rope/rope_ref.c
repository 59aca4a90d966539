/* The oracle: angle, cosine and sine (unless they are given) and rotation in double, one rounding at the end. */
#include <math.h>
#include <string.h>

#include "core/element.h"
#include "ops/rope/rope_kernels.h"

static void angle(const lls__rope_call *call, int64_t token, int32_t pair, double *c, double *s) {
    const lls_rope_args *a = &call->args;
    if (a->cos) {
        int64_t row = lls__rope_table_row(a, token);
        *c = lls__get(a->cos, row * a->cos->stride[0] + pair);
        *s = lls__get(a->sin, row * a->sin->stride[0] + pair);
        return;
    }
    double radians = ((const int32_t *)a->positions->data)[token] * call->inv_freq[pair];
    *c = cos(radians) * call->magnitude;
    *s = sin(radians) * call->magnitude;
}

static void rotate(const lls__rope_call *call, const lls_tensor *x, const lls_tensor *out) {
    const lls_rope_args *a = &call->args;
    int32_t pairs = a->rotary_dim / 2;
    for (int64_t t = 0; t < x->shape[0]; t++) {
        for (int64_t h = 0; h < x->shape[1]; h++) {
            int64_t from = t * x->stride[0] + h * x->stride[1], to = t * out->stride[0] + h * out->stride[1];
            for (int32_t i = 0; i < pairs; i++) {
                int32_t first = a->style == LLS_ROPE_GPTJ ? 2 * i : i,
                        second = a->style == LLS_ROPE_GPTJ ? 2 * i + 1 : i + pairs;
                double c, s;
                angle(call, t, i, &c, &s);
                double u = lls__get(x, from + first), v = lls__get(x, from + second);
                lls__set(out, to + first, u * c - v * s);
                lls__set(out, to + second, v * c + u * s);
            }
            size_t tail = (size_t)((x->shape[2] - a->rotary_dim) * lls__elem_size(x->dtype));
            if (out->data != x->data) memcpy(lls__at(out, to + a->rotary_dim), lls__at(x, from + a->rotary_dim), tail);
        }
    }
}

lls_status lls__rope_ref(lls_ctx *ctx, const void *call_arg, lls_stream stream) {
    (void)ctx, (void)stream;
    const lls__rope_call *call = call_arg;
    rotate(call, call->args.x, call->args.out);
    if (call->args.x2) rotate(call, call->args.x2, call->args.out2);
    return LLS_OK;
}
