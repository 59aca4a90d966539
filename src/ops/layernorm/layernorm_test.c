/* layernorm: rows far from zero, odd sizes (N01), constant rows, NaN, G02 (zero sizes), strides, in place, errors. */
#include <math.h>
#include <stdio.h>

#include "harness/harness.h"

typedef enum affine { SAME_DTYPE, F32, BIAS_ALONE, NEITHER } affine;

typedef struct params {
    int64_t rows, hidden;
    lls_dtype dtype;
    affine affine;
    bool in_place, strided;
} params;

static lls_layernorm_args base_args(const th *h, const lls_tensor *x, const lls_tensor *out, float eps) {
    lls_layernorm_args args = LLS_LAYERNORM_ARGS_INIT;
    args.x = x, args.out = out, args.eps = eps, args.variant = h->variant;
    return args;
}

static void random_case(th *h, const void *param) {
    const params *p = param;
    int64_t shape[] = {p->rows, p->hidden}, stride[] = {p->hidden + 5, 1};
    const int64_t *strides = p->strided ? stride : NULL;
    lls_dtype affine_dtype = p->affine == F32 ? LLS_F32 : p->dtype;
    lls_tensor x = th_normal(h, p->dtype, 2, shape, strides, 2.0f), out = x;
    lls_tensor w = th_normal(h, affine_dtype, 1, &p->hidden, NULL, 1.0f),
               b = th_normal(h, affine_dtype, 1, &p->hidden, NULL, 1.0f);
    if (p->in_place) th_also_output(h, "out", &x, th_tol(p->dtype));
    else out = th_output(h, "out", p->dtype, 2, shape, strides, th_tol(p->dtype));
    lls_layernorm_args args = base_args(h, &x, &out, 1e-5f);
    if (p->affine == SAME_DTYPE || p->affine == F32) args.weight = &w;
    if (p->affine != NEITHER) args.bias = &b;
    th_ok(h, lls_layernorm(h->ctx, &args, h->stream));
}

