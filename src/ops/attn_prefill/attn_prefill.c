/* Validation, the variant table, and the CUDA launches of attn_prefill. The definition is in ops.h; what it shares with
 * attn_decode is in attn_common. */
#include "core/ctx.h"
#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/variant.h"
#include "ops/attn_common/attn_check.h"
#include "ops/attn_prefill/attn_prefill_kernels.h"

static const char *const op = "attn_prefill";

#if LLS_WITH_CUDA
static const lls__kernel kernels[] = {
    LLS_KERNEL(lls_attn_prefill_01_naive_f32),
    LLS_KERNEL(lls_attn_prefill_01_naive_f16),
    LLS_KERNEL(lls_attn_prefill_01_naive_bf16),
};

static lls_status naive(lls_ctx *ctx, const void *args, lls_stream stream) {
    const lls__attn_problem *p = args;
    return lls__attn_naive_launch(ctx, p, &kernels[lls__float_index(p->dtype)], NULL, stream);
}
#endif

static const char cpu_idea[] = "blocks of 48 rows over tiles of 64 keys, register-blocked products along the rows";
static const lls__variant variants[] = {
#if LLS_WITH_CUDA
    {"01_naive", LLS_CUDA, "f32 f16 bf16", 80, LLS__CPU_PORTABLE, lls__attn_naive_reject, naive,
     "a warp a (row, head), online softmax, one key at a time"},
#endif
    {"cpu_avx512", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX512, NULL, lls__attn_cpu_avx512, cpu_idea},
    {"cpu_avx2", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX2, NULL, lls__attn_cpu_avx2, cpu_idea},
    {"cpu_portable", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__attn_cpu_portable, cpu_idea},
    {"ref", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__attn_ref, "the definition in double: the oracle"},
};

const lls__op lls__op_attn_prefill = {
    .name = "attn_prefill",
    .variants = variants,
    .num_variants = LLS_COUNT(variants),
#if LLS_WITH_CUDA
    .kernels = kernels,
    .num_kernels = LLS_COUNT(kernels),
#endif
    .cost = lls__attn_cost,
};

static lls_status take_keys(const lls_ctx *ctx, const lls_attn_prefill_args *a, lls__attn_problem *p) {
    const lls_tensor *k = a->k;
    LLS_TRY(lls__attn_take_keys(ctx, (lls__attn_arg){"k", k}, (lls__attn_arg){"v", a->v}, a->q->ndim, a->q, p));
    LLS_TRY(lls__check_same_dtype(op, "k", k, "q", a->q));
    if (!a->cu_seqlens_q) {
        p->kv_len = k->shape[1];
        return lls__check_dim(op, "k", k, 0, p->batch, "the batch of q");
    }
    p->total_kv = k->shape[0];
    p->cu_kv = a->cu_seqlens_kv->data;
    return lls__attn_check_bounds(ctx, op, (lls__attn_arg){"cu_seqlens_kv", a->cu_seqlens_kv}, p->batch, p->total_kv);
}

static lls_status validate(const lls_ctx *ctx, const lls_attn_prefill_args *a, lls__attn_problem *p) {
    *p = (lls__attn_problem){.num_splits = 1};
    if (!a->cu_seqlens_q != !a->cu_seqlens_kv) {
        return lls__fail(LLS_ERR_ARGUMENT, "%s: cu_seqlens_q and cu_seqlens_kv must be given together, %s is NULL", op,
                         a->cu_seqlens_q ? "cu_seqlens_kv" : "cu_seqlens_q");
    }
    if (a->bias && a->cu_seqlens_q) {
        return lls__fail(LLS_ERR_ARGUMENT, "%s: bias is given with cu_seqlens_q, must be NULL (it needs dense q, k, v)",
                         op);
    }
    LLS_TRY(lls__attn_take_queries(ctx, op, a->q, a->cu_seqlens_q, a->max_q_len, p));
    LLS_TRY(take_keys(ctx, a, p));
    LLS_TRY(lls__attn_take_score(ctx, &a->mask, &a->score, p));
    LLS_TRY(lls__attn_take_bias(ctx, a->bias, p));
    const lls__attn_arg inputs[] = {{"q", a->q},
                                    {"k", a->k},
                                    {"v", a->v},
                                    {"cu_seqlens_q", a->cu_seqlens_q},
                                    {"cu_seqlens_kv", a->cu_seqlens_kv},
                                    {"score.alibi_slopes", a->score.alibi_slopes},
                                    {"score.sinks", a->score.sinks},
                                    {"bias", a->bias}};
    return lls__attn_take_outputs(ctx, a->q, a->out, a->lse, inputs, LLS_COUNT(inputs), p);
}

lls_status lls_attn_prefill(lls_ctx *ctx, const lls_attn_prefill_args *args, lls_stream stream) {
    lls_attn_prefill_args a;
    lls__attn_problem p;
    LLS_TRY(lls__copy_args(op, &a, sizeof a, args));
    LLS_TRY(validate(ctx, &a, &p));
    if (lls__attn_is_empty(&p)) return LLS_OK;
    return lls__dispatch(ctx, &lls__op_attn_prefill, a.variant, &p, stream);
}
