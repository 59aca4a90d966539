/* gemm: the suite, and the plain product. Known faults G01, G02, G03, all transposes, strides and dtypes, batches with
 * broadcast, alpha and beta, in place, sizes past the grid limits, exact int8 products. */
#include <math.h>
#include <stdlib.h>

#include "core/tensor.h"
#include "ops/gemm/gemm_test.h"

// On the oracle's side: the product in int64, straight from the fill functions.
static void check_integers(th *h, const gemm_product *p, const lls_tensor *out) {
    int *a = malloc((size_t)(p->m * p->k + p->k * p->n) * sizeof *a), *b = a + p->m * p->k;
    for (int64_t row = 0; row < p->m; row++) {
        for (int64_t k = 0; k < p->k; k++) a[row * p->k + k] = (int)th_hash9(gemm_fill_index(p->k, p->a, row, k), NULL);
    }
    for (int64_t col = 0; col < p->n; col++) {
        for (int64_t k = 0; k < p->k; k++)
            b[col * p->k + k] = (int)gemm_hash9_of_b(gemm_fill_index(p->n, p->b, k, col), NULL);
    }
    int64_t exact_below = p->out == LLS_BF16 ? 256 : p->out == LLS_F16 ? 2048 : 1 << 24;
    for (int64_t i = 0; i < p->m * p->n; i++) {
        int64_t sum = 0;
        for (int64_t k = 0; k < p->k; k++) sum += a[i / p->n * p->k + k] * b[i % p->n * p->k + k];
        if (llabs(sum) <= exact_below) th_expect_near(h, out, i, (double)sum, 0);
    }
    free(a);
}

// G03: odd sizes, transposes, gaps and offsets with exact integers: any tail or alignment fault shows as a wrong
// integer or a NaN.
static void g03(th *h, const void *param) {
    const gemm_product *p = param;
    lls_tensor out;
    if (gemm_run(h, p, &out) && th_is_reference(h)) check_integers(h, p, &out);
}

static const struct {
    lls_dtype in, out;
} dtypes[] = {{LLS_F32, LLS_F32}, {LLS_F16, LLS_F16}, {LLS_F16, LLS_F32}, {LLS_BF16, LLS_BF16}, {LLS_BF16, LLS_F32}};
enum { NUM_DTYPES = sizeof dtypes / sizeof *dtypes };

static void generate_g03(th *h) {
    static const int64_t sizes[][3] = {{1, 105, 107}, {2, 2, 2},     {1, 1, 1},
                                       {3, 4304, 80}, {17, 129, 65}, {4, 1440, 2880}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int d = 0; d < NUM_DTYPES; d++) {
            for (int t = 0; t < 4; t++) {
                bool large = sizes[s][2] > 1000; // filling it takes a while: f32, f16 and bf16->f32, and loose only
                if (large && (d == 2 || d == 3)) continue;
                for (int loose = large; loose < 2; loose++) { // tight first, then ld = width + 3 and one element off
                    gemm_layout l = {.pad = 3 * loose, .shifted = loose}, a = l, b = l, o = l;
                    a.transposed = t & 1, b.transposed = t & 2, o.transposed = loose && t == 3;
                    gemm_product p = {.m = sizes[s][0],
                                      .n = sizes[s][1],
                                      .k = sizes[s][2],
                                      .in = dtypes[d].in,
                                      .out = dtypes[d].out,
                                      .a = a,
                                      .b = b,
                                      .o = o,
                                      .alpha = 1,
                                      .exact = true};
                    gemm_run_case(h, "G03", g03, p);
                }
            }
        }
    }
}

