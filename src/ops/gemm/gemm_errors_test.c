/* gemm: calls that are refused, with what their messages must say. Nothing is written then, and the next call is right. */
#include <math.h>

#include "core/tensor.h"
#include "ops/gemm/gemm_test.h"

static void expect(th *h, lls_gemm_args args, lls_status status, const char *part) {
    th_expect_error(h, lls_gemm(h->ctx, &args, h->stream), status, part);
}

void gemm_errors(th *h, const void *param) {
    (void)param;
    gemm_layout tight = {0};
    lls_tensor a = gemm_matrix(h, LLS_F16, 0, 4, 8, tight, NULL), b = gemm_matrix(h, LLS_F16, 0, 8, 6, tight, NULL),
               out = gemm_matrix(h, LLS_F16, 0, 4, 6, tight, gemm_three);
    lls_tensor out32 = gemm_matrix(h, LLS_F32, 0, 4, 6, tight, gemm_three),
               batched = gemm_matrix(h, LLS_F16, 2, 4, 8, tight, NULL),
               batched_b = gemm_matrix(h, LLS_F16, 3, 8, 6, tight, NULL);
    th_also_output(h, "out", &out, 0), th_also_output(h, "out32", &out32, 0);
    lls_gemm_args good = gemm_args_of(h, &a, &b, &out), bad;

    bad = good, bad.a = NULL;
    expect(h, bad, LLS_ERR_ARGUMENT, "gemm: a is NULL");
    bad = good, bad.b = &a;
    expect(h, bad, LLS_ERR_SHAPE, "b.shape[0] is 4, must equal k, the last axis of a = 8");
    bad = good, bad.a = &batched;
    expect(h, bad, LLS_ERR_SHAPE, "b.ndim is 2, must be 3");
    bad = good, bad.a = &batched, bad.b = &batched_b;
    expect(h, bad, LLS_ERR_SHAPE, "b.shape[0] is 3, must equal a.shape[0] = 2");
    lls_tensor wide = out;
    wide.shape[1] = 5;
    bad = good, bad.out = &wide;
    expect(h, bad, LLS_ERR_SHAPE, "out.shape[1] is 5, must equal n, the columns of b = 6");
    lls_tensor other = b;
    other.dtype = LLS_BF16;
    bad = good, bad.b = &other;
    expect(h, bad, LLS_ERR_DTYPE, "b.dtype is bf16, must equal a.dtype = f16");
    other = out, other.dtype = LLS_U8;
    bad = good, bad.out = &other;
    expect(h, bad, LLS_ERR_DTYPE, "out.dtype is u8 (11), must be one of f32, f16");
    lls_tensor overlapping = out;
    overlapping.stride[0] = 5; // a leading dimension below the row
    bad = good, bad.out = &overlapping;
    expect(h, bad, LLS_ERR_STRIDE, "out.stride[0] is 5, below the 6 elements");
    bad = good, bad.beta = 1;
    expect(h, bad, LLS_ERR_ARGUMENT, "c is NULL, must be a tensor since beta is 1");
    bad = good, bad.beta = 1, bad.c = &out32;
    expect(h, bad, LLS_ERR_DTYPE, "c.dtype is f32, must equal out.dtype = f16");
    lls_tensor shifted = out;
    shifted.data = lls__at(&out, 1);
    bad = good, bad.beta = 1, bad.c = &shifted;
    expect(h, bad, LLS_ERR_ALIAS, "partly overlaps c");
    lls_tensor on_a = out;
    on_a.data = a.data;
    bad = good, bad.out = &on_a;
    expect(h, bad, LLS_ERR_ALIAS, "overlaps a");
    on_a.data = b.data;
    expect(h, bad, LLS_ERR_ALIAS, "overlaps b");
    bad = good, bad.variant = "no_such_rung";
    expect(h, bad, LLS_ERR_VARIANT, "no_such_rung");
}

