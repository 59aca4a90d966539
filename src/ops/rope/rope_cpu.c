/* Tokens over threads. Cosines and sines are computed, or widened from the caller's tables, once a token, on the stack,
 * and serve all its heads. */
#include <string.h>

#include "core/ctx.h"
#include "core/tensor.h"
#include "cpu/simd.h"
#include "ops/rope/rope_kernels.h"

// Of one token. Interleaved pairs multiply whole vectors of x by entries that are doubled, [rotary_dim], with sin as
// (-s, s): see rotate_gptj.
typedef struct angles {
    _Alignas(64) float cos[2 * LLS_ROPE_MAX_PAIRS];
    _Alignas(64) float sin[2 * LLS_ROPE_MAX_PAIRS];
} angles;

// Fractions of a turn, within [-1/2, 1/2], to cos and sin: reduced to the nearest quarter turn, then Taylor's series on
// [-pi/4, pi/4], whose next terms are below 2e-9.
LLS_INLINE void cos_sin_of_turns(vf turns, vf *cos_out, vf *sin_out) {
    vf shifted = turns * vf_set1(4) +
                 vf_set1(12582912.0f); // 1.5 * 2^23: rounds to an integer, which lands in the low mantissa bits
    vi quarter = (vi)shifted;
    vf x = (turns - (shifted - vf_set1(12582912.0f)) * vf_set1(0.25f)) * vf_set1(6.28318531f), z = x * x;
    vf s = vf_set1(1.0f / 362880);
    s = vf_fma(s, z, vf_set1(-1.0f / 5040));
    s = vf_fma(s, z, vf_set1(1.0f / 120));
    s = vf_fma(s, z, vf_set1(-1.0f / 6));
    s = vf_fma(s * z, x, x);
    vf c = vf_set1(-1.0f / 3628800);
    c = vf_fma(c, z, vf_set1(1.0f / 40320));
    c = vf_fma(c, z, vf_set1(-1.0f / 720));
    c = vf_fma(c, z, vf_set1(1.0f / 24));
    c = vf_fma(c, z, vf_set1(-0.5f));
    c = vf_fma(c, z, vf_set1(1.0f));
    vi swapped = -(quarter & 1), sin_sign = (quarter & 2) << 30, cos_sign = ((quarter + 1) & 2) << 30;
    *cos_out = (vf)((vi)vf_select(swapped, s, c) ^ cos_sign);
    *sin_out = (vf)((vi)vf_select(swapped, c, s) ^ sin_sign);
}

static void compute(const lls__rope_call *call, int32_t position, angles *out) {
    int32_t pairs = call->args.rotary_dim / 2;
    float turns[LLS_ROPE_MAX_PAIRS + LLS_VF];
    for (int32_t i = 0; i < pairs; i++) {
        double t = position * call->inv_freq[i] * LLS__TURNS_PER_RADIAN;
        turns[i] = (float)(t - ((t + 0x1.8p52) - 0x1.8p52)); // minus the nearest integer; exact
    }
    for (int32_t i = pairs; i < pairs + LLS_VF; i++) turns[i] = 0;
    for (int32_t i = 0; i < pairs; i += LLS_VF) {
        vf c, s;
        cos_sin_of_turns(vf_load_f32(turns + i), &c, &s);
        vf_store_f32(out->cos + i, c * vf_set1(call->magnitude));
        vf_store_f32(out->sin + i, s * vf_set1(call->magnitude));
    }
}

LLS_INLINE vf load(lls_dtype dtype, const void *x, int64_t i, int64_t left) {
    return left >= LLS_VF ? vf_load(dtype, x, i) : vf_load_n(dtype, x, i, left);
}

static void read_row(const lls_tensor *table, int64_t row, int32_t pairs, float *out) {
    for (int32_t i = 0; i < pairs; i += LLS_VF)
        vf_store_f32(out + i, load(table->dtype, table->data, row * table->stride[0] + i, pairs - i));
}

static void angles_of(const lls__rope_call *call, int64_t token, angles *out) {
    const lls_rope_args *args = &call->args;
    int32_t pairs = args->rotary_dim / 2;
    if (args->cos) {
        int64_t row = lls__rope_table_row(args, token);
        read_row(args->cos, row, pairs, out->cos);
        read_row(args->sin, row, pairs, out->sin);
    } else {
        compute(call, ((const int32_t *)args->positions->data)[token], out);
    }
    if (args->style == LLS_ROPE_NEOX) return;
    for (int32_t i = pairs - 1; i >= 0; i--) { // backwards, so that it may widen in place
        float c = out->cos[i], s = out->sin[i];
        out->cos[2 * i] = out->cos[2 * i + 1] = c;
        out->sin[2 * i] = -s, out->sin[2 * i + 1] = s;
    }
}

