/* Validation and variant table of gemm_grouped. The definition is in ops.h. */
#include <stdlib.h>

#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/record.h"
#include "dispatch/variant.h"
#include "ops/gemm_grouped/gemm_grouped_kernels.h"

// What a group has in common with a gemm.
static lls_gemm_args as_gemm(const lls_gemm_grouped_args *g) {
    lls_gemm_args args = LLS_GEMM_ARGS_INIT;
    args.a = g->a, args.b = g->b, args.out = g->out, args.alpha = g->alpha, args.bias = g->bias, args.act = g->act;
    args.gated = g->gated, args.scale_a = g->scale_a, args.scale_b = g->scale_b, args.flags = g->flags;
    args.config = g->config;
    return args;
}

lls__gemm_problem lls__gemm_grouped_problem_of(const lls_gemm_grouped_args *args) {
    lls_gemm_args gemm = as_gemm(args);
    lls__gemm_problem p = lls__gemm_problem_of(&gemm);
    p.offsets = args->offsets->data;
    return p;
}

static lls_status check_offset_values(const char *op, const lls_gemm_grouped_args *g) {
    const int32_t *offsets = g->offsets->data;
    int64_t groups = g->b->shape[0], tokens = g->a->shape[0];
    if (offsets[0] < 0) return lls__fail(LLS_ERR_ARGUMENT, "%s: offsets[0] is %d, must be at least 0", op, offsets[0]);
    for (int64_t i = 0; i < groups; i++) {
        if (offsets[i + 1] < offsets[i])
            return lls__fail(LLS_ERR_ARGUMENT, "%s: offsets[%lld] is %d, must be at least the one before it, %d", op,
                             (long long)i + 1, offsets[i + 1], offsets[i]);
    }
    if (offsets[groups] > tokens)
        return lls__fail(LLS_ERR_ARGUMENT, "%s: offsets[%lld] is %d, must be at most the %lld rows of a", op,
                         (long long)groups, offsets[groups], (long long)tokens);
    return LLS_OK;
}

static lls_status check(const lls_ctx *ctx, const lls_gemm_grouped_args *g) {
    static const char *const op = "gemm_grouped";
    lls_gemm_args gemm = as_gemm(g);
    LLS_TRY(lls__gemm_check_grouped(ctx, &gemm));
    LLS_TRY(
        lls__check_vector(ctx, op, "offsets", g->offsets, g->b->shape[0] + 1, "b.shape[0] + 1", LLS__DTYPE(LLS_I32)));
    LLS_TRY(lls__check_disjoint(op, "out", g->out, "offsets", g->offsets));
    return lls_ctx_device(ctx).type == LLS_CPU ? check_offset_values(op, g) : LLS_OK;
}

#if LLS_WITH_CUDA
static lls_status naive(lls_ctx *ctx, const void *args, lls_stream stream) {
    lls__gemm_problem p = lls__gemm_grouped_problem_of(args);
    return lls__gemm_launch_naive(ctx, &p, stream);
}

static const char *reject_register_tile(const void *args) {
    lls__gemm_problem p = lls__gemm_grouped_problem_of(args);
    return lls__gemm_refuse_register_tile(&p);
}

static lls_status register_tile(lls_ctx *ctx, const void *args, lls_stream stream) {
    lls__gemm_problem p = lls__gemm_grouped_problem_of(args);
    return lls__gemm_launch_register_tile(ctx, &p, stream);
}

static const char *reject_mma_sync(const void *args) {
    lls__gemm_problem p = lls__gemm_grouped_problem_of(args);
    return lls__gemm_refuse_mma_sync(&p);
}

static lls_status mma_sync(lls_ctx *ctx, const void *args, lls_stream stream) {
    lls__gemm_problem p = lls__gemm_grouped_problem_of(args);
    return lls__gemm_launch_mma_sync(ctx, &p, stream);
}

static const char *reject_sm90(const void *args) {
    lls__gemm_problem p = lls__gemm_grouped_problem_of(args);
    return lls__gemm_sm90_reject(&p);
}

static lls_status sm90(lls_ctx *ctx, const void *args, lls_stream stream) {
    lls__gemm_problem p = lls__gemm_grouped_problem_of(args);
    const char *config = ((const lls_gemm_grouped_args *)args)->config;
    return lls__gemm_sm90_launch("gemm_grouped", ctx, &p, config, LLS__SM90_SPLIT_K, stream);
}
#endif

