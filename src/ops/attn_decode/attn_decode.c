/* Validation, the variant table, and the CUDA launches of attn_decode. The definition is in ops.h; what it shares with
 * attn_prefill is in attn_common. */
#include "core/ctx.h"
#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/variant.h"
#include "ops/attn_common/attn_check.h"
#include "ops/attn_decode/attn_decode_kernels.h"

static const char *const op = "attn_decode";

#if LLS_WITH_CUDA
enum { MERGE = 9 }; // the first merge kernel; before it, kernels by dtype of q, then of the cache

static const lls__kernel kernels[] = {
    LLS_KERNEL(lls_attn_decode_01_naive_f32_f32),   LLS_KERNEL(lls_attn_decode_01_naive_f32_f16),
    LLS_KERNEL(lls_attn_decode_01_naive_f32_bf16),  LLS_KERNEL(lls_attn_decode_01_naive_f16_f32),
    LLS_KERNEL(lls_attn_decode_01_naive_f16_f16),   LLS_KERNEL(lls_attn_decode_01_naive_f16_bf16),
    LLS_KERNEL(lls_attn_decode_01_naive_bf16_f32),  LLS_KERNEL(lls_attn_decode_01_naive_bf16_f16),
    LLS_KERNEL(lls_attn_decode_01_naive_bf16_bf16), LLS_KERNEL(lls_attn_decode_01_naive_merge_f32),
    LLS_KERNEL(lls_attn_decode_01_naive_merge_f16), LLS_KERNEL(lls_attn_decode_01_naive_merge_bf16),
};

static lls_status naive(lls_ctx *ctx, const void *args, lls_stream stream) {
    const lls__attn_problem *p = args;
    int32_t q = lls__float_index(p->dtype), cache = lls__float_index(p->kv_dtype);
    return lls__attn_naive_launch(ctx, p, &kernels[3 * q + cache], &kernels[MERGE + q], stream);
}
#endif

static const char cpu_idea[] = "keys read once for all heads of the group; parts of 256 keys in parallel";
static const lls__variant variants[] = {
#if LLS_WITH_CUDA
    {"01_naive", LLS_CUDA, "f32 f16 bf16", 80, LLS__CPU_PORTABLE, lls__attn_naive_reject, naive,
     "a warp a (row, head, split), online softmax; a second kernel merges the splits"},
#endif
    {"cpu_avx512", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX512, NULL, lls__attn_cpu_avx512, cpu_idea},
    {"cpu_avx2", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX2, NULL, lls__attn_cpu_avx2, cpu_idea},
    {"cpu_portable", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__attn_cpu_portable, cpu_idea},
    {"ref", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__attn_ref, "the definition in double: the oracle"},
};

const lls__op lls__op_attn_decode = {
    .name = "attn_decode",
    .variants = variants,
    .num_variants = LLS_COUNT(variants),
#if LLS_WITH_CUDA
    .kernels = kernels,
    .num_kernels = LLS_COUNT(kernels),
#endif
    .cost = lls__attn_cost,
};

// Values of kv_lens and of the page table inside the used range, where the host can read them.
static lls_status check_lengths(const lls_attn_decode_args *a, const lls__attn_problem *p) {
    for (int64_t b = 0; b < p->batch; b++) {
        int32_t len = p->kv_lens[b];
        if (len < 0 || len > p->kv_len) {
            return lls__fail(LLS_ERR_ARGUMENT, "%s: kv_lens[%lld] is %d, must be 0 to the cache's %lld", op,
                             (long long)b, len, (long long)p->kv_len);
        }
        for (int64_t page = 0; a->page_table && page * p->page_size < len; page++) {
            int32_t id = p->page_table[b * p->table_batch + page * p->table_page];
            if (id < 0 || id >= p->num_pages) {
                return lls__fail(
                    LLS_ERR_ARGUMENT,
                    "%s: page_table[%lld, %lld] is %d, within kv_len %d it must be 0 to num_pages - 1 = %lld", op,
                    (long long)b, (long long)page, id, len, (long long)p->num_pages - 1);
            }
        }
    }
    return LLS_OK;
}

