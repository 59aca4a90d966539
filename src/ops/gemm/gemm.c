/* The variant table of gemm, and the launch of its naive rung. The definition is in ops.h. */
#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/variant.h"
#include "ops/gemm/gemm_kernels.h"
#include "ops/gemm/tune.h"

#if LLS_WITH_CUDA
#include "dispatch/launch.h"

enum { NAIVE_I8 = 3, NAIVE_F8 = 4 }; // after the float dtypes
static const lls__kernel kernels[] = {
    LLS_KERNEL(lls_gemm_01_naive_f32), LLS_KERNEL(lls_gemm_01_naive_f16), LLS_KERNEL(lls_gemm_01_naive_bf16),
    LLS_KERNEL(lls_gemm_01_naive_i8),  LLS_KERNEL(lls_gemm_01_naive_f8),
};

static const lls__kernel *const more_kernels[] = {lls__gemm_portable_kernels, lls__gemm_wgmma_kernels,
                                                  lls__gemm_sm90_kernels, NULL};

lls_status lls__gemm_launch_naive(lls_ctx *ctx, const lls__gemm_problem *p, lls_stream stream) {
    int32_t instance = lls__is_float(p->a.dtype) ? lls__float_index(p->a.dtype)
                       : p->a.dtype == LLS_I8    ? NAIVE_I8
                                                 : NAIVE_F8;
    lls__grid shape = {
        .grid = {lls__grid_axis((p->n + 63) / 64, LLS__MAX_GRID_X), lls__grid_axis((p->m + 7) / 8, LLS__MAX_GRID_YZ),
                 lls__grid_axis(p->batch, LLS__MAX_GRID_YZ)},
        .block = {32, 8, 1},
    };
    return lls__launch(ctx, &kernels[instance], &shape, (void *[]){(void *)p}, stream);
}

static lls_status naive(lls_ctx *ctx, const void *args, lls_stream stream) {
    lls__gemm_problem p = lls__gemm_problem_of(args);
    return lls__gemm_launch_naive(ctx, &p, stream);
}

static const char *reject_smem_tile(const void *args) {
    lls__gemm_problem p = lls__gemm_problem_of(args);
    return lls__gemm_refuse_smem_tile(&p);
}

static lls_status smem_tile(lls_ctx *ctx, const void *args, lls_stream stream) {
    lls__gemm_problem p = lls__gemm_problem_of(args);
    return lls__gemm_launch_smem_tile(ctx, &p, stream);
}

static const char *reject_register_tile(const void *args) {
    lls__gemm_problem p = lls__gemm_problem_of(args);
    return lls__gemm_refuse_register_tile(&p);
}

static lls_status register_tile(lls_ctx *ctx, const void *args, lls_stream stream) {
    lls__gemm_problem p = lls__gemm_problem_of(args);
    return lls__gemm_launch_register_tile(ctx, &p, stream);
}

static const char *reject_wmma(const void *args) {
    lls__gemm_problem p = lls__gemm_problem_of(args);
    return lls__gemm_refuse_wmma(&p);
}

static lls_status wmma(lls_ctx *ctx, const void *args, lls_stream stream) {
    lls__gemm_problem p = lls__gemm_problem_of(args);
    return lls__gemm_launch_wmma(ctx, &p, stream);
}

static const char *reject_mma_sync(const void *args) {
    lls__gemm_problem p = lls__gemm_problem_of(args);
    return lls__gemm_refuse_mma_sync(&p);
}

static lls_status mma_sync(lls_ctx *ctx, const void *args, lls_stream stream) {
    lls__gemm_problem p = lls__gemm_problem_of(args);
    return lls__gemm_launch_mma_sync(ctx, &p, stream);
}

static const char *reject_wgmma(const void *args) {
    lls__gemm_problem p = lls__gemm_problem_of(args);
    return lls__gemm_refuse_wgmma(&p);
}

static lls_status tma_wgmma(lls_ctx *ctx, const void *args, lls_stream stream) {
    lls__gemm_problem p = lls__gemm_problem_of(args);
    return lls__gemm_launch_tma_wgmma(ctx, &p, stream);
}

static lls_status warp_specialised(lls_ctx *ctx, const void *args, lls_stream stream) {
    lls__gemm_problem p = lls__gemm_problem_of(args);
    return lls__gemm_launch_warp_specialised(ctx, &p, stream);
}

