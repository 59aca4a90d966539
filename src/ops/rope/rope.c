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

static lls__rope_tables tables_of(const lls_tensor *cos, const lls_tensor *sin) {
    return (lls__rope_tables){
        .given = true,
        .dtype = cos->dtype,
        .cos = cos->data,
        .sin = sin->data,
        .len = cos->shape[0],
        .cos_row = cos->stride[0],
        .sin_row = sin->stride[0],
    };
}

static lls_status naive(lls_ctx *ctx, const void *call_arg, lls_stream stream) {
    const lls__rope_call *call = call_arg;
    const lls_rope_args *a = &call->args;
    lls__rope_params p = {
        .set = {heads_of(a->x, a->out)},
        .positions = a->positions ? a->positions->data : NULL,
        .head_dim = (int32_t)a->x->shape[2],
        .rotary_dim = a->rotary_dim,
        .interleaved = a->style == LLS_ROPE_GPTJ,
    };
    if (a->x2) p.set[1] = heads_of(a->x2, a->out2);
    if (a->cos) {
        p.tables = tables_of(a->cos, a->sin);
    } else {
        p.magnitude = call->magnitude;
        memcpy(p.inv_freq, call->inv_freq, (size_t)a->rotary_dim / 2 * sizeof *p.inv_freq);
    }
    lls__grid shape = {.grid = {(uint32_t)a->x->shape[0], 1, 1}, .block = {256, 1, 1}};
    return lls__launch(ctx, &kernels[lls__float_index(a->x->dtype)], &shape, (void *[]){&p}, stream);
}
#endif

static const char cpu_idea[] = "sines once a token for all heads, whole vectors of pairs, tokens over threads";
static const lls__variant variants[] = {
#if LLS_WITH_CUDA
    {"01_naive", LLS_CUDA, "f32 f16 bf16", 80, LLS__CPU_PORTABLE, NULL, naive,
     "a block a token, sines in shared memory"},
#endif
    {"cpu_avx512", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX512, NULL, lls__rope_cpu_avx512, cpu_idea},
    {"cpu_avx2", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX2, NULL, lls__rope_cpu_avx2, cpu_idea},
    {"cpu_portable", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__rope_cpu_portable, cpu_idea},
    {"ref", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__rope_ref, "the definition in double: the oracle"},
};

// A pair: four products and two sums. What is past rotary_dim is copied.
static void cost(lls_ctx *ctx, const void *call_arg, lls_stream stream, lls__cost *c) {
    (void)ctx, (void)stream;
    const lls_rope_args *a = &((const lls__rope_call *)call_arg)->args;
    int64_t heads = a->x->shape[1] + (a->x2 ? a->x2->shape[1] : 0);
    c->bytes = lls__tensor_bytes(a->x) + lls__tensor_bytes(a->out) + lls__tensor_bytes(a->x2) +
               lls__tensor_bytes(a->out2) + lls__tensor_bytes(a->positions) +
               lls__tensor_rows_bytes(a->cos, a->x->shape[0]) + lls__tensor_rows_bytes(a->sin, a->x->shape[0]);
    c->flops = 3.0 * (double)(a->x->shape[0] * heads) * a->rotary_dim;
    c->math = LLS_MATH_F32;
}

const lls__op lls__op_rope = {
    .name = "rope",
    .variants = variants,
    .num_variants = LLS_COUNT(variants),
#if LLS_WITH_CUDA
    .kernels = kernels,
    .num_kernels = LLS_COUNT(kernels),
#endif
    .cost = cost,
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
    if (a->positions) LLS_TRY(lls__check_disjoint(op, out_name, out, "positions", a->positions));
    if (!a->cos) return LLS_OK;
    LLS_TRY(lls__check_disjoint(op, out_name, out, "cos", a->cos));
    return lls__check_disjoint(op, out_name, out, "sin", a->sin);
}