static void generate(th *h) {
    static const int64_t hiddens[] = {1, 3, 15, 16, 17, 63, 64, 65, 257, 768, 1152, 4097};
    static const lls_dtype dtypes[] = {LLS_F32, LLS_F16, LLS_BF16};
    static const char *const affines[] = {"", " f32 affine", " bias alone", " plain"};
    for (int d = 0; d < 3; d++) {
        for (size_t i = 0; i < sizeof hiddens / sizeof *hiddens; i++) {
            for (int mode = SAME_DTYPE; mode <= NEITHER; mode++) {
                params p = {.rows = i % 2 ? 3 : 37,
                            .hidden = hiddens[i],
                            .dtype = dtypes[d],
                            .affine = (affine)mode,
                            .in_place = mode == BIAS_ALONE,
                            .strided = mode != 0};
                char name[96];
                snprintf(name, sizeof name, "random %lldx%lld %s%s%s", (long long)p.rows, (long long)p.hidden,
                         lls_dtype_name(p.dtype), affines[mode], p.in_place ? " in place" : "");
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

// N01: hidden sizes that no vector width divides, or that outgrow shared memory. With m the mean of +-1 the variance is
// 1 - m^2.
static void n01(th *h, const void *param) {
    const params *p = param;
    int64_t shape[] = {p->rows, p->hidden};
    lls_tensor x = th_filled(h, p->dtype, 2, shape, NULL, alternating, &p->hidden);
    lls_tensor w = th_filled(h, p->dtype, 1, &p->hidden, NULL, mod7, NULL),
               b = th_constant(h, p->dtype, 1, &p->hidden, NULL, 0.5);
    lls_tensor out = th_output(h, "out", p->dtype, 2, shape, NULL, th_tol(p->dtype));
    lls_layernorm_args args = base_args(h, &x, &out, 1e-6f);
    args.weight = &w, args.bias = &b;
    if (!th_ok(h, lls_layernorm(h->ctx, &args, h->stream))) return;
    int64_t last = p->rows * p->hidden - 1, n = p->hidden - 1;
    double mean = p->hidden % 2 ? 1.0 / (double)p->hidden : 0;
    double want = ((n % 2 ? -1 : 1) - mean) / sqrt(1 - mean * mean + 1e-6) * (double)(n % 7) + 0.5;
    th_expect_near(h, &out, last, want, th_tol(p->dtype));
}

static double far_from_zero(int64_t i, const void *user) {
    return *(const double *)user + th_hash(i, NULL); // exact in fp32: multiples of 2^-6 below 2^17
}

// A mean that dwarfs the deviation: E[x^2] - E[x]^2 in fp32 would have a variance of 1e8 - 1e8 here, and a plain mean
// costs 1e-3 of the deviation.
static void cancellation(th *h, const void *param) {
    int64_t shape[] = {3, 4096 + 7}, n = shape[1];
    lls_tensor x = th_filled(h, LLS_F32, 2, shape, NULL, far_from_zero, param),
               out = th_output(h, "out", LLS_F32, 2, shape, NULL, 2e-6);
    lls_layernorm_args args = base_args(h, &x, &out, 1e-5f);
    if (!th_ok(h, lls_layernorm(h->ctx, &args, h->stream))) return;
    double mean = 0, variance = 0; // of the last row, without the offset
    for (int64_t i = 0; i < n; i++) mean += th_hash(2 * n + i, NULL) / (double)n;
    for (int64_t i = 0; i < n; i++) variance += pow(th_hash(2 * n + i, NULL) - mean, 2) / (double)n;
    for (int64_t i = 0; i < n; i += 101) {
        double d = th_hash(2 * n + i, NULL) - mean, want = d / sqrt(variance + 1e-5),
               got = th_value(h, &out, 2 * n + i);
        if (fabs(got - want) > 4e-6) th_fail(h, "element %lld is %.9g, expected %.9g", (long long)i, got, want);
    }
}

// A constant row has variance 0, whatever the mean rounds to: out is the bias. Never a root of something negative.
static void constant_rows(th *h, const void *param) {
    (void)param;
    static const double values[] = {0, 0.1, -1e4 / 3, 65504};
    int64_t hidden = 4097;
    lls_tensor b = th_constant(h, LLS_F32, 1, &hidden, NULL, 0.25);
    for (int i = 0; i < 4; i++) {
        lls_tensor x = th_constant(h, LLS_F32, 2, (int64_t[]){1, hidden}, NULL, values[i]),
                   out = th_output(h, "out", LLS_F32, 2, (int64_t[]){1, hidden}, NULL, 1e-5);
        lls_layernorm_args args = base_args(h, &x, &out, 1e-5f);
        args.bias = &b;
        if (!th_ok(h, lls_layernorm(h->ctx, &args, h->stream))) return;
        th_expect_near(h, &out, hidden - 1, 0.25, 1e-5);
    }
}

static double one_outlier(int64_t i, const void *user) {
    (void)user;
    return i == 5 ? 60000 : (double)(i % 3) - 1;
}

static void outlier(th *h, const void *param) { // squares that overflow f16, beside terms that f16 sums would drop
    (void)param;
    lls_tensor x = th_filled(h, LLS_F16, 2, (int64_t[]){1, 513}, NULL, one_outlier, NULL),
               out = th_output(h, "out", LLS_F16, 2, (int64_t[]){1, 513}, NULL, 2e-3);
    lls_layernorm_args args = base_args(h, &x, &out, 1e-5f);
    if (!th_ok(h, lls_layernorm(h->ctx, &args, h->stream))) return;
    th_expect_near(h, &out, 5, sqrt(512), 1e-3);
    double mean = 60000.0 / 513, deviation = mean * sqrt(512); // the small terms add to 0 and nearly nothing
    th_expect_near(h, &out, 0, (-1 - mean) / deviation, 2e-3);
}

static double bad_second_row(int64_t i, const void *user) {
    return i == 45 ? *(const double *)user : th_hash(i, NULL);
}

static void bad_values_stay(th *h, const void *param) { // NaN or inf in a row makes that row NaN, and no other
    int64_t shape[] = {3, 40};
    lls_tensor x = th_filled(h, LLS_F16, 2, shape, NULL, bad_second_row, param),
               out = th_output(h, "out", LLS_F16, 2, shape, NULL, 2e-3);
    th_allow_nan(h, &out);
    lls_layernorm_args args = base_args(h, &x, &out, 1e-5f);
    if (!th_ok(h, lls_layernorm(h->ctx, &args, h->stream))) return;
    for (int64_t i = 0; i < 120; i++) {
        if (!isnan(th_value(h, &out, i)) != (i / 40 != 1))
            th_fail(h, "element %lld is %g", (long long)i, th_value(h, &out, i));
    }
}

static void literals(th *h, const void *param) { // mean 3, variance 2, eps 2: (x - 3) / 2 * w + b
    (void)param;
    float x[] = {1, 2, 3, 4, 5}, w[] = {1, 2, 3, 4, -5}, b[] = {0, 0, 7, 0, 1}, want[] = {-1, -1, 7, 2, -4};
    int64_t five = 5;
    lls_tensor tx = th_data(h, LLS_F32, 1, &five, x), tw = th_data(h, LLS_F32, 1, &five, w),
               tb = th_data(h, LLS_F32, 1, &five, b);
    lls_tensor out = th_output(h, "out", LLS_F32, 1, &five, NULL, 1e-6);
    lls_layernorm_args args = base_args(h, &tx, &out, 2);
    args.weight = &tw, args.bias = &tb;
    if (!th_ok(h, lls_layernorm(h->ctx, &args, h->stream))) return;
    for (int i = 0; i < 5; i++) th_expect_near(h, &out, i, want[i], 1e-6);
}

static void zero_sizes(th *h, const void *param) {
    (void)param;
    static const int64_t shapes[][2] = {{0, 8}, {3, 0}, {3, 8}}; // the last: a call afterwards works
    for (int i = 0; i < 3; i++) {
        lls_tensor x = th_normal(h, LLS_F16, 2, shapes[i], NULL, 1),
                   out = th_output(h, "out", LLS_F16, 2, shapes[i], NULL, 2e-3);
        lls_layernorm_args args = base_args(h, &x, &out, 1e-6f);
        if (!th_ok(h, lls_layernorm(h->ctx, &args, h->stream))) return;
    }
}

static void five_axes(th *h, const void *param) {
    (void)param;
    int64_t shape[] = {2, 3, 1, 2, 40}, stride[] = {600, 100, 7, 50, 1};
    lls_tensor x = th_normal(h, LLS_F32, 5, shape, stride, 1), out = th_output(h, "out", LLS_F32, 5, shape, NULL, 1e-5);
    lls_layernorm_args args = base_args(h, &x, &out, 1e-6f);
    th_ok(h, lls_layernorm(h->ctx, &args, h->stream));
}

static void errors(th *h, const void *param) {
    (void)param;
    int64_t shape[] = {2, 8}, seven = 7, eight = 8;
    lls_tensor x = th_normal(h, LLS_F16, 2, shape, NULL, 1), short_bias = th_normal(h, LLS_F16, 1, &seven, NULL, 1);
    lls_tensor bf16_weight = th_normal(h, LLS_BF16, 1, &eight, NULL, 1);
    lls_tensor out = th_output(h, "out", LLS_F16, 2, shape, NULL, 0),
               out32 = th_output(h, "out32", LLS_F32, 2, shape, NULL, 0);
    lls_layernorm_args args = base_args(h, &x, &out, 1e-6f);
    args.bias = &short_bias;
    th_expect_error(h, lls_layernorm(h->ctx, &args, h->stream), LLS_ERR_SHAPE,
                    "bias.shape[0] is 7, must equal the last axis of x = 8");
    args = base_args(h, &x, &out, 1e-6f);
    args.weight = &bf16_weight;
    th_expect_error(h, lls_layernorm(h->ctx, &args, h->stream), LLS_ERR_DTYPE, "weight.dtype is bf16");
    args = base_args(h, &x, &out32, 1e-6f);
    th_expect_error(h, lls_layernorm(h->ctx, &args, h->stream), LLS_ERR_DTYPE,
                    "out.dtype is f32, must equal x.dtype = f16");
    args = base_args(h, &x, &out, NAN);
    th_expect_error(h, lls_layernorm(h->ctx, &args, h->stream), LLS_ERR_ARGUMENT, "must be >= 0");
    args = base_args(h, NULL, &out, 1e-6f);
    th_expect_error(h, lls_layernorm(h->ctx, &args, h->stream), LLS_ERR_ARGUMENT, "x is NULL");
    lls_tensor shifted = out;
    shifted.data = (char *)x.data + 4;
    args = base_args(h, &x, &shifted, 1e-6f);
    th_expect_error(h, lls_layernorm(h->ctx, &args, h->stream), LLS_ERR_ALIAS, "partly overlaps");
    lls_tensor row = out;
    row.ndim = 1, row.shape[0] = 8, row.stride[0] = 1;
    args = base_args(h, &x, &out, 1e-6f);
    args.weight = &row;
    th_expect_error(h, lls_layernorm(h->ctx, &args, h->stream), LLS_ERR_ALIAS, "overlaps weight");
}

#define N01(rows, hidden, dtype) \
    { "N01 " #rows "x" #hidden " " #dtype, n01, &(const params){rows, hidden, dtype, SAME_DTYPE, false, false}, false }
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
    {"mean 1e4, deviation 1", cancellation, &(const double){10000}, false},
    {"mean -1e5, deviation 1", cancellation, &(const double){-100000}, false},
    {"constant rows", constant_rows, NULL, false},
    {"outlier", outlier, NULL, false},
    {"NaN stays in its row", bad_values_stay, &(const double){NAN}, false},
    {"inf stays in its row", bad_values_stay, &(const double){INFINITY}, false},
    {"literal values", literals, NULL, false},
    {"G02 zero sizes", zero_sizes, NULL, false},
    {"five axes, strided", five_axes, NULL, false},
    {"errors", errors, NULL, false},
};

const th_suite th_suite_layernorm = {"layernorm", cases, sizeof cases / sizeof *cases, generate};
