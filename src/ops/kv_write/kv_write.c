/* Validation, the variant table, and the CUDA launches of kv_write. The definition is in ops.h. */
#include <stdlib.h>

#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/record.h"
#include "ops/kv_write/kv_write_kernels.h"

static const char *const op = "kv_write";

#if LLS_WITH_CUDA
#include "dispatch/launch.h"

static const lls__kernel kernels[] = {
    LLS_KERNEL(lls_kv_write_01_naive_f32),
    LLS_KERNEL(lls_kv_write_01_naive_f16),
    LLS_KERNEL(lls_kv_write_01_naive_bf16),
};

static lls__kv_write_side side_of(const lls_tensor *rows, const lls_tensor *cache) {
    return (lls__kv_write_side){
        .rows = rows->data,
        .cache = cache->data,
        .token_stride = rows->stride[0],
        .head_stride = rows->stride[1],
        .page_stride = cache->stride[0],
        .slot_stride = cache->stride[1],
        .cache_head_stride = cache->stride[2],
        .width = (int32_t)rows->shape[2],
    };
}

static lls_status naive(lls_ctx *ctx, const void *args, lls_stream stream) {
    const lls_kv_write_args *a = args;
    lls__kv_write_params p = {
        .sides = {side_of(a->k, a->k_cache), side_of(a->v, a->v_cache)},
        .slots = a->slots->data,
        .tokens = a->k->shape[0],
        .page_size = a->k_cache->shape[1],
        .capacity = a->k_cache->shape[0] * a->k_cache->shape[1],
        .heads = (int32_t)a->k->shape[1],
        .dtype = a->k->dtype,
    };
    lls__grid shape = {.grid = {lls__grid_axis(p.tokens, LLS__MAX_GRID_X), LLS_COUNT(p.sides), 1},
                       .block = {128, 1, 1}};
    return lls__launch(ctx, &kernels[lls__float_index(a->k_cache->dtype)], &shape, (void *[]){&p}, stream);
}
#endif

static const char cpu_idea[] = "tokens over threads; a head's row is one memcpy, or one vector conversion";
static const lls__variant variants[] = {
#if LLS_WITH_CUDA
    {"01_naive", LLS_CUDA, "f32 f16 bf16", 80, LLS__CPU_PORTABLE, NULL, naive,
     "a block a token and side, a thread an element"},
#endif
    {"cpu_avx512", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX512, NULL, lls__kv_write_cpu_avx512, cpu_idea},
    {"cpu_avx2", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX2, NULL, lls__kv_write_cpu_avx2, cpu_idea},
    {"cpu_portable", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__kv_write_cpu_portable, cpu_idea},
    {"ref", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__kv_write_ref,
     "the definition in double: the oracle"},
};

// Tokens that have a slot. All of them where the slots cannot be read.
static int64_t tokens_written(lls_ctx *ctx, const lls_kv_write_args *a, lls_stream stream) {
    int64_t tokens = a->slots->shape[0], capacity = a->k_cache->shape[0] * a->k_cache->shape[1], written = 0;
    void *copy;
    const int64_t *slots = lls__host_values(ctx, a->slots->data, (size_t)tokens * sizeof *slots, stream, &copy);
    for (int64_t t = 0; slots && t < tokens; t++) written += slots[t] >= 0 && slots[t] < capacity;
    if (!slots) written = tokens;
    free(copy);
    return written;
}

static void cost(lls_ctx *ctx, const void *args, lls_stream stream, lls__cost *c) {
    const lls_kv_write_args *a = args;
    double elements = (double)(a->k->shape[1] * (a->k->shape[2] + a->v->shape[2]));
    double bytes = elements * (double)(lls__elem_size(a->k->dtype) + lls__elem_size(a->k_cache->dtype));
    c->bytes = (double)tokens_written(ctx, a, stream) * bytes + lls__tensor_bytes(a->slots);
    c->math = LLS_MATH_F32;
}

const lls__op lls__op_kv_write = {
    .name = "kv_write",
    .variants = variants,
    .num_variants = LLS_COUNT(variants),
#if LLS_WITH_CUDA
    .kernels = kernels,
    .num_kernels = LLS_COUNT(kernels),
#endif
    .cost = cost,
};

