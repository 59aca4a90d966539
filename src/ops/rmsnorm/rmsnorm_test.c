/* rmsnorm: known faults N01, N03, N04, G02 (zero sizes), strides, in place, residual, errors. */
#include <math.h>
#include <stdio.h>

#include "harness/harness.h"

typedef struct params {
    int64_t rows, hidden;
    lls_dtype dtype;
    bool residual, in_place, weight_f32, strided;
} params;

static lls_rmsnorm_args base_args(const th *h, const lls_tensor *x, const lls_tensor *out, float eps) {
    lls_rmsnorm_args args = LLS_RMSNORM_ARGS_INIT;
    args.x = x, args.out = out, args.eps = eps, args.variant = h->variant;
    return args;
}

static void random_case(th *h, const void *param) {
    const params *p = param;
    int64_t shape[] = {p->rows, p->hidden}, stride[] = {p->hidden + 5, 1};
    const int64_t *strides = p->strided ? stride : NULL;
    lls_tensor x = th_normal(h, p->dtype, 2, shape, strides, 2.0f);
    lls_tensor w = th_normal(h, p->weight_f32 ? LLS_F32 : p->dtype, 1, &p->hidden, NULL, 1.0f);
    lls_tensor out = x, residual, sum;
    if (p->in_place) th_also_output(h, "out", &x, th_tol(p->dtype));
    else out = th_output(h, "out", p->dtype, 2, shape, strides, th_tol(p->dtype));
    lls_rmsnorm_args args = base_args(h, &x, &out, 1e-5f);
    args.weight = &w;
    if (p->residual) {
        residual = th_normal(h, p->dtype, 2, shape, NULL, 1.0f);
        sum = th_output(h, "residual_out", p->dtype, 2, shape, strides, 0);
        args.residual = &residual, args.residual_out = &sum;
    }
    th_ok(h, lls_rmsnorm(h->ctx, &args, h->stream));
}

static void generate(th *h) {
    static const int64_t hiddens[] = {1, 3, 15, 16, 17, 63, 64, 65, 576, 1152, 4097};
    static const lls_dtype dtypes[] = {LLS_F32, LLS_F16, LLS_BF16};
    for (int d = 0; d < 3; d++) {
        for (size_t i = 0; i < sizeof hiddens / sizeof *hiddens; i++) {
            for (int mode = 0; mode < 4; mode++) {
                params p = {.rows = i % 2 ? 3 : 37,
                            .hidden = hiddens[i],
                            .dtype = dtypes[d],
                            .residual = mode == 1,
                            .in_place = mode == 2,
                            .weight_f32 = mode == 3,
                            .strided = mode != 0};
                char name[96];
                snprintf(name, sizeof name, "random %lldx%lld %s%s%s%s", (long long)p.rows, (long long)p.hidden,
                         lls_dtype_name(p.dtype), p.residual ? " residual" : "", p.in_place ? " in place" : "",
                         p.weight_f32 ? " f32 weight" : "");
                th_run_case(h, name, random_case, &p);
            }
        }
    }
}

static double alternating(int64_t i, const void *hidden) {
    return i % *(const int64_t *)hidden % 2 ? -1 : 1;
}

static double mod7(int64_t i, const void *user) {
    (void)user;
    return (double)(i % 7);
}

// N01: out = +-(n mod 7) / sqrt(1 + eps), rounded once; hidden sizes that no vector width divides, or that outgrow
// shared memory.
static void n01(th *h, const void *param) {
    const params *p = param;
    int64_t shape[] = {p->rows, p->hidden};
    lls_tensor x = th_filled(h, p->dtype, 2, shape, NULL, alternating, &p->hidden);
    lls_tensor w = th_filled(h, p->dtype, 1, &p->hidden, NULL, mod7, NULL);
    lls_tensor out = th_output(h, "out", p->dtype, 2, shape, NULL, th_tol(p->dtype));
    lls_rmsnorm_args args = base_args(h, &x, &out, 1e-6f);
    args.weight = &w;
    if (!th_ok(h, lls_rmsnorm(h->ctx, &args, h->stream))) return;
    int64_t last = p->rows * p->hidden - 1, n = p->hidden - 1;
    th_expect_near(h, &out, last, (n % 2 ? -1 : 1) * (double)(n % 7) / sqrt(1 + 1e-6), th_tol(p->dtype));
}

static double n03b_value(int64_t i, const void *user) {
    (void)user;
    return i == 0 ? 64 : 1;
}

