/* Validation, the variant table, and the CUDA launches of layernorm. The definition is in ops.h. */
#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/variant.h"
#include "ops/layernorm/layernorm_kernels.h"

static const char *const op = "layernorm";

#if LLS_WITH_CUDA
#include "dispatch/launch.h"

static const lls__kernel kernels[] = {
    LLS_KERNEL(lls_layernorm_01_naive_f32),
    LLS_KERNEL(lls_layernorm_01_naive_f16),
    LLS_KERNEL(lls_layernorm_01_naive_bf16),
};

static lls_status naive(lls_ctx *ctx, const void *args, lls_stream stream) {
    const lls_layernorm_args *a = args;
    lls__layernorm_params p = {
        .x = a->x->data,
        .out = a->out->data,
        .x_rows = lls__rows_of(a->x),
        .out_rows = lls__rows_of(a->out),
        .hidden = (int32_t)a->x->shape[a->x->ndim - 1],
        .eps = a->eps,
    };
    p.num_rows = lls__rows_count(&p.x_rows);
    if (a->weight) p.weight = a->weight->data, p.weight_dtype = a->weight->dtype;
    if (a->bias) p.bias = a->bias->data, p.bias_dtype = a->bias->dtype;
    lls__grid shape = {.grid = {lls__grid_axis(p.num_rows, LLS__MAX_GRID_X), 1, 1}, .block = {256, 1, 1}};
    return lls__launch(ctx, &kernels[lls__float_index(a->x->dtype)], &shape, (void *[]){&p}, stream);
}
#endif

static const char cpu_idea[] = "rows over threads, four independent partial sums";
static const lls__variant variants[] = {
#if LLS_WITH_CUDA
    {"01_naive", LLS_CUDA, "f32 f16 bf16", 80, LLS__CPU_PORTABLE, NULL, naive, "a block a row, three walks over it"},
#endif
    {"cpu_avx512", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX512, NULL, lls__layernorm_cpu_avx512, cpu_idea},
    {"cpu_avx2", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX2, NULL, lls__layernorm_cpu_avx2, cpu_idea},
    {"cpu_portable", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__layernorm_cpu_portable, cpu_idea},
    {"ref", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__layernorm_ref,
     "the definition in double: the oracle"},
};

// An element: sum; subtract the mean, square, sum; subtract, times 1 / deviation; then weight and bias.
static void cost(lls_ctx *ctx, const void *args, lls_stream stream, lls__cost *c) {
    (void)ctx, (void)stream;
    const lls_layernorm_args *a = args;
    c->bytes = lls__tensor_bytes(a->x) + lls__tensor_bytes(a->weight) + lls__tensor_bytes(a->bias) +
               lls__tensor_bytes(a->out);
    c->flops = (6.0 + !!a->weight + !!a->bias) * (double)lls_tensor_numel(a->x);
    c->math = LLS_MATH_F32;
}

const lls__op lls__op_layernorm = {
    .name = "layernorm",
    .variants = variants,
    .num_variants = LLS_COUNT(variants),
#if LLS_WITH_CUDA
    .kernels = kernels,
    .num_kernels = LLS_COUNT(kernels),
#endif
    .cost = cost,
};

static lls_status check_affine(const lls_ctx *ctx, const lls_layernorm_args *a, const char *name, const lls_tensor *t) {
    if (!t) return LLS_OK;
    int64_t hidden = a->x->shape[a->x->ndim - 1];
    LLS_TRY(lls__check_vector(ctx, op, name, t, hidden, "the last axis of x",
                              LLS__DTYPE(LLS_F32) | LLS__DTYPE(a->x->dtype)));
    return lls__check_disjoint(op, "out", a->out, name, t);
}

static lls_status validate(const lls_ctx *ctx, const lls_layernorm_args *a) {
    LLS_TRY(lls__check_tensor(ctx, op, "x", a->x, 1, LLS_MAX_DIMS, LLS__FLOATS));
    LLS_TRY(lls__check_inner_contiguous(op, "x", a->x));
    int64_t hidden = a->x->shape[a->x->ndim - 1];
    if (hidden > INT32_MAX)
        return lls__fail(LLS_ERR_SHAPE, "%s: the last axis of x is %lld, must be below 2^31", op, (long long)hidden);
    LLS_TRY(lls__check_tensor(ctx, op, "out", a->out, 1, LLS_MAX_DIMS, LLS__FLOATS));
    LLS_TRY(lls__check_same_dtype(op, "out", a->out, "x", a->x));
    LLS_TRY(lls__check_same_shape(op, "out", a->out, "x", a->x));
    LLS_TRY(lls__check_inner_contiguous(op, "out", a->out));
    LLS_TRY(lls__check_no_self_overlap(op, "out", a->out));
    LLS_TRY(lls__check_in_place_or_disjoint(op, "out", a->out, "x", a->x));
    LLS_TRY(check_affine(ctx, a, "weight", a->weight));
    LLS_TRY(check_affine(ctx, a, "bias", a->bias));
    if (!(a->eps >= 0)) return lls__fail(LLS_ERR_ARGUMENT, "%s: eps is %g, must be >= 0", op, (double)a->eps);
    return LLS_OK;
}

lls_status lls_layernorm(lls_ctx *ctx, const lls_layernorm_args *args, lls_stream stream) {
    lls_layernorm_args a;
    LLS_TRY(lls__copy_args(op, &a, sizeof a, args));
    LLS_TRY(validate(ctx, &a));
    if (lls_tensor_numel(a.x) == 0) return LLS_OK;
    return lls__dispatch(ctx, &lls__op_layernorm, a.variant, &a, stream);
}