void gemm_errors_of_i8(th *h, const void *param) {
    (void)param;
    gemm_layout tight = {0};
    lls_tensor a = gemm_matrix(h, LLS_I8, 0, 4, 8, tight, gemm_i8_of_a),
               b = gemm_matrix(h, LLS_I8, 0, 8, 6, tight, gemm_i8_of_b),
               half_b = gemm_matrix(h, LLS_F16, 0, 8, 6, tight, NULL),
               c = gemm_matrix(h, LLS_I32, 0, 4, 6, tight, gemm_three);
    lls_tensor out = gemm_matrix(h, LLS_I32, 0, 4, 6, tight, gemm_three),
               out32 = gemm_matrix(h, LLS_F32, 0, 4, 6, tight, gemm_three),
               half_a = gemm_matrix(h, LLS_F16, 0, 4, 8, tight, NULL);
    th_also_output(h, "out", &out, 0), th_also_output(h, "out32", &out32, 0);
    lls_gemm_args good = gemm_args_of(h, &a, &b, &out), bad;
    bad = good, bad.alpha = 2;
    expect(h, bad, LLS_ERR_ARGUMENT, "alpha is 2, must be 1 for out i32");
    bad = good, bad.alpha = 0;
    expect(h, bad, LLS_ERR_ARGUMENT, "alpha is 0, must be 1 for out i32");
    bad = good, bad.beta = 0.5f, bad.c = &c;
    expect(h, bad, LLS_ERR_ARGUMENT, "beta is 0.5, must be 0 or 1 for out i32");
    bad = good, bad.beta = NAN, bad.c = &c;
    expect(h, bad, LLS_ERR_ARGUMENT, "must be 0 or 1 for out i32");
    bad = good, bad.beta = 1;
    expect(h, bad, LLS_ERR_ARGUMENT, "c is NULL");
    bad = good, bad.beta = 1, bad.c = &out32;
    expect(h, bad, LLS_ERR_DTYPE, "c.dtype is f32, must equal out.dtype = i32");
    bad = good, bad.b = &half_b;
    expect(h, bad, LLS_ERR_DTYPE, "b.dtype is f16, must equal a.dtype = i8");
    bad = good, bad.a = &half_a, bad.b = &half_b;
    expect(h, bad, LLS_ERR_DTYPE, "out.dtype is i32 (12), must be one of f32, f16");
    bad = good, bad.a = &half_a, bad.b = &half_b, bad.out = &out32, bad.beta = 1, bad.c = &c;
    expect(h, bad, LLS_ERR_DTYPE, "c.dtype is i32, must equal out.dtype = f32");
}

typedef struct operands {
    lls_tensor a, b, out, out32;
    lls_gemm_args good;
} operands;

// [4, 8] by [8, 6] of this dtype into out, and a call of it that is right.
static operands operands_of(th *h, lls_dtype in, lls_dtype out) {
    gemm_layout tight = {0};
    operands x = {.a = gemm_matrix(h, in, 0, 4, 8, tight, gemm_one),
                  .b = gemm_matrix(h, in, 0, 8, 6, tight, gemm_one),
                  .out = gemm_matrix(h, out, 0, 4, 6, tight, gemm_three),
                  .out32 = gemm_matrix(h, LLS_F32, 0, 4, 6, tight, gemm_three)};
    th_also_output(h, "out", &x.out, 0), th_also_output(h, "out32", &x.out32, 0);
    return x;
}

// The call that follows the failed ones.
static void expect_next_is_right(th *h, const operands *x) {
    lls_gemm_args good = gemm_args_of(h, &x->a, &x->b, &x->out32);
    if (th_ok(h, lls_gemm(h->ctx, &good, h->stream))) th_expect_near(h, &x->out32, 23, 8, 0);
}