static const lls__variant variants[] = {
#if LLS_WITH_CUDA
    {"10_split_k", LLS_CUDA, "tf32 f16 bf16 f8 i8", 90, LLS__CPU_PORTABLE, reject_sm90, sm90,
     "gemm's 10_split_k, whose tiles find their group in a table", 90},
    {"05_mma_sync", LLS_CUDA, "f32 f16 bf16 f8 i8", 80, LLS__CPU_PORTABLE, reject_mma_sync, mma_sync,
     "gemm's 05_mma_sync, whose tiles find their group by the offsets"},
    {"03_register_tile", LLS_CUDA, "f32 f16 bf16", 80, LLS__CPU_PORTABLE, reject_register_tile, register_tile,
     "gemm's 03_register_tile, the same"},
    {"01_naive", LLS_CUDA, "f32 f16 bf16 f8 i8", 80, LLS__CPU_PORTABLE, NULL, naive,
     "gemm's 01_naive over each group's rows"},
#endif
    {"cpu_avx512", LLS_CPU, "f32 f16 bf16 f8 i8", 0, LLS__CPU_AVX512, NULL, lls__gemm_grouped_cpu_avx512,
     "gemm's product a group"},
    {"cpu_avx2", LLS_CPU, "f32 f16 bf16 f8 i8", 0, LLS__CPU_AVX2, NULL, lls__gemm_grouped_cpu_avx2,
     "gemm's product a group"},
    {"cpu_portable", LLS_CPU, "f32 f16 bf16 f8 i8", 0, LLS__CPU_PORTABLE, NULL, lls__gemm_grouped_cpu_portable,
     "gemm's product a group"},
    {"ref", LLS_CPU, "f32 f16 bf16 f8 i8", 0, LLS__CPU_PORTABLE, NULL, lls__gemm_grouped_ref, "sums in double"},
};

// Matrices of groups without rows are not read. Offsets that cannot be read count as if every row had a group, and every
// group a row.
static void cost(lls_ctx *ctx, const void *args, lls_stream stream, lls__cost *c) {
    const lls_gemm_grouped_args *g = args;
    lls__gemm_problem p = lls__gemm_grouped_problem_of(g);
    int64_t rows = 0, groups = 0;
    void *copy = NULL;
    p.offsets = lls__host_values(ctx, p.offsets, (size_t)(p.batch + 1) * sizeof *p.offsets, stream, &copy);
    for (int64_t i = 0; p.offsets && i < p.batch; i++) {
        lls__gemm_span span = lls__gemm_rows(&p, i);
        rows += span.end - span.begin, groups += span.end > span.begin;
    }
    if (!p.offsets) rows = p.m, groups = p.batch;
    free(copy);
    c->bytes = lls__tensor_rows_bytes(g->out, rows) + lls__tensor_bytes(g->offsets);
    if (g->bias) c->bytes += lls__tensor_rows_bytes(g->bias, groups);
    if (p.k > 0) {
        c->bytes += lls__tensor_rows_bytes(g->a, rows) + lls__tensor_rows_bytes(g->b, groups);
        if (g->scale_a) c->bytes += lls__tensor_rows_bytes(g->scale_a, rows);
        if (g->scale_b) c->bytes += lls__tensor_rows_bytes(g->scale_b, g->scale_b->ndim == 3 ? groups : INT64_MAX);
    }
    c->flops = 2.0 * (double)rows * (double)p.n * (double)p.k;
    c->math = lls__gemm_math(g->a->dtype, g->flags);
}

const lls__op lls__op_gemm_grouped = {
    .name = "gemm_grouped",
    .variants = variants,
    .num_variants = LLS_COUNT(variants),
    .cost = cost,
};

lls_status lls_gemm_grouped(lls_ctx *ctx, const lls_gemm_grouped_args *args, lls_stream stream) {
    lls_gemm_grouped_args g;
    LLS_TRY(lls__copy_args("gemm_grouped", &g, sizeof g, args));
    LLS_TRY(check(ctx, &g));
    if (lls_tensor_numel(g.out) == 0 || g.b->shape[0] == 0) return LLS_OK;
    return lls__dispatch(ctx, &lls__op_gemm_grouped, g.variant, &g, stream);
}
