/* gemm: known faults G01, G02, G03, all transposes, strides and dtypes, batches with broadcast, alpha and beta, in
 * place, sizes past the grid limits, exact int8 products, errors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/tensor.h"
#include "harness/harness.h"

/* How one operand lies in memory. */
typedef struct layout {
    bool transposed; // columns are contiguous
    int64_t pad;     // elements between the contiguous rows (or columns): the harness fills them with NaN
    bool shifted;    // starts one element into its buffer: aligned to the element and no further
    bool broadcast;  // stride 0 along the batch
} layout;

typedef double fill_fn(int64_t i, const void *user);

// A matrix [rows, cols], or [batch, rows, cols] for batch > 0. fill NULL: normal numbers.
static lls_tensor matrix(th *h, lls_dtype dtype, int64_t batch, int64_t rows, int64_t cols, layout l, fill_fn *fill) {
    int64_t extra = l.shifted, r = rows + (l.transposed ? extra : 0), c = cols + (l.transposed ? 0 : extra),
            ld = (l.transposed ? r : c) + l.pad;
    int64_t shape[] = {batch, r, c}, stride[] = {l.broadcast ? 0 : ld * (l.transposed ? c : r) + l.pad,
                                                 l.transposed ? 1 : ld, l.transposed ? ld : 1};
    int32_t skip = batch == 0;
    lls_tensor t = fill ? th_filled(h, dtype, 3 - skip, shape + skip, stride + skip, fill, NULL)
                        : th_normal(h, dtype, 3 - skip, shape + skip, stride + skip, 1);
    t.data = lls__at(&t, extra);
    t.shape[1 - skip] = rows, t.shape[2 - skip] = cols;
    return t;
}

// The index that matrix() gave to fill() for element (row, col).
static int64_t fill_index(int64_t rows, int64_t cols, layout l, int64_t row, int64_t col) {
    (void)rows;
    return l.transposed ? (row + l.shifted) * cols + col : row * (cols + l.shifted) + col + l.shifted;
}

static double poison(int64_t i, const void *user) {
    (void)user;
    return i % 2 ? NAN : INFINITY;
}

static double one(int64_t i, const void *user) {
    (void)i, (void)user;
    return 1;
}

static double three(int64_t i, const void *user) {
    (void)i, (void)user;
    return 3;
}

static double hash9_of_b(int64_t i, const void *user) {
    return th_hash9(i + 7919, user);
}

// All of int8, -128 included.
static double i8_of_a(int64_t i, const void *user) {
    return 64 * th_hash(i, user);
}

static double i8_of_b(int64_t i, const void *user) {
    return 64 * th_hash(i + 7919, user);
}

// All of int32 but its lowest bits.
static double i32_of_c(int64_t i, const void *user) {
    return 0x1p30 * th_hash(i, user) + 0x1p22 * (th_hash(i + 101, user) + 2);
}

static lls_gemm_args args_of(const th *h, const lls_tensor *a, const lls_tensor *b, const lls_tensor *out) {
    lls_gemm_args args = LLS_GEMM_ARGS_INIT;
    args.a = a, args.b = b, args.out = out, args.variant = h->variant;
    return args;
}

typedef struct params {
    int64_t batch, m, n, k;
    lls_dtype in, out;
    layout a, b, c, o;
    float alpha, beta;
    bool in_place; // c is out
} params;

static void describe(const params *p, const char *prefix, char *name, size_t size) {
    snprintf(name, size, "%s %lldx%lldx%lld batch %lld %s->%s %c%c%c pad %lld%s a %g b %g%s%s%s%s", prefix,
             (long long)p->m, (long long)p->n, (long long)p->k, (long long)p->batch, lls_dtype_name(p->in),
             lls_dtype_name(p->out), p->a.transposed ? 'T' : 'N', p->b.transposed ? 'T' : 'N',
             p->o.transposed ? 'T' : 'N', (long long)p->a.pad, p->a.shifted ? " shifted" : "", (double)p->alpha,
             (double)p->beta, p->in_place ? " in place" : "", p->a.broadcast ? " one a" : "",
             p->b.broadcast ? " one b" : "", p->c.broadcast ? " one c" : "");
}

