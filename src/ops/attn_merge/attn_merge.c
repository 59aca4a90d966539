/* Validation, the variant table, and the CUDA launch of attn_merge. The definition is in ops.h. */
#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/variant.h"
#include "ops/attn_merge/attn_merge_kernels.h"

static const char *const op = "attn_merge";

#if LLS_WITH_CUDA
#include "dispatch/launch.h"

static const lls__kernel kernels[] = {
    LLS_KERNEL(lls_attn_merge_01_naive_f32),
    LLS_KERNEL(lls_attn_merge_01_naive_f16),
    LLS_KERNEL(lls_attn_merge_01_naive_bf16),
};

static const char *naive_reject(const void *args) {
    const lls_attn_merge_args *m = args;
    return m->a->shape[0] * m->a->shape[1] / LLS__ATTN_MERGE_WARPS < INT32_MAX
               ? NULL
               : "a warp a row would need 2^31 blocks or more";
}

static lls_status naive(lls_ctx *ctx, const void *args, lls_stream stream) {
    const lls_attn_merge_args *m = args;
    lls__attn_merge_params p = {
        .a = m->a->data,
        .b = m->b->data,
        .out = m->out->data,
        .lse_a = m->lse_a->data,
        .lse_b = m->lse_b->data,
        .a_rows = lls__rows_of(m->a),
        .b_rows = lls__rows_of(m->b),
        .out_rows = lls__rows_of(m->out),
        .lse_a_token = m->lse_a->stride[0],
        .lse_a_head = m->lse_a->stride[1],
        .lse_b_token = m->lse_b->stride[0],
        .lse_b_head = m->lse_b->stride[1],
        .rows = m->a->shape[0] * m->a->shape[1],
        .num_heads = (int32_t)m->a->shape[1],
        .head_dim = (int32_t)m->a->shape[2],
    };
    if (m->lse) p.lse = m->lse->data, p.lse_token = m->lse->stride[0], p.lse_head = m->lse->stride[1];
    uint32_t blocks = (uint32_t)((p.rows + LLS__ATTN_MERGE_WARPS - 1) / LLS__ATTN_MERGE_WARPS);
    lls__grid shape = {.grid = {blocks, 1, 1}, .block = {32 * LLS__ATTN_MERGE_WARPS, 1, 1}};
    return lls__launch(ctx, &kernels[lls__float_index(m->a->dtype)], &shape, (void *[]){&p}, stream);
}
#endif

static const char cpu_idea[] = "two weights a row, one pass";
static const lls__variant variants[] = {
#if LLS_WITH_CUDA
    {"01_naive", LLS_CUDA, "f32 f16 bf16", 80, LLS__CPU_PORTABLE, naive_reject, naive,
     "a warp a (token, head), both weights in every lane"},
#endif
    {"cpu_avx512", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX512, NULL, lls__attn_merge_cpu_avx512, cpu_idea},
    {"cpu_avx2", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX2, NULL, lls__attn_merge_cpu_avx2, cpu_idea},
    {"cpu_portable", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__attn_merge_cpu_portable, cpu_idea},
    {"ref", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__attn_merge_ref,
     "the definition in double: the oracle"},
};

// An element: two products and a sum. The weights, one pair a row, are left out.
static void cost(lls_ctx *ctx, const void *args, lls_stream stream, lls__cost *c) {
    (void)ctx, (void)stream;
    const lls_attn_merge_args *m = args;
    c->bytes = lls__tensor_bytes(m->a) + lls__tensor_bytes(m->lse_a) + lls__tensor_bytes(m->b) +
               lls__tensor_bytes(m->lse_b) + lls__tensor_bytes(m->out) + lls__tensor_bytes(m->lse);
    c->flops = 3.0 * (double)lls_tensor_numel(m->out);
    c->math = LLS_MATH_F32;
}

const lls__op lls__op_attn_merge = {
    .name = "attn_merge",
    .variants = variants,
    .num_variants = LLS_COUNT(variants),
#if LLS_WITH_CUDA
    .kernels = kernels,
    .num_kernels = LLS_COUNT(kernels),
#endif
    .cost = cost,
};

static lls_status check_state(const lls_ctx *ctx, const lls_attn_merge_args *m, const char *name, const lls_tensor *t) {
    LLS_TRY(lls__check_tensor(ctx, op, name, t, 3, 3, LLS__FLOATS));
    LLS_TRY(lls__check_same_dtype(op, name, t, "a", m->a));
    LLS_TRY(lls__check_same_shape(op, name, t, "a", m->a));
    return lls__check_inner_contiguous(op, name, t);
}

static lls_status check_lse(const lls_ctx *ctx, const lls_attn_merge_args *m, const char *name, const lls_tensor *t) {
    LLS_TRY(lls__check_tensor(ctx, op, name, t, 2, 2, LLS__DTYPE(LLS_F32)));
    LLS_TRY(lls__check_dim(op, name, t, 0, m->a->shape[0], "a.shape[0]"));
    return lls__check_dim(op, name, t, 1, m->a->shape[1], "a.shape[1]");
}

static lls_status validate(const lls_ctx *ctx, const lls_attn_merge_args *m) {
    LLS_TRY(check_state(ctx, m, "a", m->a));
    LLS_TRY(check_state(ctx, m, "b", m->b));
    LLS_TRY(check_state(ctx, m, "out", m->out));
    LLS_TRY(check_lse(ctx, m, "lse_a", m->lse_a));
    LLS_TRY(check_lse(ctx, m, "lse_b", m->lse_b));
    for (int32_t dim = 0; dim < 3; dim++) {
        if (m->a->shape[dim] > INT32_MAX) {
            return lls__fail(LLS_ERR_SHAPE, "%s: a.shape[%d] is %lld, must be below 2^31", op, dim,
                             (long long)m->a->shape[dim]);
        }
    }
    LLS_TRY(lls__check_no_self_overlap(op, "out", m->out));
    LLS_TRY(lls__check_in_place_or_disjoint(op, "out", m->out, "a", m->a));
    LLS_TRY(lls__check_in_place_or_disjoint(op, "out", m->out, "b", m->b));
    LLS_TRY(lls__check_disjoint(op, "out", m->out, "lse_a", m->lse_a));
    LLS_TRY(lls__check_disjoint(op, "out", m->out, "lse_b", m->lse_b));
    if (!m->lse) return LLS_OK;
    LLS_TRY(check_lse(ctx, m, "lse", m->lse));
    LLS_TRY(lls__check_no_self_overlap(op, "lse", m->lse));
    LLS_TRY(lls__check_in_place_or_disjoint(op, "lse", m->lse, "lse_a", m->lse_a));
    LLS_TRY(lls__check_in_place_or_disjoint(op, "lse", m->lse, "lse_b", m->lse_b));
    LLS_TRY(lls__check_disjoint(op, "lse", m->lse, "a", m->a));
    LLS_TRY(lls__check_disjoint(op, "lse", m->lse, "b", m->b));
    return lls__check_disjoint(op, "lse", m->lse, "out", m->out);
}

lls_status lls_attn_merge(lls_ctx *ctx, const lls_attn_merge_args *args, lls_stream stream) {
    lls_attn_merge_args m;
    LLS_TRY(lls__copy_args(op, &m, sizeof m, args));
    LLS_TRY(validate(ctx, &m));
    if (lls_tensor_numel(m.a) == 0) return LLS_OK;
    return lls__dispatch(ctx, &lls__op_attn_merge, m.variant, &m, stream);
}