// N03: squares of 300 overflow f16; small terms vanish beside an outlier in bf16 sums; eps belongs inside the root.
static void n03(th *h, const void *param) {
    (void)param;
    lls_tensor xa = th_constant(h, LLS_F16, 2, (int64_t[]){1, 8}, NULL, 300);
    lls_tensor a = th_output(h, "a", LLS_F16, 2, (int64_t[]){1, 8}, NULL, 2e-3);
    lls_tensor xb = th_filled(h, LLS_BF16, 2, (int64_t[]){1, 4096}, NULL, n03b_value, NULL);
    lls_tensor b = th_output(h, "b", LLS_BF16, 2, (int64_t[]){1, 4096}, NULL, 1e-2);
    lls_tensor xc = th_constant(h, LLS_F32, 2, (int64_t[]){1, 4096}, NULL, 1e-3);
    lls_tensor c = th_output(h, "c", LLS_F32, 2, (int64_t[]){1, 4096}, NULL, 1e-5);
    lls_rmsnorm_args args = base_args(h, &xa, &a, 1e-6f);
    if (!th_ok(h, lls_rmsnorm(h->ctx, &args, h->stream))) return;
    args = base_args(h, &xb, &b, 1e-6f);
    if (!th_ok(h, lls_rmsnorm(h->ctx, &args, h->stream))) return;
    args = base_args(h, &xc, &c, 1e-5f);
    if (!th_ok(h, lls_rmsnorm(h->ctx, &args, h->stream))) return;
    th_expect_near(h, &a, 0, 1, 1e-3);
    th_expect_near(h, &b, 0, 45.2576, 4e-3);
    th_expect_near(h, &b, 1, 0.707150, 4e-3);
    th_expect_near(h, &c, 77, 0.301511, 1e-5);
}

// N04: (1 + w) in fp32; the fused add rounds to nearest even; chained adds have no drift.
static void n04(th *h, const void *param) {
    (void)param;
    float xs[] = {1.5f, .76171875f, .76171875f, .76171875f};
    uint16_t bits[4];
    for (int i = 0; i < 4; i++) {
        union {
            float f;
            uint32_t u;
        } v = {xs[i]};
        bits[i] = (uint16_t)(v.u >> 16);
    }
    lls_tensor x = th_data(h, LLS_BF16, 2, (int64_t[]){1, 4}, bits);
    lls_tensor w = th_constant(h, LLS_BF16, 1, (int64_t[]){4}, NULL, 0x1p-8);
    lls_tensor out = th_output(h, "out", LLS_BF16, 2, (int64_t[]){1, 4}, NULL, 1e-2);
    lls_rmsnorm_args args = base_args(h, &x, &out, 0);
    args.weight = &w, args.weight_offset = 1;
    if (!th_ok(h, lls_rmsnorm(h->ctx, &args, h->stream))) return;
    th_expect_near(h, &out, 0, 1.5078125, 0);

    int64_t wide[] = {1, 512};
    lls_tensor one = th_constant(h, LLS_BF16, 2, wide, NULL, 1),
               add = th_constant(h, LLS_BF16, 2, wide, NULL, 1.5 * 0x1p-8);
    lls_tensor sum = th_output(h, "sum", LLS_BF16, 2, wide, NULL, 0),
               norm = th_output(h, "norm", LLS_BF16, 2, wide, NULL, 1e-2);
    args = base_args(h, &one, &norm, 1e-6f);
    args.residual = &add, args.residual_out = &sum;
    if (!th_ok(h, lls_rmsnorm(h->ctx, &args, h->stream))) return;
    th_expect_near(h, &sum, 0, 1.0078125, 0);

    lls_tensor chain = th_constant(h, LLS_BF16, 2, wide, NULL, 1);
    th_also_output(h, "chain", &chain, 0);
    double exact = 512, got = 0;
    for (int step = 0; step < 72; step++) {
        lls_tensor delta = th_constant(h, LLS_BF16, 2, wide, NULL, 0x1p-9 * th_hash(step, NULL));
        exact += 512 * th_value(h, &delta, 0);
        args = base_args(h, &delta, &norm, 1e-6f);
        args.residual = &chain, args.residual_out = &chain;
        if (!th_ok(h, lls_rmsnorm(h->ctx, &args, h->stream))) return;
    }
    for (int i = 0; i < 512; i += 64) got += 64 * th_value(h, &chain, i);
    // Unbiased rounding wanders by some sqrt(72) halves of an ulp of 2^-7; truncation would lose 72 of them.
    if (fabs(got - exact) / 512 > 20 * 0x1p-9)
        th_fail(h, "72 chained adds drift by %g an element", (got - exact) / 512);
}