void gemm_errors_of_scales(th *h, const void *param) {
    (void)param;
    gemm_layout tight = {0};
    operands x = operands_of(h, LLS_F8_E4M3, LLS_F8_E4M3), halves = operands_of(h, LLS_F16, LLS_F16);
    lls_gemm_args good = gemm_args_of(h, &x.a, &x.b, &x.out), bad;
    int64_t two = 2;
    lls_tensor pair = th_constant(h, LLS_F32, 1, &two, NULL, 1), half = gemm_matrix(h, LLS_F16, 0, 4, 1, tight, NULL),
               rows = gemm_matrix(h, LLS_F32, 0, 4, 1, tight, NULL),
               cols = gemm_matrix(h, LLS_F32, 0, 1, 6, tight, NULL),
               wrong = gemm_matrix(h, LLS_F32, 0, 3, 1, tight, NULL),
               deep = gemm_matrix(h, LLS_F32, 2, 4, 1, tight, NULL);
    bad = good, bad.scale_a = &pair;
    expect(h, bad, LLS_ERR_SHAPE, "scale_a has 2 elements, must be 1, or a matrix");
    bad = good, bad.scale_a = &half;
    expect(h, bad, LLS_ERR_DTYPE, "scale_a.dtype is f16 (2), must be one of f32");
    bad = good, bad.scale_a = &wrong;
    expect(h, bad, LLS_ERR_SHAPE, "scale_a is 3 x 1, must be 1, 4 x 1 or 4 x 1");
    bad = good, bad.scale_b = &rows;
    expect(h, bad, LLS_ERR_SHAPE, "scale_b is 4 x 1, must be 1, 1 x 6 or 1 x 1");
    bad = good, bad.scale_a = &deep;
    expect(h, bad, LLS_ERR_SHAPE, "scale_a.ndim is 3, must be 1 to 2");
    bad = good, bad.scale_out = &wrong;
    expect(h, bad, LLS_ERR_SHAPE, "scale_out is 3 x 1, must be 1, 4 x 1 or 1 x 6");
    lls_tensor on_out = rows;
    on_out.data = x.out.data;
    bad = good, bad.scale_a = &on_out;
    expect(h, bad, LLS_ERR_ALIAS, "overlaps scale_a");
    bad = good, bad.out = &x.out32, bad.scale_out = &cols;
    expect(h, bad, LLS_ERR_ARGUMENT, "scale_out is set, must not be for out f32");
    // 200 of k are two blocks, of f8 operands alone
    lls_tensor blocks = gemm_matrix(h, LLS_F32, 0, 4, 2, tight, NULL),
               a = gemm_matrix(h, LLS_F16, 0, 4, 200, tight, NULL), b = gemm_matrix(h, LLS_F16, 0, 200, 6, tight, NULL);
    bad = gemm_args_of(h, &a, &b, &halves.out), bad.scale_a = &blocks;
    expect(h, bad, LLS_ERR_SHAPE, "scale_a is 4 x 2, must be 1, 4 x 1 or 4 x 1");
    bad = good, bad.b = &halves.b;
    expect(h, bad, LLS_ERR_DTYPE, "b.dtype is f16, must equal a.dtype = f8_e4m3");
    expect_next_is_right(h, &x);
}