static lls_status take_cache(const lls_ctx *ctx, const lls_attn_decode_args *a, lls__attn_problem *p) {
    const lls_tensor *k = a->k_cache;
    LLS_TRY(
        lls__attn_take_keys(ctx, (lls__attn_arg){"k_cache", k}, (lls__attn_arg){"v_cache", a->v_cache}, 4, a->q, p));
    LLS_TRY(lls__check_vector(ctx, op, "kv_lens", a->kv_lens, p->batch, "the batch", LLS__DTYPE(LLS_I32)));
    p->kv_lens = a->kv_lens->data;
    p->kv_len = k->shape[1];
    if (!a->page_table) return lls__check_dim(op, "k_cache", k, 0, p->batch, "the batch");
    LLS_TRY(lls__check_tensor(ctx, op, "page_table", a->page_table, 2, 2, LLS__DTYPE(LLS_I32)));
    LLS_TRY(lls__check_dim(op, "page_table", a->page_table, 0, p->batch, "the batch"));
    p->num_pages = k->shape[0];
    p->page_size = k->shape[1];
    if (p->page_size < 1)
        return lls__fail(LLS_ERR_SHAPE, "%s: k_cache.shape[1] is 0, a page must have at least 1 row", op);
    p->kv_len = a->page_table->shape[1] * p->page_size;
    if (p->kv_len > INT32_MAX) p->kv_len = INT32_MAX; // kv_lens cannot say more
    p->page_table = a->page_table->data;
    p->table_batch = a->page_table->stride[0];
    p->table_page = a->page_table->stride[1];
    return LLS_OK;
}

static lls_status validate(const lls_ctx *ctx, const lls_attn_decode_args *a, lls__attn_problem *p) {
    *p = (lls__attn_problem){0};
    LLS_TRY(lls__attn_take_queries(ctx, op, a->q, a->cu_seqlens_q, a->max_q_len, p));
    LLS_TRY(take_cache(ctx, a, p));
    const lls__attn_arg inputs[] = {{"q", a->q},
                                    {"k_cache", a->k_cache},
                                    {"v_cache", a->v_cache},
                                    {"kv_lens", a->kv_lens},
                                    {"page_table", a->page_table},
                                    {"cu_seqlens_q", a->cu_seqlens_q},
                                    {"score.alibi_slopes", a->score.alibi_slopes},
                                    {"score.sinks", a->score.sinks}};
    LLS_TRY(lls__attn_take_score(ctx, &a->mask, &a->score, p));
    LLS_TRY(lls__attn_take_outputs(ctx, a->q, a->out, a->lse, inputs, LLS_COUNT(inputs), p));
    if (a->num_splits < 0 || a->num_splits > LLS__ATTN_MAX_SPLITS) {
        return lls__fail(LLS_ERR_ARGUMENT, "%s: num_splits is %d, must be 0 to %d", op, a->num_splits,
                         LLS__ATTN_MAX_SPLITS);
    }
    p->num_splits = a->num_splits > 0 ? a->num_splits : 1;
    return ctx->device.type == LLS_CPU ? check_lengths(a, p) : LLS_OK;
}

lls_status lls_attn_decode(lls_ctx *ctx, const lls_attn_decode_args *args, lls_stream stream) {
    lls_attn_decode_args a;
    lls__attn_problem p;
    LLS_TRY(lls__copy_args(op, &a, sizeof a, args));
    LLS_TRY(validate(ctx, &a, &p));
    if (lls__attn_is_empty(&p)) return LLS_OK;
    return lls__dispatch(ctx, &lls__op_attn_decode, a.variant, &p, stream);
}

lls_status lls_attn_decode_workspace(lls_ctx *ctx, const lls_attn_decode_args *args, size_t *bytes) {
    lls_attn_decode_args a;
    lls__attn_problem p;
    if (!bytes) return lls__fail(LLS_ERR_ARGUMENT, "%s: bytes is NULL", op);
    LLS_TRY(lls__copy_args(op, &a, sizeof a, args));
    LLS_TRY(validate(ctx, &a, &p));
    *bytes = 0;
#if LLS_WITH_CUDA
    if (ctx->device.type == LLS_CUDA) *bytes = lls__attn_parts_bytes(&p);
#endif
    return LLS_OK;
}
