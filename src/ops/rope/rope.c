/* Validation, the variant table, and the CUDA launches of rope. The definition is in ops.h. */
#include <string.h>

#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/variant.h"
#include "ops/rope/rope_kernels.h"

static const char *const op = "rope";

#if LLS_WITH_CUDA
#include "dispatch/launch.h"

static const lls__kernel kernels[] = {
    LLS_KERNEL(lls_rope_01_naive_f32),
    LLS_KERNEL(lls_rope_01_naive_f16),
    LLS_KERNEL(lls_rope_01_naive_bf16),
};

static lls__rope_heads heads_of(const lls_tensor *x, const lls_tensor *out) {
    return (lls__rope_heads){
        .x = x->data,
        .out = out->data,
        .heads = x->shape[1],
        .x_token = x->stride[0],
        .x_head = x->stride[1],
        .out_token = out->stride[0],
        .out_head = out->stride[1],
    };
}

static lls_status naive(lls_ctx *ctx, const void *call_arg, lls_stream stream) {
    const lls__rope_call *call = call_arg;
    const lls_rope_args *a = &call->args;
    lls__rope_params p = {
        .set = {heads_of(a->x, a->out)},
        .positions = a->positions->data,
        .head_dim = (int32_t)a->x->shape[2],
        .rotary_dim = a->rotary_dim,
        .interleaved = a->style == LLS_ROPE_GPTJ,
        .magnitude = call->magnitude,
    };
    if (a->x2) p.set[1] = heads_of(a->x2, a->out2);
    memcpy(p.inv_freq, call->inv_freq, (size_t)a->rotary_dim / 2 * sizeof *p.inv_freq);
    lls__grid shape = {.grid = {(uint32_t)a->x->shape[0], 1, 1}, .block = {256, 1, 1}};
    return lls__launch(ctx, &kernels[lls__float_index(a->x->dtype)], &shape, (void *[]){&p}, stream);
}
#endif

static const lls__variant variants[] = {
#if LLS_WITH_CUDA
    {"01_naive", LLS_CUDA, "f32 f16 bf16", 80, LLS__CPU_PORTABLE, NULL, naive},
#endif
    {"cpu_avx512", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX512, NULL, lls__rope_cpu_avx512},
    {"cpu_avx2", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX2, NULL, lls__rope_cpu_avx2},
    {"cpu_portable", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__rope_cpu_portable},
    {"ref", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__rope_ref},
};

const lls__op lls__op_rope = {
    .name = "rope",
    .variants = variants,
    .num_variants = LLS_COUNT(variants),
#if LLS_WITH_CUDA
    .kernels = kernels,
    .num_kernels = LLS_COUNT(kernels),
#endif
};

// One of the pairs (x, out), (x2, out2).
static lls_status check_pair(const lls_ctx *ctx, const lls_rope_args *a, const char *name, const lls_tensor *t,
                             const char *out_name, const lls_tensor *out) {
    LLS_TRY(lls__check_tensor(ctx, op, name, t, 3, 3, LLS__FLOATS));
    LLS_TRY(lls__check_inner_contiguous(op, name, t));
    if (t != a->x) {
        LLS_TRY(lls__check_same_dtype(op, name, t, "x", a->x));
        LLS_TRY(lls__check_dim(op, name, t, 0, a->x->shape[0], "x.shape[0]"));
        LLS_TRY(lls__check_dim(op, name, t, 2, a->x->shape[2], "x.shape[2]"));
    }
    LLS_TRY(lls__check_tensor(ctx, op, out_name, out, 3, 3, LLS__FLOATS));
    LLS_TRY(lls__check_inner_contiguous(op, out_name, out));
    LLS_TRY(lls__check_same_dtype(op, out_name, out, name, t));
    LLS_TRY(lls__check_same_shape(op, out_name, out, name, t));
    LLS_TRY(lls__check_no_self_overlap(op, out_name, out));
    LLS_TRY(lls__check_in_place_or_disjoint(op, out_name, out, name, t));
    return lls__check_disjoint(op, out_name, out, "positions", a->positions);
}

static lls_status validate(const lls_ctx *ctx, const lls_rope_args *a) {
    LLS_TRY(lls__check_tensor(ctx, op, "x", a->x, 3, 3, LLS__FLOATS));
    if (a->x->shape[0] > INT32_MAX || a->x->shape[2] > INT32_MAX) {
        return lls__fail(LLS_ERR_SHAPE, "%s: x has %lld tokens of head_dim %lld, both must be below 2^31", op,
                         (long long)a->x->shape[0], (long long)a->x->shape[2]);
    }
    LLS_TRY(lls__check_vector(ctx, op, "positions", a->positions, a->x->shape[0], "x.shape[0]", LLS__DTYPE(LLS_I32)));
    LLS_TRY(check_pair(ctx, a, "x", a->x, "out", a->out));
    if (!a->x2 != !a->out2)
        return lls__fail(LLS_ERR_ARGUMENT, "%s: x2 and out2 must be given together, %s is NULL", op,
                         a->x2 ? "out2" : "x2");
    if (a->x2) {
        LLS_TRY(check_pair(ctx, a, "x2", a->x2, "out2", a->out2));
        LLS_TRY(lls__check_disjoint(op, "out", a->out, "x2", a->x2));
        LLS_TRY(lls__check_disjoint(op, "out2", a->out2, "x", a->x));
        LLS_TRY(lls__check_disjoint(op, "out2", a->out2, "out", a->out));
    }
    if (a->rotary_dim > a->x->shape[2]) {
        return lls__fail(LLS_ERR_ARGUMENT, "%s: rotary_dim is %d, must be at most head_dim = %lld", op, a->rotary_dim,
                         (long long)a->x->shape[2]);
    }
    if (a->style != LLS_ROPE_NEOX && a->style != LLS_ROPE_GPTJ) {
        return lls__fail(LLS_ERR_ARGUMENT, "%s: style is %d, must be LLS_ROPE_NEOX or LLS_ROPE_GPTJ", op,
                         (int)a->style);
    }
    return LLS_OK;
}

lls_status lls_rope(lls_ctx *ctx, const lls_rope_args *args, lls_stream stream) {
    lls__rope_call call;
    lls_rope_args *a = &call.args;
    LLS_TRY(lls__copy_args(op, a, sizeof *a, args));
    LLS_TRY(validate(ctx, a));
    if (lls_tensor_numel(a->x) == 0 && (!a->x2 || lls_tensor_numel(a->x2) == 0)) return LLS_OK;
    if (a->rotary_dim == 0) a->rotary_dim = (int32_t)a->x->shape[2];
    LLS_TRY(lls_rope_frequencies(a, call.inv_freq, &call.magnitude));
    return lls__dispatch(ctx, &lls__op_rope, a->variant, &call, stream);
}