// Both sides of a register tile's edges, of a quad along k, of a vector of bytes, and of the blocks of k (256, 512, 1024);
// every way in which the operands may lie.
static void generate_i8(th *h) {
    static const int64_t ms[] = {1, 2, 4, 5, 6, 7, 9, 13, 15, 43}, ns[] = {1, 8, 15, 17, 33, 70},
                         ks[] = {1, 2, 3, 4, 5, 15, 17, 63, 64, 65, 255, 257, 511, 513, 1023, 1025, 2100};
    int turn = 0;
    for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
        for (size_t j = 0; j < sizeof ns / sizeof *ns; j++) {
            for (int t = 0; t < 4; t++, turn++) {
                gemm_layout a = {.transposed = t & 1, .pad = turn % 3, .shifted = turn % 2}, b = a, o = {0}, c = {0};
                b.transposed = t & 2, o.transposed = turn / 4 % 3 == 0, c.transposed = turn % 7 == 0;
                gemm_run_case(h, "random", NULL,
                              (gemm_product){.m = ms[i],
                                             .n = ns[j],
                                             .k = ks[turn % 17],
                                             .in = LLS_I8,
                                             .out = LLS_I32,
                                             .a = a,
                                             .b = b,
                                             .c = c,
                                             .o = o,
                                             .alpha = 1,
                                             .beta = (float)(turn % 5 < 2),
                                             .in_place = turn % 5 == 0});
            }
        }
    }
    for (int bits = 0; bits < 8; bits++) {
        gemm_product p = {.batch = 3, .m = 9, .n = 33, .k = 70, .in = LLS_I8, .out = LLS_I32, .alpha = 1, .beta = 1};
        p.a.broadcast = bits & 1, p.b.broadcast = bits & 2, p.c.broadcast = bits & 4, p.b.transposed = bits & 1;
        gemm_run_case(h, "random", NULL, p);
    }
    gemm_product several_tiles = {.m = 300, .n = 530, .k = 1300, .in = LLS_I8, .out = LLS_I32, .alpha = 1, .beta = 1},
                 grid_limit = {.m = 600000, .n = 1, .k = 2, .in = LLS_I8, .out = LLS_I32, .alpha = 1};
    gemm_run_case(h, "random", NULL, several_tiles);
    several_tiles.b.transposed = true, several_tiles.in_place = true;
    gemm_run_case(h, "random", NULL, several_tiles);
    gemm_run_case(h, "random", NULL, grid_limit);
}

