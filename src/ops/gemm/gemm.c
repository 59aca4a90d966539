/* Validation, the variant table, and the CUDA launches of gemm. The definition is in ops.h. */
#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/variant.h"
#include "ops/gemm/gemm_kernels.h"

static const char *const op = "gemm";

static lls__gemm_matrix matrix_of(const lls_tensor *t) {
    int32_t row = t->ndim - 2, col = t->ndim - 1;
    return (lls__gemm_matrix){
        .data = t->data,
        .dtype = t->dtype,
        .batch = t->ndim == 3 && t->shape[0] > 1 ? t->stride[0] : 0,
        .row = t->shape[row] > 1 ? t->stride[row] : 1,
        .col = t->shape[col] > 1 ? t->stride[col] : 1,
    };
}

lls__gemm_problem lls__gemm_problem_of(const lls_gemm_args *args) {
    const lls_tensor *a = args->a, *out = args->out;
    lls__gemm_problem p = {
        .a = matrix_of(a),
        .b = matrix_of(args->b),
        .out = matrix_of(out),
        .batch = out->ndim == 3 ? out->shape[0] : 1,
        .m = out->shape[out->ndim - 2],
        .n = out->shape[out->ndim - 1],
        .k = a->shape[a->ndim - 1],
        .alpha = args->alpha,
        .beta = args->beta,
    };
    if (args->beta != 0) p.c = matrix_of(args->c);
    if (p.alpha == 0 || p.k == 0) p.alpha = 0, p.k = 0;
    return p;
}

#if LLS_WITH_CUDA
#include "dispatch/launch.h"

// Same output dtype as input: index of the float dtype. f16 and bf16 into f32: 2 more. Then i8 into i32.
enum { NAIVE_I8 = 5 };
static const lls__kernel kernels[] = {
    LLS_KERNEL(lls_gemm_01_naive_f32),     LLS_KERNEL(lls_gemm_01_naive_f16),      LLS_KERNEL(lls_gemm_01_naive_bf16),
    LLS_KERNEL(lls_gemm_01_naive_f16_f32), LLS_KERNEL(lls_gemm_01_naive_bf16_f32), LLS_KERNEL(lls_gemm_01_naive_i8_i32),
};

static int64_t blocks(int64_t size, int64_t block, int64_t limit) {
    int64_t count = (size + block - 1) / block;
    return count < limit ? count : limit;
}

static lls_status naive(lls_ctx *ctx, const void *args, lls_stream stream) {
    lls__gemm_problem p = lls__gemm_problem_of(args);
    int32_t instance = p.a.dtype == LLS_I8 ? NAIVE_I8
                                           : lls__float_index(p.a.dtype) + (p.out.dtype == p.a.dtype ? 0 : 2);
    lls__grid shape = {
        .grid = {(uint32_t)blocks(p.n, 32, INT32_MAX), (uint32_t)blocks(p.m, 8, 65535),
                 (uint32_t)blocks(p.batch, 1, 65535)},
        .block = {32, 8, 1},
    };
    return lls__launch(ctx, &kernels[instance], &shape, (void *[]){&p}, stream);
}
#endif

static const lls__variant variants[] = {
#if LLS_WITH_CUDA
    {"01_naive", LLS_CUDA, "f32 f16 bf16 i8", 80, LLS__CPU_PORTABLE, NULL, naive},
#endif
    {"cpu_avx512", LLS_CPU, "f32 f16 bf16 i8", 0, LLS__CPU_AVX512, NULL, lls__gemm_cpu_avx512},
    {"cpu_avx2", LLS_CPU, "f32 f16 bf16 i8", 0, LLS__CPU_AVX2, NULL, lls__gemm_cpu_avx2},
    {"cpu_portable", LLS_CPU, "f32 f16 bf16 i8", 0, LLS__CPU_PORTABLE, NULL, lls__gemm_cpu_portable},
    {"ref", LLS_CPU, "f32 f16 bf16 i8", 0, LLS__CPU_PORTABLE, NULL, lls__gemm_ref},
};

// alpha and beta are left out of the operations: they do not grow with k.
static void cost(lls_ctx *ctx, const void *args, lls_stream stream, lls__cost *c) {
    (void)ctx, (void)stream;
    const lls_gemm_args *g = args;
    int64_t k = g->alpha == 0 ? 0 : g->a->shape[g->a->ndim - 1];
    c->bytes = lls__tensor_bytes(g->out);
    if (k > 0) c->bytes += lls__tensor_bytes(g->a) + lls__tensor_bytes(g->b);
    if (g->beta != 0) c->bytes += lls__tensor_bytes(g->c);
    c->flops = 2.0 * (double)lls_tensor_numel(g->out) * (double)k;
    c->math = g->a->dtype == LLS_F32 ? LLS_MATH_F32 : g->a->dtype == LLS_I8 ? LLS_MATH_I8 : LLS_MATH_F16;
}

