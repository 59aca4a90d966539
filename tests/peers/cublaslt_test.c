/* The cuBLASLt peer, with a stand-in for the library: the layouts and types that it is told, and which kernel is taken. */
#include "bench/peers/cublaslt.h"

#include <stdlib.h>

#include "core/element.h"
#include "unit/unit.h"

enum { M = 5, N = 9, K = 16, BATCH = 3 };
static lls_ctx *ctx;
static bench_lt lt;

// Small integers, so that every product is exact in every type.
static lls_tensor numbers(lls_dtype dtype, int32_t ndim, const int64_t *shape) {
    static int32_t next;
    lls_tensor t = lls_tensor_make(NULL, dtype, lls_ctx_device(ctx), ndim, shape);
    int64_t count = lls_tensor_numel(&t);
    t.data = malloc((size_t)(count * lls_dtype_block_bytes(dtype)));
    assert_non_null(t.data);
    for (int64_t i = 0; i < count; i++) {
        int32_t value = next++ * 37 % 7 - 3;
        if (dtype == LLS_I8) ((int8_t *)t.data)[i] = (int8_t)value;
        else if (dtype == LLS_I32) ((int32_t *)t.data)[i] = value;
        else lls__set(&t, i, value);
    }
    return t;
}

static double value(const lls_tensor *t, int64_t i) {
    return t->dtype == LLS_I32 ? ((const int32_t *)t->data)[i] : lls__get(t, i);
}

static lls_tensor transposed(lls_tensor t) {
    int32_t row = t.ndim - 2, col = t.ndim - 1;
    int64_t size = t.shape[row], stride = t.stride[row];
    t.shape[row] = t.shape[col], t.stride[row] = t.stride[col];
    t.shape[col] = size, t.stride[col] = stride;
    return t;
}

typedef struct pair {
    lls_dtype in, out;
    bool plain_a, plain_b, batched; // plain: stored as the formula reads; else a is as well, and b is a weight [n, k]
    float alpha, beta;
    bool scaled;
} pair;

// What lls_gemm says, element for element.
static void compare(const pair *p, const bench_lt_product *product, const lls_tensor *scale) {
    lls_tensor want = numbers(p->out, product->out->ndim, product->out->shape);
    lls_gemm_args args = LLS_GEMM_ARGS_INIT;
    args.a = product->a, args.b = product->b, args.c = product->c, args.out = &want;
    args.alpha = p->alpha, args.beta = p->beta;
    if (p->scaled) args.scale_a = &scale[0], args.scale_b = &scale[1];
    args.variant = "ref";
    assert_int_equal(lls_gemm(ctx, &args, NULL), LLS_OK);
    for (int64_t i = 0; i < lls_tensor_numel(&want); i++) {
        assert_true(value(product->out, i) == value(&want, i));
    }
    free(want.data);
}

static void products_of(const pair *p) {
    const int64_t a[] = {BATCH, M, K}, at[] = {BATCH, K, M}, b[] = {BATCH, K, N}, w[] = {BATCH, N, K},
                  o[] = {BATCH, M, N}, one = 1;
    int32_t ndim = p->batched ? 3 : 2, skip = p->batched ? 0 : 1;
    lls_tensor ta = p->plain_a ? numbers(p->in, ndim, a + skip) : transposed(numbers(p->in, ndim, at + skip));
    lls_tensor tb = p->plain_b ? numbers(p->in, ndim, b + skip) : transposed(numbers(p->in, ndim, w + skip));
    lls_tensor tc = numbers(p->out, ndim, o + skip), to = numbers(p->out, ndim, o + skip);
    lls_tensor scale[] = {numbers(LLS_F32, 1, &one), numbers(LLS_F32, 1, &one)};
    ((float *)scale[0].data)[0] = 0.5f, ((float *)scale[1].data)[0] = 4;
    bench_lt_product product = {.a = &ta, .b = &tb, .c = &tc, .out = &to, .alpha = p->alpha, .beta = p->beta};
    if (p->scaled) product.scale_a = scale[0].data, product.scale_b = scale[1].data;
    bench_lt_plan plan;
    assert_int_equal(bench_lt_plan_open(&lt, &product, 1, &plan), LLS_OK);
    assert_int_equal(plan.algo.data[0], 5); // the fast one, though the stand-in's first fails
    assert_int_equal(bench_lt_run(&lt, &plan, &product, NULL), LLS_OK);
    compare(p, &product, scale);
    bench_lt_plan_close(&plan);
    lls_tensor *all[] = {&ta, &tb, &tc, &to, &scale[0], &scale[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->data);
}

static void layouts_and_types(void **unused) {
    (void)unused;
    static const pair pairs[] = {
        {LLS_BF16, LLS_BF16, true, false, false, 1, 0},   {LLS_F16, LLS_F16, true, true, false, 1, 0},
        {LLS_F32, LLS_F32, false, false, false, 2, 0},    {LLS_BF16, LLS_F32, false, true, false, 1, 3},
        {LLS_BF16, LLS_BF16, true, false, true, 1, 1},    {LLS_F16, LLS_F32, false, true, true, 1, 0},
        {LLS_I8, LLS_I32, true, false, false, 1, 1},      {LLS_F8_E4M3, LLS_BF16, true, false, false, 2, 0, true},
        {LLS_F8_E5M2, LLS_F32, true, false, false, 1, 0},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) products_of(&pairs[i]);
}

static void what_it_cannot_do_is_said(void **unused) {
    (void)unused;
    const int64_t a_shape[] = {M, K}, b_shape[] = {K, N}, out_shape[] = {M, N};
    lls_tensor a = numbers(LLS_I8, 2, a_shape), b = numbers(LLS_I8, 2, b_shape), out = numbers(LLS_I32, 2, out_shape);
    bench_lt_product product = {.a = &a, .b = &b, .out = &out, .alpha = 1};
    bench_lt_plan plan;
    assert_int_equal(bench_lt_plan_open(&lt, &product, 1, &plan), LLS_ERR_CUDA); // 8 bits: weights alone
    assert_last_error("cublaslt: none of 7 kernels runs");
    bench_lt_plan_close(&plan);
    a.stride[1] = 2;
    assert_int_equal(bench_lt_plan_open(&lt, &product, 1, &plan), LLS_ERR_STRIDE);
    assert_last_error("cublaslt: no layout for i8 with these strides");
    bench_lt_plan_close(&plan);
    free(a.data), free(b.data), free(out.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_and_types),
        cmocka_unit_test(what_it_cannot_do_is_said),
    };
    if (lls_ctx_create(NULL, &ctx)) return 1;
    lt = (bench_lt){.ctx = ctx}; // bench_lt_open wants a GPU
    const char *version = bench_lt_version();
    if (!version || strcmp(version, "99.1.2") != 0) return 1; // not the stand-in
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lls_ctx_destroy(ctx);
    return failed;
}