static lls_status check_rows(const lls_ctx *ctx, const char *name, const lls_tensor *rows) {
    LLS_TRY(lls__check_tensor(ctx, op, name, rows, 3, 3, LLS__FLOATS));
    LLS_TRY(lls__check_inner_contiguous(op, name, rows));
    if (rows->shape[1] > INT32_MAX || rows->shape[2] > INT32_MAX || rows->shape[1] * rows->shape[2] > INT32_MAX) {
        return lls__fail(LLS_ERR_SHAPE,
                         "%s: a token of %s has %lld heads of %lld elements, must have fewer than 2^31 elements", op,
                         name, (long long)rows->shape[1], (long long)rows->shape[2]);
    }
    return LLS_OK;
}

static lls_status check_cache(const lls_ctx *ctx, const char *name, const lls_tensor *cache, const char *rows_name,
                              const lls_tensor *rows) {
    const char *const heads[] = {"k.shape[1]", "v.shape[1]"}, *const widths[] = {"k.shape[2]", "v.shape[2]"};
    int value = rows_name[0] == 'v';
    LLS_TRY(lls__check_tensor(ctx, op, name, cache, 4, 4, LLS__FLOATS));
    LLS_TRY(lls__check_dim(op, name, cache, 2, rows->shape[1], heads[value]));
    LLS_TRY(lls__check_dim(op, name, cache, 3, rows->shape[2], widths[value]));
    LLS_TRY(lls__check_inner_contiguous(op, name, cache));
    return lls__check_no_self_overlap(op, name, cache);
}

static lls_status check_apart(const lls_kv_write_args *a, const char *name, const lls_tensor *cache) {
    LLS_TRY(lls__check_disjoint(op, name, cache, "k", a->k));
    LLS_TRY(lls__check_disjoint(op, name, cache, "v", a->v));
    return lls__check_disjoint(op, name, cache, "slots", a->slots);
}

static lls_status check_slots(const lls_kv_write_args *a) {
    const int64_t *slots = a->slots->data;
    int64_t capacity = a->k_cache->shape[0] * a->k_cache->shape[1];
    for (int64_t t = 0; t < a->slots->shape[0]; t++) {
        if (slots[t] >= capacity) {
            return lls__fail(LLS_ERR_ARGUMENT,
                             "%s: slots[%lld] is %lld, must be below the cache's %lld pages of %lld slots = %lld", op,
                             (long long)t, (long long)slots[t], (long long)a->k_cache->shape[0],
                             (long long)a->k_cache->shape[1], (long long)capacity);
        }
    }
    return LLS_OK;
}

static lls_status validate(const lls_ctx *ctx, const lls_kv_write_args *a) {
    LLS_TRY(check_rows(ctx, "k", a->k));
    LLS_TRY(check_rows(ctx, "v", a->v));
    LLS_TRY(lls__check_same_dtype(op, "v", a->v, "k", a->k));
    LLS_TRY(lls__check_dim(op, "v", a->v, 0, a->k->shape[0], "k.shape[0]"));
    LLS_TRY(lls__check_dim(op, "v", a->v, 1, a->k->shape[1], "k.shape[1]"));
    LLS_TRY(check_cache(ctx, "k_cache", a->k_cache, "k", a->k));
    LLS_TRY(check_cache(ctx, "v_cache", a->v_cache, "v", a->v));
    LLS_TRY(lls__check_same_dtype(op, "v_cache", a->v_cache, "k_cache", a->k_cache));
    LLS_TRY(lls__check_dim(op, "v_cache", a->v_cache, 0, a->k_cache->shape[0], "k_cache.shape[0]"));
    LLS_TRY(lls__check_dim(op, "v_cache", a->v_cache, 1, a->k_cache->shape[1], "k_cache.shape[1]"));
    LLS_TRY(lls__check_vector(ctx, op, "slots", a->slots, a->k->shape[0], "k.shape[0]", LLS__DTYPE(LLS_I64)));
    LLS_TRY(check_apart(a, "k_cache", a->k_cache));
    LLS_TRY(check_apart(a, "v_cache", a->v_cache));
    LLS_TRY(lls__check_disjoint(op, "v_cache", a->v_cache, "k_cache", a->k_cache));
    return ctx->device.type == LLS_CPU ? check_slots(a) : LLS_OK;
}

lls_status lls_kv_write(lls_ctx *ctx, const lls_kv_write_args *args, lls_stream stream) {
    lls_kv_write_args a;
    LLS_TRY(lls__copy_args(op, &a, sizeof a, args));
    LLS_TRY(validate(ctx, &a));
    if (lls_tensor_numel(a.k) + lls_tensor_numel(a.v) == 0) return LLS_OK;
    return lls__dispatch(ctx, &lls__op_kv_write, a.variant, &a, stream);
}