static void zero_sizes(th *h, const void *param) {
    (void)param;
    lls_tensor x = th_normal(h, LLS_F16, 2, (int64_t[]){0, 8}, NULL, 1),
               out = th_output(h, "none", LLS_F16, 2, (int64_t[]){0, 8}, NULL, 0);
    lls_rmsnorm_args args = base_args(h, &x, &out, 1e-6f);
    if (!th_ok(h, lls_rmsnorm(h->ctx, &args, h->stream))) return;
    lls_tensor x1 = th_normal(h, LLS_F16, 2, (int64_t[]){1, 8}, NULL, 1),
               out1 = th_output(h, "next", LLS_F16, 2, (int64_t[]){1, 8}, NULL, 2e-3);
    args = base_args(h, &x1, &out1, 1e-6f);
    th_ok(h, lls_rmsnorm(h->ctx, &args, h->stream));
}

static void five_axes(th *h, const void *param) {
    (void)param;
    int64_t shape[] = {2, 3, 1, 2, 40}, stride[] = {600, 100, 7, 50, 1};
    lls_tensor x = th_normal(h, LLS_F32, 5, shape, stride, 1), out = th_output(h, "out", LLS_F32, 5, shape, NULL, 1e-5);
    lls_rmsnorm_args args = base_args(h, &x, &out, 1e-6f);
    th_ok(h, lls_rmsnorm(h->ctx, &args, h->stream));
}

static void errors(th *h, const void *param) {
    (void)param;
    int64_t shape[] = {2, 8}, bad_weight = 7;
    lls_tensor x = th_normal(h, LLS_F16, 2, shape, NULL, 1), w = th_normal(h, LLS_F16, 1, &bad_weight, NULL, 1);
    lls_tensor out = th_output(h, "out", LLS_F16, 2, shape, NULL, 0),
               out32 = th_output(h, "out32", LLS_F32, 2, shape, NULL, 0);
    lls_rmsnorm_args args = base_args(h, &x, &out, 1e-6f);
    args.weight = &w;
    th_expect_error(h, lls_rmsnorm(h->ctx, &args, h->stream), LLS_ERR_SHAPE,
                    "weight.shape[0] is 7, must equal the last axis of x = 8");
    args = base_args(h, &x, &out32, 1e-6f);
    th_expect_error(h, lls_rmsnorm(h->ctx, &args, h->stream), LLS_ERR_DTYPE,
                    "out.dtype is f32, must equal x.dtype = f16");
    args = base_args(h, &x, &out, -1);
    th_expect_error(h, lls_rmsnorm(h->ctx, &args, h->stream), LLS_ERR_ARGUMENT, "eps is -1");
    args = base_args(h, &x, &out, 1e-6f);
    args.residual = &x;
    th_expect_error(h, lls_rmsnorm(h->ctx, &args, h->stream), LLS_ERR_ARGUMENT, "residual_out is NULL");
    args = base_args(h, NULL, &out, 1e-6f);
    th_expect_error(h, lls_rmsnorm(h->ctx, &args, h->stream), LLS_ERR_ARGUMENT, "x is NULL");
    lls_tensor elsewhere = x;
    elsewhere.device.type = x.device.type == LLS_CPU ? LLS_CUDA : LLS_CPU;
    args = base_args(h, &elsewhere, &out, 1e-6f);
    th_expect_error(h, lls_rmsnorm(h->ctx, &args, h->stream), LLS_ERR_DEVICE, "must be on the context's device");
    lls_tensor shifted = out;
    shifted.data = (char *)x.data + 4;
    args = base_args(h, &x, &shifted, 1e-6f);
    th_expect_error(h, lls_rmsnorm(h->ctx, &args, h->stream), LLS_ERR_ALIAS, "partly overlaps");
    args = base_args(h, &x, &out, 1e-6f);
    args.variant = "no_such_rung";
    th_expect_error(h, lls_rmsnorm(h->ctx, &args, h->stream), LLS_ERR_VARIANT, "no_such_rung");
}

#define N01(rows, hidden, dtype) \
    { "N01 " #rows "x" #hidden " " #dtype, n01, &(const params){rows, hidden, dtype, 0, 0, 0, 0}, false }
static const th_case cases[] = {
    N01(1, 5, LLS_F16),
    N01(3, 1, LLS_F32),
    N01(3, 3, LLS_BF16),
    N01(1, 72, LLS_F16),
    N01(3, 1152, LLS_BF16),
    N01(3, 1440, LLS_F16),
    N01(3, 4097, LLS_F32),
    N01(1, 5120, LLS_BF16),
    N01(3, 16384, LLS_F16),
    N01(3, 32776, LLS_BF16),
    N01(1, 32776, LLS_F32),
    {"N03 overflow, outlier, eps", n03, NULL, false},
    {"N04 weight offset, rounding of the add", n04, NULL, false},
    {"G02 zero rows", zero_sizes, NULL, false},
    {"five axes, strided", five_axes, NULL, false},
    {"errors", errors, NULL, false},
};

const th_suite th_suite_rmsnorm = {"rmsnorm", cases, sizeof cases / sizeof *cases, generate};
