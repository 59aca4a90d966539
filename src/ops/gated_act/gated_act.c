/* Validation, the variant table, and the CUDA launches of gated_act. The definition is in ops.h. */
#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/variant.h"
#include "ops/gated_act/gated_act_kernels.h"

static const char *const op = "gated_act";

#if LLS_WITH_CUDA
#include "dispatch/launch.h"

static const lls__kernel kernels[] = {
    LLS_KERNEL(lls_gated_act_01_naive_f32),
    LLS_KERNEL(lls_gated_act_01_naive_f16),
    LLS_KERNEL(lls_gated_act_01_naive_bf16),
};

static lls_status naive(lls_ctx *ctx, const void *args, lls_stream stream) {
    const lls_gated_act_args *a = args;
    lls__gated_act_params p = {
        .gate = a->gate->data,
        .up = a->up ? a->up->data : NULL,
        .out = a->out->data,
        .rows = a->gate->shape[0],
        .n = a->gate->shape[1],
        .gate_stride = a->gate->stride[0],
        .up_stride = a->up ? a->up->stride[0] : 0,
        .out_stride = a->out->stride[0],
        .act = a->act,
    };
    enum { BLOCK = 256 };
    lls__grid shape = {
        .grid = {lls__grid_axis((p.n + BLOCK - 1) / BLOCK, LLS__MAX_GRID_X), lls__grid_axis(p.rows, LLS__MAX_GRID_YZ),
                 1},
        .block = {BLOCK, 1, 1},
    };
    return lls__launch(ctx, &kernels[lls__float_index(a->gate->dtype)], &shape, (void *[]){&p}, stream);
}
#endif

static const char cpu_idea[] = "whole vectors; tiles of 4096 columns over threads";
static const lls__variant variants[] = {
#if LLS_WITH_CUDA
    {"01_naive", LLS_CUDA, "f32 f16 bf16", 80, LLS__CPU_PORTABLE, NULL, naive, "a thread an element"},
#endif
    {"cpu_avx512", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX512, NULL, lls__gated_act_cpu_avx512, cpu_idea},
    {"cpu_avx2", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX2, NULL, lls__gated_act_cpu_avx2, cpu_idea},
    {"cpu_portable", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__gated_act_cpu_portable, cpu_idea},
    {"ref", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__gated_act_ref,
     "the definition in double: the oracle"},
};

// Operations an element, exp, erf and tanh as one each; the product with up is one more.
static double act_flops(lls_act act) {
    switch (act) {
    case LLS_ACT_SILU: return 4;      // x / (1 + exp(-x))
    case LLS_ACT_GELU: return 5;      // x / 2 * (1 + erf(x / sqrt(2)))
    case LLS_ACT_GELU_TANH: return 9; // x / 2 * (1 + tanh(a x (1 + b x^2)))
    }
    return 0;
}

static void cost(lls_ctx *ctx, const void *args, lls_stream stream, lls__cost *c) {
    (void)ctx, (void)stream;
    const lls_gated_act_args *a = args;
    c->bytes = lls__tensor_bytes(a->gate) + lls__tensor_bytes(a->up) + lls__tensor_bytes(a->out);
    c->flops = (act_flops(a->act) + !!a->up) * (double)lls_tensor_numel(a->out);
    c->math = LLS_MATH_F32;
}

const lls__op lls__op_gated_act = {
    .name = "gated_act",
    .variants = variants,
    .num_variants = LLS_COUNT(variants),
#if LLS_WITH_CUDA
    .kernels = kernels,
    .num_kernels = LLS_COUNT(kernels),
#endif
    .cost = cost,
};

static lls_status check_like_gate(const lls_ctx *ctx, const lls_gated_act_args *a, const char *name,
                                  const lls_tensor *t) {
    LLS_TRY(lls__check_tensor(ctx, op, name, t, 2, 2, LLS__FLOATS));
    LLS_TRY(lls__check_same_dtype(op, name, t, "gate", a->gate));
    LLS_TRY(lls__check_same_shape(op, name, t, "gate", a->gate));
    return lls__check_inner_contiguous(op, name, t);
}

static lls_status validate(const lls_ctx *ctx, const lls_gated_act_args *a) {
    LLS_TRY(lls__check_tensor(ctx, op, "gate", a->gate, 2, 2, LLS__FLOATS));
    LLS_TRY(lls__check_inner_contiguous(op, "gate", a->gate));
    LLS_TRY(check_like_gate(ctx, a, "out", a->out));
    LLS_TRY(lls__check_no_self_overlap(op, "out", a->out));
    LLS_TRY(lls__check_in_place_or_disjoint(op, "out", a->out, "gate", a->gate));
    if (a->up) {
        LLS_TRY(check_like_gate(ctx, a, "up", a->up));
        LLS_TRY(lls__check_in_place_or_disjoint(op, "out", a->out, "up", a->up));
    }
    if (a->act < LLS_ACT_SILU || a->act > LLS_ACT_GELU_TANH) {
        return lls__fail(LLS_ERR_ARGUMENT, "%s: act is %d, must be LLS_ACT_SILU, LLS_ACT_GELU or LLS_ACT_GELU_TANH", op,
                         (int)a->act);
    }
    return LLS_OK;
}

lls_status lls_gated_act(lls_ctx *ctx, const lls_gated_act_args *args, lls_stream stream) {
    lls_gated_act_args a;
    LLS_TRY(lls__copy_args(op, &a, sizeof a, args));
    LLS_TRY(validate(ctx, &a));
    if (lls_tensor_numel(a.gate) == 0) return LLS_OK;
    return lls__dispatch(ctx, &lls__op_gated_act, a.variant, &a, stream);
}
