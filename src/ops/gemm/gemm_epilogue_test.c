/* gemm: what follows the sum. Conversions (Q02), activations, gated pairs, bias, c, residual, scale_out, and products of
 * these with dtypes and layouts. */
#include <math.h>
#include <stdio.h>

#include "core/tensor.h"
#include "ops/gemm/gemm_test.h"

/* ---- By hand ---- */

enum { MAX_VALUES = 16 };

/* Numbers, and what they are when stored. 0 ends a list early: it is 0 in every format. */
typedef struct conversion {
    lls_dtype in, out;
    double from[MAX_VALUES], to[MAX_VALUES];
} conversion;

static const conversion conversions[] = {
    {LLS_F32,
     LLS_F8_E4M3,
     {448, 464, 465, 480, 1000, -1000, 65504, INFINITY, 0x1p-9, 0x1p-10, 0x1.8p-9, 1.0625, 1.1875, -INFINITY, NAN},
     {448, 448, 448, 448, 448, -448, 448, 448, 0x1p-9, 0, 0x1p-8, 1, 1.25, -448, NAN}},
    {LLS_F16,
     LLS_F8_E4M3,
     {448, 464, 465, 480, 1000, -1000, 65504, INFINITY, 0x1p-9, 0x1p-10, 0x1.8p-9, 1.0625, 1.1875, -INFINITY, NAN},
     {448, 448, 448, 448, 448, -448, 448, 448, 0x1p-9, 0, 0x1p-8, 1, 1.25, -448, NAN}},
    {LLS_F16,
     LLS_F8_E5M2,
     {57344, 61440, 65504, -65504, INFINITY, -INFINITY, 0x1p-16, 0x1p-17, 0x1.8p-16, 1.125, 1.375, -1.125, NAN},
     {57344, 57344, 57344, -57344, 57344, -57344, 0x1p-16, 0, 0x1p-15, 1, 1.5, -1, NAN}},
    {LLS_BF16,
     LLS_F8_E5M2,
     {57344, 61440, 1e30, -1e30, INFINITY, -INFINITY, 0x1p-16, 0x1p-17, 0x1.8p-16, 1.125, 1.375, -1.125, NAN},
     {57344, 57344, 57344, -57344, 57344, -57344, 0x1p-16, 0, 0x1p-15, 1, 1.5, -1, NAN}},
    {LLS_F32,
     LLS_I8,
     {.5, 1.5, 2.5, -.5, -2.5, 126.5, 127.5, -127.5, -128.5, NAN, INFINITY, -INFINITY, 1e30, -1e30, 3e9},
     {0, 2, 2, 0, -2, 126, 127, -128, -128, 0, 127, -128, 127, -128, 127}},
    {LLS_F16,
     LLS_I8,
     {.5, 1.5, 2.5, -.5, -2.5, 126.5, 127.5, -127.5, -128.5, NAN, INFINITY, -INFINITY},
     {0, 2, 2, 0, -2, 126, 127, -128, -128, 0, 127, -128}},
    {LLS_F32,
     LLS_F16,
     {65504, 65519, 65520, -65520, INFINITY, NAN, 0x1p-24, 0x1p-25, 0x1.8p-24, 0x1.002p0, 0x1.006p0},
     {65504, 65504, INFINITY, -INFINITY, INFINITY, NAN, 0x1p-24, 0, 0x1p-23, 1, 0x1.008p0}},
    {LLS_BF16, LLS_F16, {1e30, -1e30, INFINITY, NAN, 0.5}, {INFINITY, -INFINITY, INFINITY, NAN, 0.5}},
    {LLS_F32, LLS_BF16, {0x1.01p0, 0x1.03p0, -0x1.03p0, INFINITY, NAN}, {1, 0x1.04p0, -0x1.04p0, INFINITY, NAN}},
    {LLS_F16, LLS_BF16, {0x1.01p0, 0x1.03p0, 65504, INFINITY, NAN}, {1, 0x1.04p0, 65536, INFINITY, NAN}},
    {LLS_F8_E5M2, LLS_F16, {57344, 0x1p-16, NAN}, {57344, 0x1p-16, NAN}},
    {LLS_F8_E4M3, LLS_F8_E5M2, {448, 1.125, 1.375, 0x1p-9, NAN}, {448, 1, 1.5, 0x1p-9, NAN}},
};