const lls__op lls__op_gemm = {
    .name = "gemm",
    .variants = variants,
    .num_variants = LLS_COUNT(variants),
#if LLS_WITH_CUDA
    .kernels = kernels,
    .num_kernels = LLS_COUNT(kernels),
#endif
    .cost = cost,
};

static const lls__dtypes inputs = LLS__FLOATS | LLS__DTYPE(LLS_I8);

static lls__dtypes outputs_of(lls_dtype input) {
    return input == LLS_I8 ? LLS__DTYPE(LLS_I32) : LLS__DTYPE(LLS_F32) | LLS__DTYPE(input);
}

static lls_status check_inputs(const lls_ctx *ctx, const lls_gemm_args *g) {
    LLS_TRY(lls__check_tensor(ctx, op, "a", g->a, 2, 3, inputs));
    int32_t ndim = g->a->ndim;
    LLS_TRY(lls__check_tensor(ctx, op, "b", g->b, ndim, ndim, inputs));
    LLS_TRY(lls__check_same_dtype(op, "b", g->b, "a", g->a));
    LLS_TRY(lls__check_dim(op, "b", g->b, ndim - 2, g->a->shape[ndim - 1], "k, the last axis of a"));
    return ndim == 3 ? lls__check_dim(op, "b", g->b, 0, g->a->shape[0], "a.shape[0]") : LLS_OK;
}

static lls_status check_output(const lls_ctx *ctx, const lls_gemm_args *g) {
    int32_t ndim = g->a->ndim;
    LLS_TRY(lls__check_tensor(ctx, op, "out", g->out, ndim, ndim, outputs_of(g->a->dtype)));
    LLS_TRY(lls__check_dim(op, "out", g->out, ndim - 2, g->a->shape[ndim - 2], "m, the rows of a"));
    LLS_TRY(lls__check_dim(op, "out", g->out, ndim - 1, g->b->shape[ndim - 1], "n, the columns of b"));
    if (ndim == 3) LLS_TRY(lls__check_dim(op, "out", g->out, 0, g->a->shape[0], "a.shape[0]"));
    LLS_TRY(lls__check_no_self_overlap(op, "out", g->out));
    LLS_TRY(lls__check_disjoint(op, "out", g->out, "a", g->a));
    return lls__check_disjoint(op, "out", g->out, "b", g->b);
}

// Integer products stay integers: there is nothing to scale them by.
static lls_status check_factors(const lls_gemm_args *g) {
    if (g->a->dtype != LLS_I8) return LLS_OK;
    if (g->alpha != 1) return lls__fail(LLS_ERR_ARGUMENT, "%s: alpha is %g, must be 1 for i8", op, (double)g->alpha);
    if (g->beta != 0 && g->beta != 1)
        return lls__fail(LLS_ERR_ARGUMENT, "%s: beta is %g, must be 0 or 1 for i8", op, (double)g->beta);
    return LLS_OK;
}

static lls_status check_addend(const lls_ctx *ctx, const lls_gemm_args *g) {
    if (!g->c && g->beta == 0) return LLS_OK;
    if (!g->c)
        return lls__fail(LLS_ERR_ARGUMENT, "%s: c is NULL, must be a tensor since beta is %g", op, (double)g->beta);
    LLS_TRY(lls__check_tensor(ctx, op, "c", g->c, 2, 3, LLS__FLOATS | LLS__DTYPE(LLS_I32)));
    LLS_TRY(lls__check_same_dtype(op, "c", g->c, "out", g->out));
    LLS_TRY(lls__check_same_shape(op, "c", g->c, "out", g->out));
    return lls__check_in_place_or_disjoint(op, "out", g->out, "c", g->c);
}

lls_status lls_gemm(lls_ctx *ctx, const lls_gemm_args *args, lls_stream stream) {
    lls_gemm_args g;
    LLS_TRY(lls__copy_args(op, &g, sizeof g, args));
    LLS_TRY(check_inputs(ctx, &g));
    LLS_TRY(check_output(ctx, &g));
    LLS_TRY(check_factors(&g));
    LLS_TRY(check_addend(ctx, &g));
    if (lls_tensor_numel(g.out) == 0) return LLS_OK;
    return lls__dispatch(ctx, &lls__op_gemm, g.variant, &g, stream);
}
