/* The oracle: each activation as its paper defines it, in double, one rounding at the end. */
#include "core/activation.h"
#include "core/element.h"
#include "ops/gated_act/gated_act_kernels.h"

static double activate(lls_act act, double x) {
    switch (act) {
    case LLS_ACT_GELU: return lls__gelu_f64(x);
    case LLS_ACT_GELU_TANH: return lls__gelu_tanh_f64(x);
    default: return lls__silu_f64(x);
    }
}

lls_status lls__gated_act_ref(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)ctx, (void)stream;
    const lls_gated_act_args *a = args;
    for (int64_t r = 0; r < a->gate->shape[0]; r++) {
        for (int64_t i = 0; i < a->gate->shape[1]; i++) {
            double y = activate(a->act, lls__get(a->gate, r * a->gate->stride[0] + i));
            if (a->up) y *= lls__get(a->up, r * a->up->stride[0] + i);
            lls__set(a->out, r * a->out->stride[0] + i, y);
        }
    }
    return LLS_OK;
}
