/* Validation, the variant table, and the CUDA launch of linear. The definition is in ops.h. */
#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/variant.h"
#include "ops/linear/linear_kernels.h"
#include "ops/linear/tile.h"

static const char *const op = "linear";

static const char *reject_packed(const void *args) {
    const lls_linear_args *a = args;
    return a->weight->layout == LLS_PACKED ? "reads weights as they lie in a file, weight is packed" : NULL;
}

#if LLS_WITH_CUDA
#include "dispatch/launch.h"

static const lls__kernel kernels[] = {LLS_KERNEL(lls_linear_01_naive)};

static lls_status naive(lls_ctx *ctx, const void *args, lls_stream stream) {
    const lls_linear_args *a = args;
    enum { WARPS = 8, MAX_GRID_Y = 65535 };
    lls__linear_params p = {
        .x = a->x->data,
        .weight = a->weight->data,
        .bias = a->bias ? a->bias->data : NULL,
        .out = a->out->data,
        .m = a->out->shape[0],
        .n = a->out->shape[1],
        .k = a->x->shape[1],
        .x_stride = a->x->stride[0],
        .weight_stride = a->weight->stride[0],
        .out_stride = a->out->stride[0],
        .x_dtype = a->x->dtype,
        .weight_dtype = a->weight->dtype,
        .bias_dtype = a->bias ? a->bias->dtype : LLS_F32,
        .out_dtype = a->out->dtype,
    };
    lls__grid shape = {
        .grid = {(uint32_t)((p.n + WARPS - 1) / WARPS), (uint32_t)(p.m < MAX_GRID_Y ? p.m : MAX_GRID_Y), 1},
        .block = {WARPS * 32, 1, 1},
    };
    return lls__launch(ctx, &kernels[0], &shape, (void *[]){&p}, stream);
}
#endif

#define WEIGHTS "f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q4_k q5_k q6_k"
static const char cpu_idea[] = "packed weights: tiles of 16 rows, integer products with broadcast activations";
static const lls__variant variants[] = {
#if LLS_WITH_CUDA
    {"01_naive", LLS_CUDA, WEIGHTS, 80, LLS__CPU_PORTABLE, reject_packed, naive,
     "a warp an output, weights decoded one at a time"},
#endif
    {"cpu_avx512", LLS_CPU, WEIGHTS, 0, LLS__CPU_AVX512, NULL, lls__linear_cpu_avx512, cpu_idea},
    {"cpu_avx2", LLS_CPU, WEIGHTS, 0, LLS__CPU_AVX2, NULL, lls__linear_cpu_avx2, cpu_idea},
    {"cpu_portable", LLS_CPU, WEIGHTS, 0, LLS__CPU_PORTABLE, NULL, lls__linear_cpu_portable, cpu_idea},
    {"ref", LLS_CPU, WEIGHTS, 0, LLS__CPU_PORTABLE, reject_packed, lls__linear_ref,
     "the definition in double: the oracle"},
};

// Packed block weights meet integers; weights that are not f32 meet halves where x has them; all else is fp32.
static lls_math math_of(const lls_linear_args *a) {
    bool blocks = lls_dtype_block_elems(a->weight->dtype) > 1;
    if (a->weight->layout == LLS_PACKED && blocks && a->compute == LLS_COMPUTE_DEFAULT) return LLS_MATH_I8;
    return a->x->dtype == LLS_F32 || a->weight->dtype == LLS_F32 ? LLS_MATH_F32 : LLS_MATH_F16;
}

static void cost(lls_ctx *ctx, const void *args, lls_stream stream, lls__cost *c) {
    (void)ctx, (void)stream;
    const lls_linear_args *a = args;
    c->bytes = lls__tensor_bytes(a->x) + lls__tensor_bytes(a->weight) + lls__tensor_bytes(a->bias) +
               lls__tensor_bytes(a->out);
    c->flops = 2.0 * (double)lls_tensor_numel(a->out) * (double)a->x->shape[1];
    c->math = math_of(a);
}