static lls_status check_table(const lls_ctx *ctx, const lls_rope_args *a, const char *name, const lls_tensor *t) {
    LLS_TRY(lls__check_tensor(ctx, op, name, t, 2, 2, LLS__DTYPE(LLS_F32) | LLS__DTYPE(a->x->dtype)));
    return lls__check_inner_contiguous(op, name, t);
}

static lls_status check_tables(const lls_ctx *ctx, const lls_rope_args *a) {
    if (!a->cos != !a->sin)
        return lls__fail(LLS_ERR_ARGUMENT, "%s: cos and sin must be given together, %s is NULL", op,
                         a->cos ? "sin" : "cos");
    if (!a->cos) return LLS_OK;
    LLS_TRY(check_table(ctx, a, "cos", a->cos));
    LLS_TRY(check_table(ctx, a, "sin", a->sin));
    LLS_TRY(lls__check_same_dtype(op, "sin", a->sin, "cos", a->cos));
    LLS_TRY(lls__check_same_shape(op, "sin", a->sin, "cos", a->cos));
    if (!a->positions)
        LLS_TRY(lls__check_dim(op, "cos", a->cos, 0, a->x->shape[0], "x.shape[0], positions being NULL"));
    const char *angles = a->theta != 0                              ? "theta"
                         : a->freq_factors                          ? "freq_factors"
                         : a->scaling.type != LLS_ROPE_SCALING_NONE ? "scaling.type"
                                                                    : NULL;
    if (!angles) return LLS_OK;
    return lls__fail(LLS_ERR_ARGUMENT, "%s: %s is set, must be left at its default with cos and sin", op, angles);
}

// Positions that the CPU can read, each a row of the tables.
static lls_status check_rows(const lls_rope_args *a) {
    for (int64_t t = 0; t < a->x->shape[0]; t++) {
        int64_t row = lls__rope_table_row(a, t);
        if (row < 0 || row >= a->cos->shape[0]) {
            return lls__fail(LLS_ERR_ARGUMENT, "%s: positions[%lld] is %lld, must be in [0, %lld), the rows of cos", op,
                             (long long)t, (long long)row, (long long)a->cos->shape[0]);
        }
    }
    return LLS_OK;
}

static lls_status validate(const lls_ctx *ctx, const lls_rope_args *a) {
    LLS_TRY(lls__check_tensor(ctx, op, "x", a->x, 3, 3, LLS__FLOATS));
    if (a->x->shape[0] > INT32_MAX || a->x->shape[2] > INT32_MAX) {
        return lls__fail(LLS_ERR_SHAPE, "%s: x has %lld tokens of head_dim %lld, both must be below 2^31", op,
                         (long long)a->x->shape[0], (long long)a->x->shape[2]);
    }
    LLS_TRY(check_tables(ctx, a));
    if (a->positions || !a->cos)
        LLS_TRY(
            lls__check_vector(ctx, op, "positions", a->positions, a->x->shape[0], "x.shape[0]", LLS__DTYPE(LLS_I32)));
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

// With tables: rotary_dim is known now.
static lls_status check_rotation(const lls_rope_args *a) {
    LLS_TRY(lls__rope_check_rotary_dim(a->rotary_dim));
    LLS_TRY(lls__check_dim(op, "cos", a->cos, 1, a->rotary_dim / 2, "rotary_dim / 2"));
    return a->x->device.type == LLS_CPU ? check_rows(a) : LLS_OK;
}

lls_status lls_rope(lls_ctx *ctx, const lls_rope_args *args, lls_stream stream) {
    lls__rope_call call;
    lls_rope_args *a = &call.args;
    LLS_TRY(lls__copy_args(op, a, sizeof *a, args));
    LLS_TRY(validate(ctx, a));
    if (lls_tensor_numel(a->x) == 0 && (!a->x2 || lls_tensor_numel(a->x2) == 0)) return LLS_OK;
    if (a->rotary_dim == 0) a->rotary_dim = (int32_t)a->x->shape[2];
    LLS_TRY(a->cos ? check_rotation(a) : lls_rope_frequencies(a, call.inv_freq, &call.magnitude));
    return lls__dispatch(ctx, &lls__op_rope, a->variant, &call, stream);
}