static void generate(th *h) {
    generate_g03(h);
    generate_i8(h);
    // Both sides of the register tile's edges (4, 6, 14 rows; 8, 16, 32 columns) and of the k blocks.
    static const int64_t ms[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14, 15, 29, 57},
                         ns[] = {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 65}, ks[] = {1, 15, 16, 17, 255, 256, 257, 513};
    int turn = 0;
    for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
        for (size_t j = 0; j < sizeof ns / sizeof *ns; j++, turn++) {
            int d = turn % NUM_DTYPES, t = turn / 2 % 8;
            gemm_run_case(h, "random", NULL,
                          (gemm_product){.m = ms[i],
                                         .n = ns[j],
                                         .k = ks[turn % 8],
                                         .in = dtypes[d].in,
                                         .out = dtypes[d].out,
                                         .a = {.transposed = t & 1, .pad = turn % 3},
                                         .b = {.transposed = t & 2},
                                         .o = {.transposed = t & 4, .pad = turn % 2},
                                         .alpha = 1});
        }
    }
    static const float scales[][2] = {{1, 0}, {0, 0}, {0, 1}, {0, -2}, {1, 1}, {-0.5f, 1.5f}, {2, -1}};
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        for (int mode = 0; mode < 6; mode++) { // c apart, c is out, c transposed; with and without a batch
            int d = (int)(s + (size_t)mode) % NUM_DTYPES;
            gemm_product p = {.batch = mode / 3 * 3,
                              .m = 19,
                              .n = 45,
                              .k = 37,
                              .in = dtypes[d].in,
                              .out = dtypes[d].out,
                              .c = {.transposed = mode % 3 == 2, .pad = 2},
                              .alpha = scales[s][0],
                              .beta = scales[s][1],
                              .in_place = mode % 3 == 1};
            gemm_run_case(h, "random", NULL, p);
        }
    }
    for (int bits = 1; bits < 8; bits++) {
        gemm_product p = {.batch = 5, .m = 9, .n = 33, .k = 20, .in = LLS_F16, .out = LLS_F32, .alpha = 1, .beta = 1};
        p.a.broadcast = bits & 1, p.b.broadcast = bits & 2, p.c.broadcast = bits & 4, p.b.transposed = bits & 1;
        gemm_run_case(h, "random", NULL, p);
    }
    for (int d = 0; d < NUM_DTYPES; d++) { // several tiles each way
        for (int t = 0; t < 2; t++) {
            gemm_run_case(h, "random", NULL,
                          (gemm_product){.m = 300,
                                         .n = 530,
                                         .k = 300,
                                         .in = dtypes[d].in,
                                         .out = dtypes[d].out,
                                         .a = {.transposed = t},
                                         .b = {.transposed = t},
                                         .o = {.transposed = d == 1},
                                         .alpha = 1});
        }
    }
    gemm_run_case(
        h, "random", NULL,
        (gemm_product){
            .m = 1, .n = 3000, .k = 700, .in = LLS_F16, .out = LLS_F16, .b = {.transposed = true}, .alpha = 1});
    gemm_run_case(h, "random", NULL,
                  (gemm_product){.m = 3000, .n = 1, .k = 700, .in = LLS_BF16, .out = LLS_BF16, .alpha = 1});
    // Past the limits of a CUDA grid: 65535 * 8 rows, 65535 matrices.
    gemm_run_case(h, "random", NULL,
                  (gemm_product){.m = 600000, .n = 1, .k = 2, .in = LLS_F32, .out = LLS_F32, .alpha = 1});
    gemm_run_case(h, "random", NULL,
                  (gemm_product){.m = 1, .n = 600000, .k = 2, .in = LLS_F16, .out = LLS_F16, .alpha = 1});
    gemm_run_case(h, "random", NULL,
                  (gemm_product){.batch = 70000,
                                 .m = 1,
                                 .n = 2,
                                 .k = 3,
                                 .in = LLS_BF16,
                                 .out = LLS_F32,
                                 .alpha = 1,
                                 .b = {.broadcast = true}});
    gemm_generate_scales(h);
    gemm_generate_epilogues(h);
    gemm_generate_pointers(h);
    gemm_generate_invariance(h);
    gemm_generate_edges(h);
}

// G01: beta = 0 must not read c, alpha = 0 must not read a and b; in the partial tiles too.
static void g01(th *h, const void *param) {
    const gemm_product *p = param;
    lls_tensor a = gemm_matrix(h, p->in, 0, p->m, p->k, p->a, gemm_one),
               b = gemm_matrix(h, p->in, 0, p->k, p->n, p->b, gemm_one),
               nan = gemm_matrix(h, p->in, 0, p->m, p->k, p->a, gemm_poison);
    lls_tensor product = gemm_matrix(h, p->out, 0, p->m, p->n, p->o, gemm_poison),
               zero = gemm_matrix(h, p->out, 0, p->m, p->n, p->o, gemm_poison);
    lls_tensor twice = gemm_matrix(h, p->out, 0, p->m, p->n, p->o, gemm_three);
    th_also_output(h, "product", &product, 0), th_also_output(h, "zero", &zero, 0),
        th_also_output(h, "twice", &twice, 0);
    lls_gemm_args args = gemm_args_of(h, &a, &b, &product);
    args.c = &product; // beta is 0: its NaN and infinities must not spread
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    args = gemm_args_of(h, &nan, &b, &zero);
    args.alpha = 0, args.c = &zero;
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    args = gemm_args_of(h, &nan, &b, &twice);
    args.alpha = 0, args.beta = 2, args.c = &twice;
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    int64_t last = p->m * p->n - 1;
    th_expect_near(h, &product, 0, (double)p->k, 0), th_expect_near(h, &product, last, (double)p->k, 0);
    th_expect_near(h, &zero, 0, 0, 0), th_expect_near(h, &zero, last, 0, 0);
    th_expect_near(h, &twice, 0, 6, 0), th_expect_near(h, &twice, last, 6, 0);
}