static double listed(int64_t i, const void *user) {
    return ((const double *)user)[i % MAX_VALUES];
}

// A row of b times 1, in lengths that leave the numbers in vectors and in what is left of them.
static void convert(th *h, const void *param) {
    static const int64_t lengths[] = {1, 7, 16, 17, 33};
    const conversion *v = param;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int64_t n = lengths[i];
        lls_tensor a = gemm_matrix(h, v->in, 0, 1, 1, (gemm_layout){0}, gemm_one),
                   b = th_filled(h, v->in, 2, (int64_t[]){1, n}, NULL, listed, v->from),
                   out = gemm_matrix(h, v->out, 0, 1, n, (gemm_layout){0}, gemm_three);
        th_also_output(h, "out", &out, 0);
        th_allow_nan(h, &out);
        lls_gemm_args args = gemm_args_of(h, &a, &b, &out);
        if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
        for (int64_t col = 0; col < n; col++) th_expect_near(h, &out, col, v->to[col % MAX_VALUES], 0);
    }
}

static void generate_q02(th *h) {
    for (size_t i = 0; i < sizeof conversions / sizeof *conversions; i++) {
        char name[64];
        snprintf(name, sizeof name, "Q02 %s->%s", lls_dtype_name(conversions[i].in),
                 lls_dtype_name(conversions[i].out));
        th_run_case(h, name, convert, &conversions[i]);
    }
}

// Limits, NaN, and what the papers' formulas give for 1.
void gemm_activations(th *h, const void *param) {
    (void)param;
    static const double x[MAX_VALUES] = {1, -1, INFINITY, -INFINITY, NAN, 88, -88, -104, 1000, -1000, 0, 10, -10, 3};
    static const struct {
        lls_gemm_act act;
        double at_one, at_minus_one;
    } rows[] = {{LLS_GEMM_ACT_NONE, 1, -1},
                {LLS_GEMM_ACT_RELU, 1, 0},
                {LLS_GEMM_ACT_SILU, 0.731058578630004879, -0.268941421369995121},
                {LLS_GEMM_ACT_GELU, 0.841344746068542949, -0.158655253931457051},
                {LLS_GEMM_ACT_GELU_TANH, 0.841191990608276200, -0.158808009391723800}};
    static const char *const names[] = {"none", "relu", "silu", "gelu", "gelu_tanh"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lls_tensor a = gemm_matrix(h, LLS_F32, 0, 1, 1, (gemm_layout){0}, gemm_one),
                   b = th_filled(h, LLS_F32, 2, (int64_t[]){1, MAX_VALUES}, NULL, listed, x),
                   out = gemm_matrix(h, LLS_F32, 0, 1, MAX_VALUES, (gemm_layout){0}, gemm_three);
        th_also_output(h, names[i], &out, 1e-6);
        th_allow_nan(h, &out);
        lls_gemm_args args = gemm_args_of(h, &a, &b, &out);
        args.act = rows[i].act;
        if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
        th_expect_near(h, &out, 0, rows[i].at_one, 2e-6), th_expect_near(h, &out, 1, rows[i].at_minus_one, 2e-6);
        th_expect_near(h, &out, 2, INFINITY, 0), th_expect_near(h, &out, 4, NAN, 0);
        th_expect_near(h, &out, 3, rows[i].act ? 0 : -INFINITY, 0);
        th_expect_near(h, &out, 8, 1000, 0), th_expect_near(h, &out, 10, 0, 0);
    }
}