void gemm_errors_of_epilogues(th *h, const void *param) {
    (void)param;
    gemm_layout tight = {0};
    operands x = operands_of(h, LLS_BF16, LLS_BF16), q = operands_of(h, LLS_BF16, LLS_I8);
    lls_gemm_args good = gemm_args_of(h, &x.a, &x.b, &x.out), bad;
    int64_t five = 5, six = 6;
    lls_tensor short_bias = th_constant(h, LLS_F32, 1, &five, NULL, 1),
               i32_bias = th_constant(h, LLS_I32, 1, &six, NULL, 1), bias = th_constant(h, LLS_F32, 1, &six, NULL, 1),
               i32 = gemm_matrix(h, LLS_I32, 0, 4, 6, tight, gemm_three),
               narrow = gemm_matrix(h, LLS_BF16, 0, 4, 3, tight, NULL), odd_b = x.b, half_out = x.out;
    bad = good, bad.bias = &short_bias;
    expect(h, bad, LLS_ERR_SHAPE, "bias.shape[0] is 5, must equal n, the columns of b = 6");
    bad = good, bad.bias = &i32_bias;
    expect(h, bad, LLS_ERR_DTYPE, "bias.dtype is i32 (12), must be one of f32, f16, bf16");
    lls_tensor on_out = bias;
    on_out.data = x.out.data;
    bad = good, bad.bias = &on_out;
    expect(h, bad, LLS_ERR_ALIAS, "overlaps bias");
    bad = good, bad.act = (lls_gemm_act)5;
    expect(h, bad, LLS_ERR_ARGUMENT, "act is 5, must be one of lls_gemm_act");
    bad = good, bad.act = (lls_gemm_act)-1;
    expect(h, bad, LLS_ERR_ARGUMENT, "must be one of lls_gemm_act");
    bad = good, bad.flags = 8;
    expect(h, bad, LLS_ERR_ARGUMENT, "flags are 0x8, must be of lls_gemm_flags (0x7)");
    bad = good, bad.gated = true;
    expect(h, bad, LLS_ERR_SHAPE, "out.shape[1] is 6, must equal half the columns of b = 3");
    odd_b.shape[1] = 5, half_out.shape[1] = 2;
    bad = good, bad.gated = true, bad.b = &odd_b, bad.out = &half_out;
    expect(h, bad, LLS_ERR_SHAPE, "b.shape[1] is 5, must be even when gated");
    half_out.shape[1] = 3;
    bad = good, bad.gated = true, bad.out = &half_out, bad.beta = 1, bad.c = &half_out;
    expect(h, bad, LLS_ERR_ARGUMENT, "beta is 1, must be 0 when gated");
    bad = good, bad.residual = &x.out32;
    expect(h, bad, LLS_ERR_DTYPE, "residual.dtype is f32, must equal out.dtype = bf16");
    bad = good, bad.residual = &narrow;
    expect(h, bad, LLS_ERR_SHAPE, "residual.shape[1] is 3");
    lls_tensor shifted = x.out;
    shifted.data = lls__at(&x.out, 2);
    bad = good, bad.residual = &shifted;
    expect(h, bad, LLS_ERR_ALIAS, "partly overlaps residual");
    bad = good, bad.out = &q.out, bad.residual = &i32;
    expect(h, bad, LLS_ERR_DTYPE, "residual.dtype is i32, must be f32, f16 or bf16");
    bad = good, bad.out = &q.out, bad.beta = 1, bad.c = &i32;
    expect(h, bad, LLS_ERR_DTYPE, "c.dtype is i32, must be f32, f16 or bf16");
    // what an exact product of integers cannot have
    lls_tensor a8 = gemm_matrix(h, LLS_I8, 0, 4, 8, tight, gemm_one),
               b8 = gemm_matrix(h, LLS_I8, 0, 8, 6, tight, gemm_one),
               one = th_constant(h, LLS_F32, 1, (int64_t[]){1}, NULL, 1),
               half_i32 = gemm_matrix(h, LLS_I32, 0, 4, 3, tight, gemm_three);
    th_also_output(h, "i32", &i32, 0);
    good = gemm_args_of(h, &a8, &b8, &i32);
    bad = good, bad.bias = &bias;
    expect(h, bad, LLS_ERR_ARGUMENT, "bias is set, must not be for out i32");
    bad = good, bad.act = LLS_GEMM_ACT_RELU;
    expect(h, bad, LLS_ERR_ARGUMENT, "act is set, must not be for out i32");
    bad = good, bad.gated = true, bad.out = &half_i32;
    expect(h, bad, LLS_ERR_ARGUMENT, "gated is set, must not be for out i32");
    bad = good, bad.residual = &i32;
    expect(h, bad, LLS_ERR_ARGUMENT, "residual is set, must not be for out i32");
    bad = good, bad.scale_a = &one;
    expect(h, bad, LLS_ERR_ARGUMENT, "scale_a is set, must not be for out i32");
    bad = good, bad.scale_b = &one;
    expect(h, bad, LLS_ERR_ARGUMENT, "scale_b is set, must not be for out i32");
    bad = good, bad.scale_out = &one;
    expect(h, bad, LLS_ERR_ARGUMENT, "scale_out is set, must not be for out i32");
    expect_next_is_right(h, &x);
}