// G02: no size may be divided by, launched, or left to break the next call.
static void g02(th *h, const void *param) {
    (void)param;
    static const int64_t sizes[][3] = {{0, 8, 8}, {8, 0, 8}, {8, 8, 0}};
    for (int batch = 0; batch < 2; batch++) {
        for (int s = 0; s < 3; s++) {
            for (int beta = 0; beta <= 2; beta += 2) {
                lls_tensor a = gemm_matrix(h, LLS_F16, batch, sizes[s][0], sizes[s][2], (gemm_layout){0}, gemm_one),
                           b = gemm_matrix(h, LLS_F16, batch, sizes[s][2], sizes[s][1], (gemm_layout){0}, gemm_one);
                lls_tensor out = gemm_matrix(h, LLS_F16, batch, sizes[s][0], sizes[s][1], (gemm_layout){0}, gemm_three);
                th_also_output(h, "out", &out, 0);
                lls_gemm_args args = gemm_args_of(h, &a, &b, &out);
                args.beta = (float)beta, args.c = &out;
                if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
                if (s == 2) th_expect_near(h, &out, 63, 3 * beta, 0);
            }
        }
    }
    lls_tensor none = gemm_matrix(h, LLS_F32, 3, 4, 4, (gemm_layout){0}, gemm_one),
               out = gemm_matrix(h, LLS_F32, 3, 4, 4, (gemm_layout){0}, gemm_three);
    none.shape[0] = out.shape[0] = 0; // an empty batch of matrices
    th_also_output(h, "empty batch", &out, 0);
    lls_gemm_args args = gemm_args_of(h, &none, &none, &out);
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    lls_tensor a = gemm_matrix(h, LLS_F16, 0, 8, 8, (gemm_layout){0}, NULL),
               b = gemm_matrix(h, LLS_F16, 0, 8, 8, (gemm_layout){0}, NULL);
    lls_tensor next = th_output(h, "next", LLS_F16, 2, (int64_t[]){8, 8}, NULL, 2e-3);
    args = gemm_args_of(h, &a, &b, &next);
    th_ok(h, lls_gemm(h->ctx, &args, h->stream));
}

// Neither axis contiguous: every other row and every third column of larger buffers.
static void both_axes_strided(th *h, const void *param) {
    const gemm_product *p = param;
    int64_t a_shape[] = {17, 40}, a_stride[] = {250, 3}, b_shape[] = {40, 35}, b_stride[] = {2, 90},
            out_shape[] = {17, 35}, out_stride[] = {200, 4};
    lls_tensor a = th_normal(h, p->in, 2, a_shape, a_stride, 1), b = th_normal(h, p->in, 2, b_shape, b_stride, 1),
               c = th_normal(h, p->out, 2, out_shape, NULL, 1);
    lls_tensor out = th_output(h, "out", p->out, 2, out_shape, out_stride, th_tol(p->out));
    lls_gemm_args args = gemm_args_of(h, &a, &b, &out);
    args.c = &c, args.beta = 1;
    th_ok(h, lls_gemm(h->ctx, &args, h->stream));
}

// A bias is a c whose rows are one row: stride 0. An outer product's a may repeat one column.
static void expanded_axes(th *h, const void *param) {
    (void)param;
    int64_t a_stride[] = {1, 0}, c_stride[] = {0, 1}, shape[] = {20, 20};
    lls_tensor a = th_normal(h, LLS_F32, 2, shape, a_stride, 1), b = th_normal(h, LLS_F32, 2, shape, NULL, 1),
               bias = th_normal(h, LLS_F32, 2, shape, c_stride, 1);
    lls_tensor out = th_output(h, "out", LLS_F32, 2, shape, NULL, 1e-5);
    lls_gemm_args args = gemm_args_of(h, &a, &b, &out);
    args.c = &bias, args.beta = 1;
    th_ok(h, lls_gemm(h->ctx, &args, h->stream));
}