// Column 2j is what the activation sees, column 2j + 1 what it is multiplied by; the bias has an element for each.
void gemm_gated_pairs(th *h, const void *param) {
    (void)param;
    static const double columns[MAX_VALUES] = {2, 3, -2, 5, 0, 7, 1, -1};
    static const double biases[MAX_VALUES] = {1, 0, 0, 0, 0, 0, 0, 4};
    int64_t n = 8, half[] = {2, 4};
    lls_tensor a = gemm_matrix(h, LLS_BF16, 0, 2, 1, (gemm_layout){0}, gemm_one),
               b = th_filled(h, LLS_BF16, 2, (int64_t[]){1, n}, NULL, listed, columns),
               bias = th_filled(h, LLS_F32, 1, &n, NULL, listed, biases),
               residual = th_constant(h, LLS_F32, 2, half, NULL, 0.5);
    lls_tensor out = th_output(h, "out", LLS_F32, 2, half, NULL, 0);
    lls_gemm_args args = gemm_args_of(h, &a, &b, &out);
    args.bias = &bias, args.act = LLS_GEMM_ACT_RELU, args.gated = true, args.residual = &residual;
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    for (int64_t i = 0; i < 8; i++) th_expect_near(h, &out, i, (double[]){9.5, 0.5, 0.5, 3.5}[i % 4], 0);
}

// out = relu(3 - 2 out) + out, where out is 1 and then 5.
void gemm_everything_in_place(th *h, const void *param) {
    (void)param;
    static const double before[MAX_VALUES] = {1, 5, 1, 5, 1, 5, 1, 5, 1, 5, 1, 5, 1, 5, 1, 5};
    lls_tensor a = gemm_matrix(h, LLS_F16, 0, 5, 3, (gemm_layout){0}, gemm_one),
               b = gemm_matrix(h, LLS_F16, 0, 3, 16, (gemm_layout){0}, gemm_one),
               out = th_filled(h, LLS_F32, 2, (int64_t[]){5, 16}, NULL, listed, before);
    th_also_output(h, "out", &out, 0);
    lls_gemm_args args = gemm_args_of(h, &a, &b, &out);
    args.c = args.residual = &out, args.beta = -2, args.act = LLS_GEMM_ACT_RELU;
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    for (int64_t i = 0; i < 80; i++) th_expect_near(h, &out, i, i % 2 ? 5 : 2, 0);
}

/* ---- Products ---- */

static const struct {
    lls_dtype in, out;
} types[] = {{LLS_BF16, LLS_BF16},       {LLS_F16, LLS_F16},      {LLS_BF16, LLS_F32}, {LLS_F16, LLS_F8_E4M3},
             {LLS_F8_E4M3, LLS_BF16},    {LLS_F32, LLS_F32},      {LLS_I8, LLS_F16},   {LLS_BF16, LLS_F16},
             {LLS_BF16, LLS_I8},         {LLS_F16, LLS_BF16},     {LLS_I8, LLS_I8},    {LLS_F32, LLS_F8_E5M2},
             {LLS_F8_E5M2, LLS_F8_E4M3}, {LLS_BF16, LLS_F8_E4M3}, {LLS_F32, LLS_BF16}, {LLS_F32, LLS_I8},
             {LLS_F16, LLS_F8_E5M2},     {LLS_I8, LLS_F8_E4M3},   {LLS_F32, LLS_F16}};
enum { NUM_TYPES = sizeof types / sizeof *types };

static const lls_dtype floats[] = {LLS_F32, LLS_BF16, LLS_F16};
static const int64_t sizes[][3] = {{5, 8, 17},    {1, 130, 64},  {33, 66, 40},   {64, 64, 64}, {129, 34, 33},
                                   {17, 256, 72}, {70, 144, 96}, {128, 128, 32}, {2, 2, 1},    {65, 130, 128}};

static gemm_product product_number(int turn) {
    const int64_t *size = sizes[turn % (int)(sizeof sizes / sizeof *sizes)];
    return (gemm_product){.m = size[0],
                          .n = size[1],
                          .k = size[2],
                          .in = types[turn % NUM_TYPES].in,
                          .out = types[turn % NUM_TYPES].out,
                          .a = {.transposed = turn % 5 == 1, .pad = turn % 3 == 0},
                          .b = {.transposed = turn % 3 != 0, .shifted = turn % 4 == 3},
                          .o = {.transposed = turn % 11 == 10, .pad = turn % 4 == 1},
                          .alpha = turn % 3 == 2 ? 0.5f : 1};
}