LLS_INLINE void store(lls_dtype dtype, void *x, int64_t i, int64_t left, vf v) {
    if (left >= LLS_VF) vf_store(dtype, x, i, v);
    else vf_store_n(dtype, x, i, left, v);
}

// Element i with i + pairs.
LLS_INLINE void rotate_neox(lls_dtype dtype, const void *x, void *out, int32_t pairs, const angles *a) {
    for (int32_t i = 0; i < pairs; i += LLS_VF) {
        int32_t left = pairs - i;
        vf c = vf_load_f32(a->cos + i), s = vf_load_f32(a->sin + i);
        vf u = load(dtype, x, i, left), v = load(dtype, x, i + pairs, left);
        store(dtype, out, i, left, vf_fma(u, c, -(v * s)));
        store(dtype, out, i + pairs, left, vf_fma(v, c, u * s));
    }
}

// Element 2i with 2i + 1: (u, v) * (c, c) + (v, u) * (-s, s).
LLS_INLINE void rotate_gptj(lls_dtype dtype, const void *x, void *out, int32_t rotary_dim, const angles *a) {
    typedef uint64_t pair_lanes __attribute__((vector_size(LLS_VF * 4)));
    for (int32_t i = 0; i < rotary_dim; i += LLS_VF) {
        int32_t left = rotary_dim - i;
        vf uv = load(dtype, x, i, left);
        vf vu = (vf)((pair_lanes)uv << 32 | (pair_lanes)uv >> 32);
        store(dtype, out, i, left, vf_fma(uv, vf_load_f32(a->cos + i), vu * vf_load_f32(a->sin + i)));
    }
}

// One token's heads, x [heads, head_dim] to out.
LLS_INLINE void rotate_heads(lls_dtype dtype, const lls_rope_args *args, const lls_tensor *x, const lls_tensor *out,
                             int64_t token, const angles *a) {
    int64_t size = lls__elem_size(dtype), tail = (x->shape[2] - args->rotary_dim) * size;
    for (int64_t h = 0; h < x->shape[1]; h++) {
        const char *from = (const char *)x->data + (token * x->stride[0] + h * x->stride[1]) * size;
        char *to = (char *)out->data + (token * out->stride[0] + h * out->stride[1]) * size;
        if (args->style == LLS_ROPE_NEOX) rotate_neox(dtype, from, to, args->rotary_dim / 2, a);
        else rotate_gptj(dtype, from, to, args->rotary_dim, a);
        if (tail && to != from) memcpy(to + args->rotary_dim * size, from + args->rotary_dim * size, (size_t)tail);
    }
}

static void rotate_tensor(const lls_rope_args *args, const lls_tensor *x, const lls_tensor *out, int64_t token,
                          const angles *a) {
    switch (x->dtype) { // a constant dtype lets the compiler unswitch the inner loops
    case LLS_F16: rotate_heads(LLS_F16, args, x, out, token, a); break;
    case LLS_BF16: rotate_heads(LLS_BF16, args, x, out, token, a); break;
    default: rotate_heads(LLS_F32, args, x, out, token, a); break;
    }
}

static void tokens(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const lls__rope_call *call = arg;
    const lls_rope_args *args = &call->args;
    angles a;
    for (int64_t t = begin; t < end; t++) {
        angles_of(call, t, &a);
        rotate_tensor(args, args->x, args->out, t, &a);
        if (args->x2) rotate_tensor(args, args->x2, args->out2, t, &a);
    }
}

lls_status LLS_CPU(lls__rope_cpu)(lls_ctx *ctx, const void *call_arg, lls_stream stream) {
    (void)stream;
    lls__rope_call *call = (lls__rope_call *)call_arg; // read only; the pool's argument is not const
    const lls_tensor *x = call->args.x, *x2 = call->args.x2;
    int64_t elements = (x->shape[1] + (x2 ? x2->shape[1] : 0)) * x->shape[2]; // a token
    int64_t grain = 16384 / (elements + 1) + 1; // below some 16k elements a thread's wake-up costs more than it saves
    lls__parallel(ctx, x->shape[0], grain, tokens, call);
    return LLS_OK;
}