// A row's bits depend neither on how many other rows there are nor on where it lies among them.
static void rows_are_independent(th *h, const void *param) {
    (void)param;
    int64_t m = 100, n = 70, k = 700;
    lls_tensor a = gemm_matrix(h, LLS_F32, 0, m, k, (gemm_layout){0}, NULL),
               b = gemm_matrix(h, LLS_F32, 0, k, n, (gemm_layout){0}, NULL);
    lls_tensor all = th_output(h, "all", LLS_F32, 2, (int64_t[]){m, n}, NULL, 1e-5);
    lls_gemm_args args = gemm_args_of(h, &a, &b, &all);
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    for (int64_t row = 0; row < m; row += 33) {
        lls_tensor one_row = a, out = th_output(h, "one row", LLS_F32, 2, (int64_t[]){1, n}, NULL, 1e-5), same = all;
        one_row.data = lls__at(&a, row * k), one_row.shape[0] = 1;
        same.data = lls__at(&all, row * n), same.shape[0] = 1;
        args = gemm_args_of(h, &one_row, &b, &out);
        if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
        th_expect_bits_equal(h, &out, &same);
    }
}

static double i8_min(int64_t i, const void *user) {
    (void)i, (void)user;
    return -128;
}

static double i32_max(int64_t i, const void *user) {
    (void)i, (void)user;
    return INT32_MAX;
}

// The largest products there are, as many as it takes to wrap: 131072 times 2^14 is 2^31. And a c that wraps.
static void i8_wraps(th *h, const void *param) {
    (void)param;
    int64_t m = 3, n = 2, k = 131077;
    gemm_layout tight = {0};
    lls_tensor a = gemm_matrix(h, LLS_I8, 0, m, k, tight, i8_min), b = gemm_matrix(h, LLS_I8, 0, k, n, tight, i8_min),
               c = gemm_matrix(h, LLS_I32, 0, m, n, tight, i32_max);
    lls_tensor out = th_output(h, "out", LLS_I32, 2, (int64_t[]){m, n}, NULL, 0),
               sum = th_output(h, "sum", LLS_I32, 2, (int64_t[]){m, n}, NULL, 0);
    lls_gemm_args args = gemm_args_of(h, &a, &b, &out);
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    a.shape[1] = 1, b.shape[0] = 1;
    args = gemm_args_of(h, &a, &b, &sum), args.c = &c, args.beta = 1;
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    for (int64_t i = 0; i < m * n; i++) {
        th_expect_near(h, &out, i, 131077.0 * 16384 - 0x1p32, 0);
        th_expect_near(h, &sum, i, INT32_MAX + 16384.0 - 0x1p32, 0);
    }
}

static void i8_zero_sizes(th *h, const void *param) {
    (void)param;
    static const int64_t sizes[][3] = {{0, 8, 8}, {8, 0, 8}, {8, 8, 0}};
    gemm_layout tight = {0};
    for (int s = 0; s < 3; s++) {
        for (int beta = 0; beta < 2; beta++) {
            lls_tensor a = gemm_matrix(h, LLS_I8, 0, sizes[s][0], sizes[s][2], tight, gemm_i8_of_a),
                       b = gemm_matrix(h, LLS_I8, 0, sizes[s][2], sizes[s][1], tight, gemm_i8_of_b),
                       out = gemm_matrix(h, LLS_I32, 0, sizes[s][0], sizes[s][1], tight, gemm_three);
            th_also_output(h, "out", &out, 0);
            lls_gemm_args args = gemm_args_of(h, &a, &b, &out);
            args.beta = (float)beta, args.c = &out;
            if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
            if (s == 2) th_expect_near(h, &out, 63, 3 * beta, 0);
        }
    }
}