static lls_dtype residual_type(const gemm_product *p, int turn) {
    return lls__is_float(p->out) ? p->out : floats[turn % 3];
}

// Each part of the formula alone and with the others, by the bits of a number.
static void generate_parts(th *h) {
    for (int turn = 0; turn < 160; turn++) {
        gemm_product p = product_number(turn);
        int parts = turn / 2 * 5 % 32;
        bool float_out = lls__is_float(p.out);
        p.exact = turn % 2;
        if (parts & 1) p.bias = floats[turn / 3 % 3];
        if (parts & 2) p.residual = residual_type(&p, turn), p.residual_is_out = float_out && turn % 3 == 0;
        if (parts & 4) p.act = p.exact ? LLS_GEMM_ACT_RELU : (lls_gemm_act)(1 + turn / 4 % 4);
        if (parts & 8 && p.n % 2 == 0) p.gated = true;
        if (parts & 16 && !p.gated) p.beta = turn % 4 < 2 ? 1 : -1.5f, p.in_place = float_out && turn % 3 == 1;
        if (!float_out) p.scale_out = (gemm_scaling)(turn / 2 % 4);
        if (turn % 4 == 2 || (turn % 4 == 1 && !p.gated)) // products of scaled pairs would need more than fp32's bits
            p.scale_a = GEMM_BY_LINE, p.scale_b = GEMM_BY_LINE;
        gemm_run_case(h, "epilogue", NULL, p);
    }
}

// Every conversion there is, with exact sums: halves and numbers past what the format holds among them.
static void generate_conversions(th *h) {
    static const lls_dtype ins[] = {LLS_F32, LLS_F16, LLS_BF16, LLS_I8, LLS_F8_E4M3, LLS_F8_E5M2},
                           outs[] = {LLS_F32, LLS_F16, LLS_BF16, LLS_I8, LLS_F8_E4M3, LLS_F8_E5M2};
    for (int i = 0; i < 36; i++) {
        gemm_product p = {
            .m = 23, .n = 37, .k = 50, .in = ins[i / 6], .out = outs[i % 6], .alpha = 0.25f, .exact = true};
        p.b.transposed = i % 2;
        gemm_run_case(h, "conversion", NULL, p);
        p.m = 66, p.n = 144, p.k = 64, p.exact = false, p.alpha = 1;
        gemm_run_case(h, "conversion", NULL, p);
    }
}

// bias, residual, activation and pairs in a batch; past one tile.
static void generate_batches(th *h) {
    for (int i = 0; i < 6; i++) {
        gemm_product p = product_number(i);
        p.batch = 3, p.m = 20 + 60 * (i % 2), p.n = 46 + 100 * (i % 3), p.bias = LLS_F32, p.act = LLS_GEMM_ACT_SILU;
        p.gated = i % 2, p.residual = residual_type(&p, i), p.c.broadcast = i == 4, p.b.broadcast = i == 5;
        gemm_run_case(h, "epilogue", NULL, p);
    }
    gemm_product swiglu = {.m = 200, .n = 520, .k = 300, .in = LLS_BF16, .out = LLS_BF16, .alpha = 1, .gated = true};
    swiglu.act = LLS_GEMM_ACT_SILU, swiglu.b.transposed = true;
    gemm_run_case(h, "SwiGLU", NULL, swiglu);
    swiglu.in = LLS_F8_E4M3, swiglu.out = LLS_F8_E4M3, swiglu.scale_out = GEMM_BY_ONE, swiglu.scale_a = GEMM_BY_LINE;
    gemm_run_case(h, "SwiGLU", NULL, swiglu);
}

void gemm_generate_epilogues(th *h) {
    generate_q02(h);
    generate_conversions(h);
    generate_parts(h);
    generate_batches(h);
}