const lls__op lls__op_linear = {
    .name = "linear",
    .variants = variants,
    .num_variants = LLS_COUNT(variants),
#if LLS_WITH_CUDA
    .kernels = kernels,
    .num_kernels = LLS_COUNT(kernels),
#endif
    .cost = cost,
};

// A packed weight is opaque: a shape, and aligned memory.
static lls_status check_packed(const lls_ctx *ctx, const lls_tensor *w) {
    lls_tensor plain = *w;
    plain.layout = LLS_STRIDED;
    LLS_TRY(lls__check_tensor(ctx, op, "weight", &plain, 2, 2, LLS__FLOATS | LLS__BLOCKS));
    if ((uintptr_t)w->data % LLS__TILE_ALIGN) {
        return lls__fail(LLS_ERR_STRIDE, "%s: weight.data %p must be aligned to %d bytes when packed", op, w->data,
                         LLS__TILE_ALIGN);
    }
    return LLS_OK;
}

static lls_status validate(const lls_ctx *ctx, const lls_linear_args *a) {
    LLS_TRY(lls__check_tensor(ctx, op, "x", a->x, 2, 2, LLS__FLOATS));
    LLS_TRY(lls__check_inner_contiguous(op, "x", a->x));
    if (a->weight && a->weight->layout == LLS_PACKED) {
        LLS_TRY(check_packed(ctx, a->weight));
    } else {
        LLS_TRY(lls__check_tensor(ctx, op, "weight", a->weight, 2, 2, LLS__FLOATS | LLS__BLOCKS));
        LLS_TRY(lls__check_inner_contiguous(op, "weight", a->weight));
    }
    LLS_TRY(lls__check_dim(op, "weight", a->weight, 1, a->x->shape[1], "x.shape[1]"));
    LLS_TRY(lls__check_tensor(ctx, op, "out", a->out, 2, 2, LLS__FLOATS));
    LLS_TRY(lls__check_inner_contiguous(op, "out", a->out));
    LLS_TRY(lls__check_dim(op, "out", a->out, 0, a->x->shape[0], "x.shape[0]"));
    LLS_TRY(lls__check_dim(op, "out", a->out, 1, a->weight->shape[0], "weight.shape[0]"));
    for (int i = 0; i < 2; i++) { // k and n; m is bounded by memory alone
        int64_t size = i == 0 ? a->x->shape[1] : a->weight->shape[0];
        if (size > INT32_MAX) {
            return lls__fail(LLS_ERR_SHAPE, "%s: %s is %lld, must be below 2^31", op,
                             i == 0 ? "x.shape[1]" : "weight.shape[0]", (long long)size);
        }
    }
    if (a->bias) {
        lls__dtypes dtypes = LLS__DTYPE(LLS_F32) | LLS__DTYPE(a->out->dtype);
        LLS_TRY(lls__check_vector(ctx, op, "bias", a->bias, a->weight->shape[0], "weight.shape[0]", dtypes));
        LLS_TRY(lls__check_disjoint(op, "out", a->out, "bias", a->bias));
    }
    LLS_TRY(lls__check_no_self_overlap(op, "out", a->out));
    LLS_TRY(lls__check_disjoint(op, "out", a->out, "x", a->x));
    if (a->weight->layout != LLS_PACKED) LLS_TRY(lls__check_disjoint(op, "out", a->out, "weight", a->weight));
    if (a->compute != LLS_COMPUTE_DEFAULT && a->compute != LLS_COMPUTE_F32) {
        return lls__fail(LLS_ERR_ARGUMENT, "%s: compute is %d, must be LLS_COMPUTE_DEFAULT or LLS_COMPUTE_F32", op,
                         (int)a->compute);
    }
    return LLS_OK;
}

lls_status lls_linear(lls_ctx *ctx, const lls_linear_args *args, lls_stream stream) {
    lls_linear_args a;
    LLS_TRY(lls__copy_args(op, &a, sizeof a, args));
    LLS_TRY(validate(ctx, &a));
    if (lls_tensor_numel(a.out) == 0) return LLS_OK;
    return lls__dispatch(ctx, &lls__op_linear, a.variant, &a, stream);
}