static const char *reject_sm90(const void *args) {
    lls__gemm_problem p = lls__gemm_problem_of(args);
    return lls__gemm_sm90_reject(&p);
}

static lls_status sm90(lls_ctx *ctx, const lls_gemm_args *args, lls__sm90_rung rung, lls_stream stream) {
    lls__gemm_problem p = lls__gemm_problem_of(args);
    return lls__gemm_sm90_launch("gemm", ctx, &p, args->config, rung, stream);
}
static lls_status persistent(lls_ctx *ctx, const void *args, lls_stream stream) {
    return sm90(ctx, args, LLS__SM90_PERSISTENT, stream);
}
static lls_status cluster(lls_ctx *ctx, const void *args, lls_stream stream) {
    return sm90(ctx, args, LLS__SM90_CLUSTER, stream);
}
static lls_status split_k(lls_ctx *ctx, const void *args, lls_stream stream) {
    return sm90(ctx, args, LLS__SM90_SPLIT_K, stream);
}
#endif

static const char cpu_idea[] = "packed panels that fit L2, sums of a tile in registers, tiles over threads";
static const lls__variant variants[] = {
#if LLS_WITH_CUDA
    {"10_split_k", LLS_CUDA, "tf32 f16 bf16 f8 i8", 90, LLS__CPU_PORTABLE, reject_sm90, split_k,
     "blocks of a cluster share a tile's k, for products with few tiles", 90},
    {"09_cluster", LLS_CUDA, "tf32 f16 bf16 f8 i8", 90, LLS__CPU_PORTABLE, reject_sm90, cluster,
     "blocks of a cluster load for each other", 90},
    {"08_persistent", LLS_CUDA, "tf32 f16 bf16 f8 i8", 90, LLS__CPU_PORTABLE, reject_sm90, persistent,
     "a block for each multiprocessor walks tiles; out leaves by TMA meanwhile", 90},
    {"07_warp_specialised", LLS_CUDA, "f16 bf16", 90, LLS__CPU_PORTABLE, reject_wgmma, warp_specialised,
     "a warp loads, warpgroups multiply; barriers in shared memory between them", 90},
    {"06_tma_wgmma", LLS_CUDA, "f16 bf16", 90, LLS__CPU_PORTABLE, reject_wgmma, tma_wgmma,
     "tensor cores read shared memory, which one thread fills by TMA", 90},
    {"05_mma_sync", LLS_CUDA, "f32 f16 bf16 f8 i8", 80, LLS__CPU_PORTABLE, reject_mma_sync, mma_sync,
     "a ring of stages filled by cp.async, swizzled; ldmatrix and mma.sync"},
    {"04_wmma", LLS_CUDA, "f16 bf16", 80, LLS__CPU_PORTABLE, reject_wmma, wmma,
     "tensor cores by WMMA, fragments from shared memory"},
    {"03_register_tile", LLS_CUDA, "f32 f16 bf16", 80, LLS__CPU_PORTABLE, reject_register_tile, register_tile,
     "8 x 8 sums a thread, wide loads, two buffers"},
    {"02_smem_tile", LLS_CUDA, "f32 f16 bf16", 80, LLS__CPU_PORTABLE, reject_smem_tile, smem_tile,
     "a block shares what it reads in shared memory"},
    {"01_naive", LLS_CUDA, "f32 f16 bf16 f8 i8", 80, LLS__CPU_PORTABLE, NULL, naive,
     "a thread two neighbouring outputs"},
#endif
    {"cpu_avx512", LLS_CPU, "f32 f16 bf16 f8 i8", 0, LLS__CPU_AVX512, NULL, lls__gemm_cpu_avx512, cpu_idea},
    {"cpu_avx2", LLS_CPU, "f32 f16 bf16 f8 i8", 0, LLS__CPU_AVX2, NULL, lls__gemm_cpu_avx2, cpu_idea},
    {"cpu_portable", LLS_CPU, "f32 f16 bf16 f8 i8", 0, LLS__CPU_PORTABLE, NULL, lls__gemm_cpu_portable, cpu_idea},
    {"ref", LLS_CPU, "f32 f16 bf16 f8 i8", 0, LLS__CPU_PORTABLE, NULL, lls__gemm_ref, "sums in double: the oracle"},
};