static void random_case(th *h, const void *param) {
    const params *p = param;
    th_poison_workspace(h, 1 << 20);
    bool i8 = p->in == LLS_I8;
    fill_fn *fill_c = i8 ? i32_of_c : NULL;
    lls_tensor a = matrix(h, p->in, p->batch, p->m, p->k, p->a, i8 ? i8_of_a : NULL),
               b = matrix(h, p->in, p->batch, p->k, p->n, p->b, i8 ? i8_of_b : NULL), c;
    lls_tensor out = matrix(h, p->out, p->batch, p->m, p->n, p->o, p->in_place || i8 ? fill_c : poison);
    th_also_output(h, "out", &out, i8 ? 0 : th_tol(p->out));
    lls_gemm_args args = args_of(h, &a, &b, &out);
    args.alpha = p->alpha, args.beta = p->beta;
    if (p->in_place) args.c = &out;
    else if (p->beta != 0) c = matrix(h, p->out, p->batch, p->m, p->n, p->c, fill_c), args.c = &c;
    th_ok(h, lls_gemm(h->ctx, &args, h->stream));
}

static void run_random(th *h, params p) {
    char name[192];
    describe(&p, "random", name, sizeof name);
    th_run_case(h, name, random_case, &p);
}

// On the oracle's side: the product in int64, straight from the fill functions.
static void check_integers(th *h, const params *p, const lls_tensor *out) {
    int *a = malloc((size_t)(p->m * p->k + p->k * p->n) * sizeof *a), *b = a + p->m * p->k;
    for (int64_t row = 0; row < p->m; row++) {
        for (int64_t k = 0; k < p->k; k++)
            a[row * p->k + k] = (int)th_hash9(fill_index(p->m, p->k, p->a, row, k), NULL);
    }
    for (int64_t col = 0; col < p->n; col++) {
        for (int64_t k = 0; k < p->k; k++)
            b[col * p->k + k] = (int)hash9_of_b(fill_index(p->k, p->n, p->b, k, col), NULL);
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
    const params *p = param;
    lls_tensor a = matrix(h, p->in, 0, p->m, p->k, p->a, th_hash9),
               b = matrix(h, p->in, 0, p->k, p->n, p->b, hash9_of_b);
    lls_tensor out = matrix(h, p->out, 0, p->m, p->n, p->o, p->out == LLS_I32 ? three : poison);
    th_also_output(h, "out", &out, 0); // fp32 sums of these integers are exact, so every dtype rounds once
    lls_gemm_args args = args_of(h, &a, &b, &out);
    if (th_ok(h, lls_gemm(h->ctx, &args, h->stream)) && th_is_reference(h)) check_integers(h, p, &out);
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
                    layout l = {.pad = 3 * loose, .shifted = loose}, a = l, b = l, o = l;
                    a.transposed = t & 1, b.transposed = t & 2, o.transposed = loose && t == 3;
                    params p = {.m = sizes[s][0],
                                .n = sizes[s][1],
                                .k = sizes[s][2],
                                .in = dtypes[d].in,
                                .out = dtypes[d].out,
                                .a = a,
                                .b = b,
                                .o = o,
                                .alpha = 1};
                    char name[192];
                    describe(&p, "G03", name, sizeof name);
                    th_run_case(h, name, g03, &p);
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
                layout a = {.transposed = t & 1, .pad = turn % 3, .shifted = turn % 2}, b = a, o = {0}, c = {0};
                b.transposed = t & 2, o.transposed = turn / 4 % 3 == 0, c.transposed = turn % 7 == 0;
                run_random(h, (params){.m = ms[i],
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
        params p = {.batch = 3, .m = 9, .n = 33, .k = 70, .in = LLS_I8, .out = LLS_I32, .alpha = 1, .beta = 1};
        p.a.broadcast = bits & 1, p.b.broadcast = bits & 2, p.c.broadcast = bits & 4, p.b.transposed = bits & 1;
        run_random(h, p);
    }
    params several_tiles = {.m = 300, .n = 530, .k = 1300, .in = LLS_I8, .out = LLS_I32, .alpha = 1, .beta = 1},
           grid_limit = {.m = 600000, .n = 1, .k = 2, .in = LLS_I8, .out = LLS_I32, .alpha = 1};
    run_random(h, several_tiles);
    several_tiles.b.transposed = true, several_tiles.in_place = true;
    run_random(h, several_tiles);
    run_random(h, grid_limit);
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
            run_random(h, (params){.m = ms[i],
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
            params p = {.batch = mode / 3 * 3,
                        .m = 19,
                        .n = 45,
                        .k = 37,
                        .in = dtypes[d].in,
                        .out = dtypes[d].out,
                        .c = {.transposed = mode % 3 == 2, .pad = 2},
                        .alpha = scales[s][0],
                        .beta = scales[s][1],
                        .in_place = mode % 3 == 1};
            run_random(h, p);
        }
    }
    for (int bits = 1; bits < 8; bits++) {
        params p = {.batch = 5, .m = 9, .n = 33, .k = 20, .in = LLS_F16, .out = LLS_F32, .alpha = 1, .beta = 1};
        p.a.broadcast = bits & 1, p.b.broadcast = bits & 2, p.c.broadcast = bits & 4, p.b.transposed = bits & 1;
        run_random(h, p);
    }
    for (int d = 0; d < NUM_DTYPES; d++) { // several tiles each way
        for (int t = 0; t < 2; t++) {
            run_random(h, (params){.m = 300,
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
    run_random(
        h, (params){.m = 1, .n = 3000, .k = 700, .in = LLS_F16, .out = LLS_F16, .b = {.transposed = true}, .alpha = 1});
    run_random(h, (params){.m = 3000, .n = 1, .k = 700, .in = LLS_BF16, .out = LLS_BF16, .alpha = 1});
    // Past the limits of a CUDA grid: 65535 * 8 rows, 65535 matrices.
    run_random(h, (params){.m = 600000, .n = 1, .k = 2, .in = LLS_F32, .out = LLS_F32, .alpha = 1});
    run_random(h, (params){.m = 1, .n = 600000, .k = 2, .in = LLS_F16, .out = LLS_F16, .alpha = 1});
    run_random(h, (params){.batch = 70000,
                           .m = 1,
                           .n = 2,
                           .k = 3,
                           .in = LLS_BF16,
                           .out = LLS_F32,
                           .alpha = 1,
                           .b = {.broadcast = true}});
}

// G01: beta = 0 must not read c, alpha = 0 must not read a and b; in the partial tiles too.
static void g01(th *h, const void *param) {
    const params *p = param;
    lls_tensor a = matrix(h, p->in, 0, p->m, p->k, p->a, one), b = matrix(h, p->in, 0, p->k, p->n, p->b, one),
               nan = matrix(h, p->in, 0, p->m, p->k, p->a, poison);
    lls_tensor product = matrix(h, p->out, 0, p->m, p->n, p->o, poison),
               zero = matrix(h, p->out, 0, p->m, p->n, p->o, poison);
    lls_tensor twice = matrix(h, p->out, 0, p->m, p->n, p->o, three);
    th_also_output(h, "product", &product, 0), th_also_output(h, "zero", &zero, 0),
        th_also_output(h, "twice", &twice, 0);
    lls_gemm_args args = args_of(h, &a, &b, &product);
    args.c = &product; // beta is 0: its NaN and infinities must not spread
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    args = args_of(h, &nan, &b, &zero);
    args.alpha = 0, args.c = &zero;
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    args = args_of(h, &nan, &b, &twice);
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
                lls_tensor a = matrix(h, LLS_F16, batch, sizes[s][0], sizes[s][2], (layout){0}, one),
                           b = matrix(h, LLS_F16, batch, sizes[s][2], sizes[s][1], (layout){0}, one);
                lls_tensor out = matrix(h, LLS_F16, batch, sizes[s][0], sizes[s][1], (layout){0}, three);
                th_also_output(h, "out", &out, 0);
                lls_gemm_args args = args_of(h, &a, &b, &out);
                args.beta = (float)beta, args.c = &out;
                if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
                if (s == 2) th_expect_near(h, &out, 63, 3 * beta, 0);
            }
        }
    }
    lls_tensor none = matrix(h, LLS_F32, 3, 4, 4, (layout){0}, one),
               out = matrix(h, LLS_F32, 3, 4, 4, (layout){0}, three);
    none.shape[0] = out.shape[0] = 0; // an empty batch of matrices
    th_also_output(h, "empty batch", &out, 0);
    lls_gemm_args args = args_of(h, &none, &none, &out);
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    lls_tensor a = matrix(h, LLS_F16, 0, 8, 8, (layout){0}, NULL), b = matrix(h, LLS_F16, 0, 8, 8, (layout){0}, NULL);
    lls_tensor next = th_output(h, "next", LLS_F16, 2, (int64_t[]){8, 8}, NULL, 2e-3);
    args = args_of(h, &a, &b, &next);
    th_ok(h, lls_gemm(h->ctx, &args, h->stream));
}

// Neither axis contiguous: every other row and every third column of larger buffers.
static void both_axes_strided(th *h, const void *param) {
    const params *p = param;
    int64_t a_shape[] = {17, 40}, a_stride[] = {250, 3}, b_shape[] = {40, 35}, b_stride[] = {2, 90},
            out_shape[] = {17, 35}, out_stride[] = {200, 4};
    lls_tensor a = th_normal(h, p->in, 2, a_shape, a_stride, 1), b = th_normal(h, p->in, 2, b_shape, b_stride, 1),
               c = th_normal(h, p->out, 2, out_shape, NULL, 1);
    lls_tensor out = th_output(h, "out", p->out, 2, out_shape, out_stride, th_tol(p->out));
    lls_gemm_args args = args_of(h, &a, &b, &out);
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
    lls_gemm_args args = args_of(h, &a, &b, &out);
    args.c = &bias, args.beta = 1;
    th_ok(h, lls_gemm(h->ctx, &args, h->stream));
}

// A row's bits depend neither on how many other rows there are nor on where it lies among them.
static void rows_are_independent(th *h, const void *param) {
    (void)param;
    int64_t m = 100, n = 70, k = 700;
    lls_tensor a = matrix(h, LLS_F32, 0, m, k, (layout){0}, NULL), b = matrix(h, LLS_F32, 0, k, n, (layout){0}, NULL);
    lls_tensor all = th_output(h, "all", LLS_F32, 2, (int64_t[]){m, n}, NULL, 1e-5);
    lls_gemm_args args = args_of(h, &a, &b, &all);
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    for (int64_t row = 0; row < m; row += 33) {
        lls_tensor one_row = a, out = th_output(h, "one row", LLS_F32, 2, (int64_t[]){1, n}, NULL, 1e-5), same = all;
        one_row.data = lls__at(&a, row * k), one_row.shape[0] = 1;
        same.data = lls__at(&all, row * n), same.shape[0] = 1;
        args = args_of(h, &one_row, &b, &out);
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
    layout tight = {0};
    lls_tensor a = matrix(h, LLS_I8, 0, m, k, tight, i8_min), b = matrix(h, LLS_I8, 0, k, n, tight, i8_min),
               c = matrix(h, LLS_I32, 0, m, n, tight, i32_max);
    lls_tensor out = th_output(h, "out", LLS_I32, 2, (int64_t[]){m, n}, NULL, 0),
               sum = th_output(h, "sum", LLS_I32, 2, (int64_t[]){m, n}, NULL, 0);
    lls_gemm_args args = args_of(h, &a, &b, &out);
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    a.shape[1] = 1, b.shape[0] = 1;
    args = args_of(h, &a, &b, &sum), args.c = &c, args.beta = 1;
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    for (int64_t i = 0; i < m * n; i++) {
        th_expect_near(h, &out, i, 131077.0 * 16384 - 0x1p32, 0);
        th_expect_near(h, &sum, i, INT32_MAX + 16384.0 - 0x1p32, 0);
    }
}

static void i8_zero_sizes(th *h, const void *param) {
    (void)param;
    static const int64_t sizes[][3] = {{0, 8, 8}, {8, 0, 8}, {8, 8, 0}};
    layout tight = {0};
    for (int s = 0; s < 3; s++) {
        for (int beta = 0; beta < 2; beta++) {
            lls_tensor a = matrix(h, LLS_I8, 0, sizes[s][0], sizes[s][2], tight, i8_of_a),
                       b = matrix(h, LLS_I8, 0, sizes[s][2], sizes[s][1], tight, i8_of_b),
                       out = matrix(h, LLS_I32, 0, sizes[s][0], sizes[s][1], tight, three);
            th_also_output(h, "out", &out, 0);
            lls_gemm_args args = args_of(h, &a, &b, &out);
            args.beta = (float)beta, args.c = &out;
            if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
            if (s == 2) th_expect_near(h, &out, 63, 3 * beta, 0);
        }
    }
}

static void expect(th *h, lls_gemm_args args, lls_status status, const char *part) {
    th_expect_error(h, lls_gemm(h->ctx, &args, h->stream), status, part);
}

static void errors(th *h, const void *param) {
    (void)param;
    layout tight = {0};
    lls_tensor a = matrix(h, LLS_F16, 0, 4, 8, tight, NULL), b = matrix(h, LLS_F16, 0, 8, 6, tight, NULL),
               out = matrix(h, LLS_F16, 0, 4, 6, tight, three);
    lls_tensor out32 = matrix(h, LLS_F32, 0, 4, 6, tight, three), batched = matrix(h, LLS_F16, 2, 4, 8, tight, NULL),
               batched_b = matrix(h, LLS_F16, 3, 8, 6, tight, NULL);
    th_also_output(h, "out", &out, 0), th_also_output(h, "out32", &out32, 0);
    lls_gemm_args good = args_of(h, &a, &b, &out), bad;

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

static void i8_errors(th *h, const void *param) {
    (void)param;
    layout tight = {0};
    lls_tensor a = matrix(h, LLS_I8, 0, 4, 8, tight, i8_of_a), b = matrix(h, LLS_I8, 0, 8, 6, tight, i8_of_b),
               half_b = matrix(h, LLS_F16, 0, 8, 6, tight, NULL), c = matrix(h, LLS_I32, 0, 4, 6, tight, three);
    lls_tensor out = matrix(h, LLS_I32, 0, 4, 6, tight, three), out32 = matrix(h, LLS_F32, 0, 4, 6, tight, three),
               half_a = matrix(h, LLS_F16, 0, 4, 8, tight, NULL);
    th_also_output(h, "out", &out, 0), th_also_output(h, "out32", &out32, 0);
    lls_gemm_args good = args_of(h, &a, &b, &out), bad;
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

static const params g01_odd_f16 = {.m = 65, .n = 65, .k = 33, .in = LLS_F16, .out = LLS_F16},
                    g01_odd_f32 = {.m = 65, .n = 65, .k = 33, .in = LLS_F32, .out = LLS_F32},
                    g01_odd_bf16 =
                        {.m = 65, .n = 65, .k = 33, .in = LLS_BF16, .out = LLS_F32, .o = {.transposed = true}},
                    g01_even_f16 = {.m = 128, .n = 128, .k = 64, .in = LLS_F16, .out = LLS_F32},
                    g01_even_bf16 = {.m = 128, .n = 128, .k = 64, .in = LLS_BF16, .out = LLS_BF16},
                    strided_f32 = {.in = LLS_F32, .out = LLS_F32}, strided_f16 = {.in = LLS_F16, .out = LLS_F16},
                    strided_bf16 = {.in = LLS_BF16, .out = LLS_F32}, strided_i8 = {.in = LLS_I8, .out = LLS_I32},
                    g03_i8 = {.m = 17, .n = 129, .k = 65, .in = LLS_I8, .out = LLS_I32},
                    g03_i8_transposed = {.m = 3,
                                         .n = 430,
                                         .k = 1440,
                                         .in = LLS_I8,
                                         .out = LLS_I32,
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
    {"errors", errors, NULL, false},
    {"errors of i8", i8_errors, NULL, false},
};

const th_suite th_suite_gemm = {"gemm", cases, sizeof cases / sizeof *cases, generate};