static const gemm_product
    g01_odd_f16 = {.m = 65, .n = 65, .k = 33, .in = LLS_F16, .out = LLS_F16},
    g01_odd_f32 = {.m = 65, .n = 65, .k = 33, .in = LLS_F32, .out = LLS_F32},
    g01_odd_bf16 = {.m = 65, .n = 65, .k = 33, .in = LLS_BF16, .out = LLS_F32, .o = {.transposed = true}},
    g01_even_f16 = {.m = 128, .n = 128, .k = 64, .in = LLS_F16, .out = LLS_F32},
    g01_even_bf16 = {.m = 128, .n = 128, .k = 64, .in = LLS_BF16, .out = LLS_BF16},
    strided_f32 = {.in = LLS_F32, .out = LLS_F32}, strided_f16 = {.in = LLS_F16, .out = LLS_F16},
    strided_bf16 = {.in = LLS_BF16, .out = LLS_F32}, strided_i8 = {.in = LLS_I8, .out = LLS_I32},
    g03_i8 = {.m = 17, .n = 129, .k = 65, .in = LLS_I8, .out = LLS_I32, .alpha = 1, .exact = true},
    g03_i8_transposed = {.m = 3,
                         .n = 430,
                         .k = 1440,
                         .in = LLS_I8,
                         .out = LLS_I32,
                         .alpha = 1,
                         .exact = true,
                         .a = {.transposed = true, .pad = 3, .shifted = true},
                         .b = {.transposed = true, .pad = 3, .shifted = true}};

static const th_case cases[] = {
    {"G01 65x65x33 f16", g01, &g01_odd_f16, false},
    {"G01 65x65x33 f32", g01, &g01_odd_f32, false},
    {"G01 65x65x33 bf16->f32 column-major", g01, &g01_odd_bf16, false},
    {"G01 128x128x64 f16->f32", g01, &g01_even_f16, false},
    {"G01 128x128x64 bf16", g01, &g01_even_bf16, false},
    {"G02 zero sizes", g02, NULL, false},
    {"both axes strided f32", both_axes_strided, &strided_f32, false},
    {"both axes strided f16", both_axes_strided, &strided_f16, false},
    {"both axes strided bf16->f32", both_axes_strided, &strided_bf16, false},
    {"both axes strided i8", both_axes_strided, &strided_i8, false},
    {"G03 17x129x65 i8", g03, &g03_i8, false},
    {"G03 3x430x1440 i8 transposed", g03, &g03_i8_transposed, false},
    {"i8 sums wrap", i8_wraps, NULL, false},
    {"G02 zero sizes i8", i8_zero_sizes, NULL, false},
    {"expanded axes: a bias as c", expanded_axes, NULL, false},
    {"rows are independent", rows_are_independent, NULL, false},
    {"Q01 scales of 0", gemm_scales_of_zero, NULL, false},
    {"block scales by hand", gemm_block_scales_by_hand, NULL, false},
    {"activations by hand", gemm_activations, NULL, false},
    {"gated pairs by hand", gemm_gated_pairs, NULL, false},
    {"c and residual in place", gemm_everything_in_place, NULL, false},
    {"past 2^31 elements", gemm_past_2_31_elements, NULL, true},
    {"errors", gemm_errors, NULL, false},
    {"errors of i8", gemm_errors_of_i8, NULL, false},
    {"errors of scales", gemm_errors_of_scales, NULL, false},
    {"errors of epilogues", gemm_errors_of_epilogues, NULL, false},
    {"errors of pointers", gemm_errors_of_pointers, NULL, false},
    {"errors of configurations", gemm_errors_of_configs, NULL, false},
};

const th_suite th_suite_gemm = {"gemm", cases, sizeof cases / sizeof *cases, generate};