lls_math lls__gemm_math(lls_dtype input, uint32_t flags) {
    switch (input) {
    case LLS_F32: return flags & LLS_GEMM_TF32 ? LLS_MATH_TF32 : LLS_MATH_F32;
    case LLS_I8: return LLS_MATH_I8;
    case LLS_F8_E4M3:
    case LLS_F8_E5M2: return LLS_MATH_F8;
    default: return LLS_MATH_F16;
    }
}

// Matrices that pointers name count as if they lay apart.
static double bytes_of(const lls_tensor *t, const void *pointers) {
    return pointers ? (double)lls_tensor_numel(t) * (double)lls__elem_size(t->dtype) : lls__tensor_bytes(t);
}

// What does not grow with k is left out of the operations.
static void cost(lls_ctx *ctx, const void *args, lls_stream stream, lls__cost *c) {
    (void)ctx, (void)stream;
    const lls_gemm_args *g = args;
    int32_t ndim = g->a->ndim;
    int64_t k = g->alpha == 0 ? 0 : g->a->shape[ndim - 1], n = g->b->shape[ndim - 1];
    c->bytes = bytes_of(g->out, g->out_pointers) + lls__tensor_bytes(g->bias) + lls__tensor_bytes(g->residual);
    c->bytes += lls__tensor_bytes(g->scale_out);
    if (k > 0) {
        c->bytes += bytes_of(g->a, g->a_pointers) + bytes_of(g->b, g->b_pointers);
        c->bytes += lls__tensor_bytes(g->scale_a) + lls__tensor_bytes(g->scale_b);
    }
    if (g->beta != 0) c->bytes += bytes_of(g->c, g->c_pointers);
    int64_t rows = g->a->shape[ndim - 2] * (ndim == 3 ? g->a->shape[0] : 1);
    c->flops = 2.0 * (double)rows * (double)n * (double)k;
    c->math = lls__gemm_math(g->a->dtype, g->flags);
}

const lls__op lls__op_gemm = {
    .name = "gemm",
    .variants = variants,
    .num_variants = LLS_COUNT(variants),
#if LLS_WITH_CUDA
    .kernels = kernels,
    .num_kernels = LLS_COUNT(kernels),
    .more_kernels = more_kernels,
#endif
    .cost = cost,
};

lls_status lls_gemm(lls_ctx *ctx, const lls_gemm_args *args, lls_stream stream) {
    lls_gemm_args g;
    LLS_TRY(lls__copy_args("gemm", &g, sizeof g, args));
    LLS_TRY(lls__gemm_check(ctx, &g));
    if (lls_tensor_numel(g.out) == 0) return LLS_OK;
    // No other variant has configurations, or may quietly take a call that pins one.
    if (g.config && !g.variant) g.variant = "10_split_k";
    return lls__dispatch(ctx, &lls__op_gemm, g.variant, &g, stream);
}

bool lls_gemm_config_at(lls_ctx *ctx, const lls_gemm_args *args, int32_t index, char *text) {
    lls_gemm_args g;
    if (index < 0 || lls__copy_args("gemm", &g, sizeof g, args) || lls__gemm_check(ctx, &g)) return false;
#if LLS_WITH_CUDA
    if (ctx->device.type != LLS_CUDA || ctx->sm != 90 || lls_tensor_numel(g.out) == 0) return false;
    lls__gemm_config all[LLS__SM90_MAX_CONFIGS];
    lls__gemm_problem p = lls__gemm_problem_of(&g);
    if (index >= lls__gemm_sm90_configs(ctx, &p, all)) return false;
    lls__gemm_config_print(&all[index], text, LLS_GEMM_CONFIG_CHARS);
    return true;
#else
    (void)text;
    return false;
#endif
}

lls_status lls_gemm_tune_key(lls_ctx *ctx, const lls_gemm_args *args, char *text) {
    lls_gemm_args g;
    LLS_TRY(lls__copy_args("gemm", &g, sizeof g, args));
    LLS_TRY(lls__gemm_check(ctx, &g));
    lls__gemm_problem p = lls__gemm_problem_of(&g);
    lls__gemm_tune_key_of(ctx, &p, text, LLS_GEMM_KEY_CHARS);
    return LLS_OK;
}