void gemm_errors_of_pointers(th *h, const void *param) {
    (void)param;
    operands x = operands_of(h, LLS_F16, LLS_F16);
    int64_t one = 1, address = (int64_t)x.a.data;
    lls_tensor array = th_data(h, LLS_I64, 1, &one, &address);
    const void *const *pointers = array.data;
    lls_gemm_args good = gemm_args_of(h, &x.a, &x.b, &x.out), bad;
    bad = good, bad.a_pointers = pointers;
    expect(h, bad, LLS_ERR_SHAPE, "a.ndim is 2, must be 3 with a_pointers");
    bad = good, bad.b_pointers = pointers;
    expect(h, bad, LLS_ERR_SHAPE, "b.ndim is 2, must be 3 with b_pointers");
    bad = good, bad.c = &x.out, bad.c_pointers = pointers;
    expect(h, bad, LLS_ERR_SHAPE, "c.ndim is 2, must be 3 with c_pointers");
    bad = good, bad.out_pointers = (void *const *)(uintptr_t)pointers;
    expect(h, bad, LLS_ERR_SHAPE, "out.ndim is 2, must be 3 with out_pointers");
    // without the pointers, data must be there
    lls_tensor nowhere = x.a;
    nowhere.data = NULL;
    bad = good, bad.a = &nowhere;
    expect(h, bad, LLS_ERR_ARGUMENT, "a.data is NULL");
    expect_next_is_right(h, &x);
}

// Of a call whose operands suit every rung. The harness pins variants; here the config chooses one by itself.
void gemm_errors_of_configs(th *h, const void *param) {
    (void)param;
    const int64_t shape[] = {64, 64};
    lls_tensor a = th_normal(h, LLS_BF16, 2, shape, NULL, 1), b = th_normal(h, LLS_BF16, 2, shape, NULL, 1),
               out = th_output(h, "out", LLS_BF16, 2, shape, NULL, th_tol(LLS_BF16));
    lls_gemm_args args = gemm_args_of(h, &a, &b, &out), bad = args;
    char first[LLS_GEMM_CONFIG_CHARS];
    bool has_configs = lls_gemm_config_at(h->ctx, &args, 0, first);
    static const struct {
        const char *config, *part;
    } wrong[] = {
        {"fast please", "config is \"fast please\", must be like"},
        {"tile=100x100 stages=4 cluster=1x1 split=1 raster=1", "no such tile"},
        {"tile=128x256 stages=40 cluster=1x1 split=1 raster=1", "its stages do not fit"},
        {"tile=128x256 stages=4 cluster=1x1 split=3 raster=1", "its split must be"},
        {"tile=128x256 stages=4 cluster=1x1 split=4 raster=1", "more than k has stages"},
        {"tile=128x256 stages=4 cluster=1x1 split=1 raster=0", "must be 1 or more"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bad.variant = NULL, bad.config = wrong[i].config;
        if (has_configs) expect(h, bad, LLS_ERR_ARGUMENT, wrong[i].part);
        else expect(h, bad, LLS_ERR_VARIANT, "10_split_k"); // refuses, or is not in this build
    }
    if (th_ok(h, lls_gemm(h->ctx, &args, h->stream)) && has_configs) {
        args.config = first, args.variant = NULL;
        th_ok(h, lls_gemm(h->ctx, &args, h->stream));
    }
}
