/* Validation, the variant table, and the CUDA launches of embed. The definition is in ops.h. */
#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/variant.h"
#include "ops/embed/embed_kernels.h"

static const char *const op = "embed";

#if LLS_WITH_CUDA
#include "dispatch/launch.h"

static const lls__kernel kernels[] = {
    LLS_KERNEL(lls_embed_01_naive_f32),
    LLS_KERNEL(lls_embed_01_naive_f16),
    LLS_KERNEL(lls_embed_01_naive_bf16),
};

static lls_status naive(lls_ctx *ctx, const void *args, lls_stream stream) {
    const lls_embed_args *a = args;
    lls__embed_params p = {
        .table = a->table->data,
        .ids = a->ids->data,
        .out = a->out->data,
        .tokens = a->out->shape[0],
        .vocab = a->table->shape[0],
        .hidden = a->table->shape[1],
        .table_stride = a->table->stride[0],
        .out_stride = a->out->stride[0],
        .table_dtype = a->table->dtype,
        .scale = a->scale,
    };
    lls__grid shape = {.grid = {lls__grid_axis(p.tokens, LLS__MAX_GRID_X), 1, 1}, .block = {256, 1, 1}};
    return lls__launch(ctx, &kernels[lls__float_index(a->out->dtype)], &shape, (void *[]){&p}, stream);
}
#endif

#define DTYPES "f32 f16 bf16; table also q4_0 q4_1 q5_0 q5_1 q8_0 q4_k q5_k q6_k"

static const char cpu_idea[] = "rows converted a vector at a time; blocks decoded in groups of 16 that share a scale";
static const lls__variant variants[] = {
#if LLS_WITH_CUDA
    {"01_naive", LLS_CUDA, DTYPES, 80, LLS__CPU_PORTABLE, NULL, naive, "a block a token, a thread an element"},
#endif
    {"cpu_avx512", LLS_CPU, DTYPES, 0, LLS__CPU_AVX512, NULL, lls__embed_cpu_avx512, cpu_idea},
    {"cpu_avx2", LLS_CPU, DTYPES, 0, LLS__CPU_AVX2, NULL, lls__embed_cpu_avx2, cpu_idea},
    {"cpu_portable", LLS_CPU, DTYPES, 0, LLS__CPU_PORTABLE, NULL, lls__embed_cpu_portable, cpu_idea},
    {"ref", LLS_CPU, DTYPES, 0, LLS__CPU_PORTABLE, NULL, lls__embed_ref, "the definition in double: the oracle"},
};

// Ids that repeat count again, up to the whole table.
static void cost(lls_ctx *ctx, const void *args, lls_stream stream, lls__cost *c) {
    (void)ctx, (void)stream;
    const lls_embed_args *a = args;
    c->bytes = lls__tensor_rows_bytes(a->table, a->ids->shape[0]) + lls__tensor_bytes(a->ids) +
               lls__tensor_bytes(a->out);
    c->flops = a->scale == 1 ? 0 : (double)lls_tensor_numel(a->out);
    c->math = LLS_MATH_F32;
}

const lls__op lls__op_embed = {
    .name = "embed",
    .variants = variants,
    .num_variants = LLS_COUNT(variants),
#if LLS_WITH_CUDA
    .kernels = kernels,
    .num_kernels = LLS_COUNT(kernels),
#endif
    .cost = cost,
};

static lls_status check_ids(const lls_embed_args *a) {
    const int32_t *ids = a->ids->data;
    int64_t vocab = a->table->shape[0];
    for (int64_t t = 0; t < a->ids->shape[0]; t++) {
        if (ids[t] < 0 || ids[t] >= vocab) {
            return lls__fail(LLS_ERR_ARGUMENT, "%s: ids[%lld] is %d, must be in [0, %lld), the rows of table", op,
                             (long long)t, ids[t], (long long)vocab);
        }
    }
    return LLS_OK;
}

static lls_status validate(const lls_ctx *ctx, const lls_embed_args *a) {
    LLS_TRY(lls__check_tensor(ctx, op, "table", a->table, 2, 2, LLS__FLOATS | LLS__BLOCKS));
    LLS_TRY(lls__check_inner_contiguous(op, "table", a->table));
    LLS_TRY(lls__check_tensor(ctx, op, "out", a->out, 2, 2, LLS__FLOATS));
    LLS_TRY(lls__check_dim(op, "out", a->out, 1, a->table->shape[1], "table.shape[1]"));
    LLS_TRY(lls__check_inner_contiguous(op, "out", a->out));
    LLS_TRY(lls__check_vector(ctx, op, "ids", a->ids, a->out->shape[0], "out.shape[0]", LLS__DTYPE(LLS_I32)));
    LLS_TRY(lls__check_no_self_overlap(op, "out", a->out));
    LLS_TRY(lls__check_disjoint(op, "out", a->out, "table", a->table));
    LLS_TRY(lls__check_disjoint(op, "out", a->out, "ids", a->ids));
    return a->ids->device.type == LLS_CPU ? check_ids(a) : LLS_OK;
}

lls_status lls_embed(lls_ctx *ctx, const lls_embed_args *args, lls_stream stream) {
    lls_embed_args a;
    LLS_TRY(lls__copy_args(op, &a, sizeof a, args));
    LLS_TRY(validate(ctx, &a));
    if (lls_tensor_numel(a.out) == 0) return LLS_OK;
    if (a.scale == 0) a.scale = 1;
    return lls__dispatch(ctx, &lls__op_embed, a.variant, &a, stream);
}
