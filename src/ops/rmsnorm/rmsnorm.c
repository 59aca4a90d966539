/* Validation, the variant table, and the CUDA launches of rmsnorm. The definition is in ops.h. */
#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/variant.h"
#include "ops/rmsnorm/rmsnorm_kernels.h"

static const char *const op = "rmsnorm";

#if LLS_WITH_CUDA
#include "dispatch/launch.h"

static const lls__kernel kernels[] = {
    LLS_KERNEL(lls_rmsnorm_01_naive_f32),
    LLS_KERNEL(lls_rmsnorm_01_naive_f16),
    LLS_KERNEL(lls_rmsnorm_01_naive_bf16),
};

static lls_status naive(lls_ctx *ctx, const void *args, lls_stream stream) {
    const lls_rmsnorm_args *a = args;
    lls__rmsnorm_params p = {
        .x = a->x->data,
        .weight = a->weight ? a->weight->data : NULL,
        .out = a->out->data,
        .x_rows = lls__rows_of(a->x),
        .out_rows = lls__rows_of(a->out),
        .hidden = (int32_t)a->x->shape[a->x->ndim - 1],
        .weight_is_f32 = a->weight && a->weight->dtype == LLS_F32,
        .eps = a->eps,
        .weight_offset = a->weight_offset,
    };
    if (a->residual) {
        p.residual = a->residual->data, p.residual_rows = lls__rows_of(a->residual);
        p.residual_out = a->residual_out->data, p.residual_out_rows = lls__rows_of(a->residual_out);
    }
    lls__grid shape = {.grid = {(uint32_t)lls__rows_count(&p.x_rows), 1, 1}, .block = {256, 1, 1}};
    return lls__launch(ctx, &kernels[lls__float_index(a->x->dtype)], &shape, (void *[]){&p}, stream);
}
#endif

static const char cpu_idea[] = "rows over threads; a row is read twice from L1, four partial sums";
static const lls__variant variants[] = {
#if LLS_WITH_CUDA
    {"01_naive", LLS_CUDA, "f32 f16 bf16", 80, LLS__CPU_PORTABLE, NULL, naive,
     "a block a row, squares reduced in fp32, the row read a second time"},
#endif
    {"cpu_avx512", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX512, NULL, lls__rmsnorm_cpu_avx512, cpu_idea},
    {"cpu_avx2", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX2, NULL, lls__rmsnorm_cpu_avx2, cpu_idea},
    {"cpu_portable", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__rmsnorm_cpu_portable, cpu_idea},
    {"ref", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__rmsnorm_ref,
     "the definition in double: the oracle"},
};

// An element: square, sum, times 1 / rms; then weight and residual.
static void cost(lls_ctx *ctx, const void *args, lls_stream stream, lls__cost *c) {
    (void)ctx, (void)stream;
    const lls_rmsnorm_args *a = args;
    c->bytes = lls__tensor_bytes(a->x) + lls__tensor_bytes(a->weight) + lls__tensor_bytes(a->residual) +
               lls__tensor_bytes(a->residual_out) + lls__tensor_bytes(a->out);
    c->flops = (3.0 + !!a->weight + !!a->residual) * (double)lls_tensor_numel(a->x);
    c->math = LLS_MATH_F32;
}

const lls__op lls__op_rmsnorm = {
    .name = "rmsnorm",
    .variants = variants,
    .num_variants = LLS_COUNT(variants),
#if LLS_WITH_CUDA
    .kernels = kernels,
    .num_kernels = LLS_COUNT(kernels),
#endif
    .cost = cost,
};

static lls_status check_like_x(const lls_ctx *ctx, const lls_rmsnorm_args *a, const char *name, const lls_tensor *t) {
    LLS_TRY(lls__check_tensor(ctx, op, name, t, 1, LLS_MAX_DIMS, LLS__FLOATS));
    LLS_TRY(lls__check_same_dtype(op, name, t, "x", a->x));
    LLS_TRY(lls__check_same_shape(op, name, t, "x", a->x));
    return lls__check_inner_contiguous(op, name, t);
}

static lls_status check_output(const lls_ctx *ctx, const lls_rmsnorm_args *a, const char *name, const lls_tensor *t) {
    LLS_TRY(check_like_x(ctx, a, name, t));
    LLS_TRY(lls__check_no_self_overlap(op, name, t));
    LLS_TRY(lls__check_in_place_or_disjoint(op, name, t, "x", a->x));
    return a->weight ? lls__check_disjoint(op, name, t, "weight", a->weight) : LLS_OK;
}

static lls_status validate(const lls_ctx *ctx, const lls_rmsnorm_args *a) {
    LLS_TRY(lls__check_tensor(ctx, op, "x", a->x, 1, LLS_MAX_DIMS, LLS__FLOATS));
    LLS_TRY(lls__check_inner_contiguous(op, "x", a->x));
    int64_t hidden = a->x->shape[a->x->ndim - 1];
    if (hidden > INT32_MAX)
        return lls__fail(LLS_ERR_SHAPE, "%s: the last axis of x is %lld, must be below 2^31", op, (long long)hidden);
    if (a->weight) {
        LLS_TRY(lls__check_vector(ctx, op, "weight", a->weight, hidden, "the last axis of x",
                                  LLS__DTYPE(LLS_F32) | LLS__DTYPE(a->x->dtype)));
    }
    LLS_TRY(check_output(ctx, a, "out", a->out));
    if (!a->residual != !a->residual_out) {
        return lls__fail(LLS_ERR_ARGUMENT, "%s: residual and residual_out must be given together, %s is NULL", op,
                         a->residual ? "residual_out" : "residual");
    }
    if (a->residual) {
        LLS_TRY(check_like_x(ctx, a, "residual", a->residual));
        LLS_TRY(check_output(ctx, a, "residual_out", a->residual_out));
        LLS_TRY(lls__check_in_place_or_disjoint(op, "residual_out", a->residual_out, "residual", a->residual));
        LLS_TRY(lls__check_disjoint(op, "residual_out", a->residual_out, "out", a->out));
        LLS_TRY(lls__check_in_place_or_disjoint(op, "out", a->out, "residual", a->residual));
    }
    if (!(a->eps >= 0)) return lls__fail(LLS_ERR_ARGUMENT, "%s: eps is %g, must be >= 0", op, (double)a->eps);
    return LLS_OK;
}

lls_status lls_rmsnorm(lls_ctx *ctx, const lls_rmsnorm_args *args, lls_stream stream) {
    lls_rmsnorm_args a;
    LLS_TRY(lls__copy_args(op, &a, sizeof a, args));
    LLS_TRY(validate(ctx, &a));
    if (lls_tensor_numel(a.x) == 0) return LLS_OK;
    return lls__dispatch(ctx, &lls__op_rmsnorm, a.variant, &a, stream);
}
