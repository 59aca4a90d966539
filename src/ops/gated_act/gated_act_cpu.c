/* Tiles of a row over threads, a vector of elements at a time. All three activations are written as x * p or x / q with
 * p in [0, 1] and q >= 1, so that they keep their relative accuracy where the textbook forms 1 + tanh and 1 + erf
 * cancel, and large |x| gives x or 0 instead of inf * 0. */
#include <float.h>

#include "core/ctx.h"
#include "core/tensor.h"
#include "cpu/simd.h"
#include "ops/gated_act/gated_act_kernels.h"

enum { TILE = 4096 }; // columns a task: some microseconds of work, several times a thread's wake-up

typedef struct job {
    const lls_gated_act_args *args;
    int64_t n, tiles; // columns; tiles a row
} job;

LLS_INLINE vf silu(vf x) {
    return x / (vf_set1(1) + vf_exp(-x));
}

/* (1 + tanh u) / 2 = 1 / (1 + e^-2u), with u = sqrt(2/pi) (x + 0.044715 x^3). */
LLS_INLINE vf gelu_tanh(vf x) {
    vf minus_2u = x * vf_fma(x * x, vf_set1(-0.0713548163f), vf_set1(-1.59576912f));
    return x / (vf_set1(1) + vf_exp(minus_2u));
}

/* x * P(N <= x). The lower tail is e^(-x^2/2) t p(t), t = 1/(1 + 0.2125 |x|): Hastings' form for erfc (1955,
 * "Approximations for Digital Computers"), p of degree 8 fitted here by Remez exchange to a relative error of 2.2e-8 on
 * |x| <= 13.5, past which the exponential is 0; 3e-7 in fp32 arithmetic. */
LLS_INLINE vf gelu(vf x) {
    vf magnitude = vf_max(x, -x);
    vf t = vf_set1(1) / vf_fma(magnitude, vf_set1(0.2125f), vf_set1(1));
    vf p = vf_set1(-0.063452296f);
    p = vf_fma(p, t, vf_set1(0.235362485f));
    p = vf_fma(p, t, vf_set1(-0.242742479f));
    p = vf_fma(p, t, vf_set1(0.260194659f));
    p = vf_fma(p, t, vf_set1(-0.0388566516f));
    p = vf_fma(p, t, vf_set1(0.104266562f));
    p = vf_fma(p, t, vf_set1(0.0750818476f));
    p = vf_fma(p, t, vf_set1(0.0853989944f));
    p = vf_fma(p, t, vf_set1(0.0847468749f));
    vf tail = vf_exp(x * x * vf_set1(-0.5f)) * (p * t);
    return x * vf_select(x > vf_set1(0), vf_set1(1) - tail, tail);
}

LLS_INLINE vf activate(lls_act act, vf x) {
    x = vf_max(vf_set1(-FLT_MAX), x); // -inf has the limit 0; NaN, as the second operand, passes
    switch (act) {
    case LLS_ACT_GELU: return gelu(x);
    case LLS_ACT_GELU_TANH: return gelu_tanh(x);
    default: return silu(x);
    }
}

/* out = act(gate) * up over n elements; up may be NULL. Inlined with constant dtype and act, so that the loop holds no
 * switch. */
LLS_INLINE void span(lls_dtype dtype, lls_act act, const void *gate, const void *up, void *out, int64_t n) {
    int64_t i = 0;
    for (; i + LLS_VF <= n; i += LLS_VF) {
        vf y = activate(act, vf_load(dtype, gate, i));
        vf_store(dtype, out, i, up ? y * vf_load(dtype, up, i) : y);
    }
    if (i < n) {
        vf y = activate(act, vf_load_n(dtype, gate, i, n - i));
        vf_store_n(dtype, out, i, n - i, up ? y * vf_load_n(dtype, up, i, n - i) : y);
    }
}

LLS_INLINE void span_of_act(lls_dtype dtype, lls_act act, const void *gate, const void *up, void *out, int64_t n) {
    switch (act) {
    case LLS_ACT_GELU: span(dtype, LLS_ACT_GELU, gate, up, out, n); break;
    case LLS_ACT_GELU_TANH: span(dtype, LLS_ACT_GELU_TANH, gate, up, out, n); break;
    default: span(dtype, LLS_ACT_SILU, gate, up, out, n); break;
    }
}

static void tiles(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    const lls_gated_act_args *a = j->args;
    for (int64_t tile = begin; tile < end; tile++) {
        int64_t r = tile / j->tiles, c = tile % j->tiles * TILE, n = j->n - c < TILE ? j->n - c : TILE;
        const void *gate = lls__at(a->gate, r * a->gate->stride[0] + c);
        const void *up = a->up ? lls__at(a->up, r * a->up->stride[0] + c) : NULL;
        void *out = lls__at(a->out, r * a->out->stride[0] + c);
        switch (a->gate->dtype) {
        case LLS_F16: span_of_act(LLS_F16, a->act, gate, up, out, n); break;
        case LLS_BF16: span_of_act(LLS_BF16, a->act, gate, up, out, n); break;
        default: span_of_act(LLS_F32, a->act, gate, up, out, n); break;
        }
    }
}

lls_status LLS_CPU(lls__gated_act_cpu)(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)stream;
    const lls_gated_act_args *a = args;
    int64_t rows = a->gate->shape[0], n = a->gate->shape[1];
    job j = {.args = a, .n = n, .tiles = (n + TILE - 1) / TILE};
    int64_t grain = n < TILE ? TILE / n : 1; // short rows: several a task
    lls__parallel(ctx, rows * j.tiles, grain, tiles, &j);
    return LLS_OK;
}
