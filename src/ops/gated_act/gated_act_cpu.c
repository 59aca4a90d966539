/* Tiles of a row over threads, a vector of elements at a time. */
#include "core/ctx.h"
#include "core/tensor.h"
#include "cpu/simd_act.h"
#include "ops/gated_act/gated_act_kernels.h"

enum { TILE = 4096 }; // columns a task: some microseconds of work, several times a thread's wake-up

typedef struct job {
    const lls_gated_act_args *args;
    int64_t n, tiles; // columns; tiles a row
} job;

LLS_INLINE vf activate(lls_act act, vf x) {
    switch (act) {
    case LLS_ACT_GELU: return vf_gelu(x);
    case LLS_ACT_GELU_TANH: return vf_gelu_tanh(x);
    default: return vf_silu(x);
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
