/* rope: known faults R01, R02, R04, G02 (zero sizes); both styles, partial rotary, strides, in place, two tensors,
 * scalings, the caller's tables, errors. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/tensor.h"

#include "harness/harness.h"

static lls_rope_args base_args(const th *h, const lls_tensor *x, const lls_tensor *positions, const lls_tensor *out) {
    lls_rope_args args = LLS_ROPE_ARGS_INIT;
    args.x = x, args.positions = positions, args.out = out, args.variant = h->variant;
    return args;
}

static double one_to_eight(int64_t i, const void *user) {
    (void)user;
    return (double)(i % 8 + 1);
}

// R01: frequencies and the partner's distance come from rotary_dim, not from head_dim; the two styles differ; the tail
// is copied as it is.
static void r01(th *h, const void *param) {
    (void)param;
    static const double want[2][8] = {{-1.413353, 1.879118, -2.828857, 4.058191, 5, 6, 7, 8},
                                      {-1.272233, -1.838865, 2.878668, 4.088187, 5, 6, 7, 8}};
    int64_t shape[] = {1, 1, 8};
    int32_t three = 3;
    lls_tensor positions = th_data(h, LLS_I32, 1, shape, &three);
    for (int style = 0; style < 2; style++) {
        lls_tensor x = th_filled(h, LLS_F32, 3, shape, NULL, one_to_eight, NULL);
        lls_tensor out = th_output(h, style ? "interleaved" : "half-split", LLS_F32, 3, shape, NULL, 1e-5);
        lls_rope_args args = base_args(h, &x, &positions, &out);
        args.rotary_dim = 4, args.theta = 1e4f, args.style = style ? LLS_ROPE_GPTJ : LLS_ROPE_NEOX;
        if (!th_ok(h, lls_rope(h->ctx, &args, h->stream))) return;
        for (int i = 0; i < 8; i++) th_expect_near(h, &out, i, want[style][i], i < 4 ? 1e-6 : 0);
    }
}

typedef struct partial {
    int64_t tokens, heads, head_dim;
    int32_t rotary_dim;
    lls_rope_style style;
} partial;

// R01, many heads: positions 0 to 2355, the tail bit for bit.
static void r01_many(th *h, const void *param) {
    const partial *p = param;
    int64_t shape[] = {p->tokens, p->heads, p->head_dim};
    static int32_t positions_host[2560];
    for (int i = 0; i < p->tokens; i++) positions_host[i] = i % 2356;
    lls_tensor positions = th_data(h, LLS_I32, 1, shape, positions_host);
    lls_tensor x = th_filled(h, LLS_F16, 3, shape, NULL, th_hash, NULL),
               out = th_output(h, "out", LLS_F16, 3, shape, NULL, th_tol(LLS_F16));
    lls_rope_args args = base_args(h, &x, &positions, &out);
    args.rotary_dim = p->rotary_dim, args.style = p->style;
    if (!th_ok(h, lls_rope(h->ctx, &args, h->stream))) return;
    for (int64_t row = 0; row < p->tokens * p->heads; row += p->tokens * p->heads - 1) {
        for (int64_t i = row * p->head_dim + p->rotary_dim; i < (row + 1) * p->head_dim; i++)
            th_expect_near(h, &out, i, th_hash(i, NULL), 0);
    }
}

static void expect_frequency(th *h, const double *inv_freq, int i, double want, double tol) {
    if (!(fabs(inv_freq[i] - want) <= tol * want))
        th_fail(h, "inv_freq[%d] is %.9g, expected %.9g", i, inv_freq[i], want);
}

// R02: Llama 3's scaling interpolates frequencies, not wavelengths.
static void r02(th *h, const void *param) {
    (void)param;
    double inv_freq[LLS_ROPE_MAX_PAIRS];
    float magnitude;
    lls_rope_args args = LLS_ROPE_ARGS_INIT;
    args.rotary_dim = 128, args.theta = 5e5f;
    args.scaling = (lls_rope_scaling){.type = LLS_ROPE_SCALING_LLAMA3,
                                      .factor = 8,
                                      .low_freq_factor = 1,
                                      .high_freq_factor = 4,
                                      .original_context = 8192};
    if (lls_rope_frequencies(&args, inv_freq, &magnitude)) th_fail(h, "%s", lls_last_error());
    static const struct {
        int i;
        double want;
    } rows[] = {{28, 3.211446e-3}, {29, 2.166571e-3}, {30, 1.371894e-3},
                {32, 5.248462e-4}, {34, 1.785078e-4}, {35, 9.556212e-5}};
    for (int i = 0; i < 6; i++) expect_frequency(h, inv_freq, rows[i].i, rows[i].want, 5e-7);
    if (magnitude != 1) th_fail(h, "magnitude is %g, expected 1", (double)magnitude);

    int64_t shape[] = {3, 2, 128};
    lls_tensor positions = th_data(h, LLS_I32, 1, shape, (int32_t[]){1, 8191, 131071});
    lls_tensor x = th_normal(h, LLS_F32, 3, shape, NULL, 1), out = th_output(h, "out", LLS_F32, 3, shape, NULL, 1e-5);
    args.x = &x, args.positions = &positions, args.out = &out, args.variant = h->variant;
    th_ok(h, lls_rope(h->ctx, &args, h->stream));
}

// YaRN, for head_dim 128, theta 1e6, factor 4 of 32768: values of the published formula. Pairs to 23 keep their
// frequency, pairs from 40 are divided.
static void yarn(th *h, const void *param) {
    (void)param;
    double inv_freq[LLS_ROPE_MAX_PAIRS];
    float magnitude;
    lls_rope_args args = LLS_ROPE_ARGS_INIT;
    args.rotary_dim = 128, args.theta = 1e6f;
    args.scaling = (lls_rope_scaling){.type = LLS_ROPE_SCALING_YARN, .factor = 4, .original_context = 32768};
    if (lls_rope_frequencies(&args, inv_freq, &magnitude)) th_fail(h, "%s", lls_last_error());
    static const struct {
        int i;
        double want;
    } rows[] = {{0, 1},
                {23, 6.978305849e-3},
                {24, 5.375321491e-3},
                {30, 1.064360981e-3},
                {39, 6.490394321e-5},
                {40, 4.445698525e-5},
                {63, 3.102344402e-7}};
    for (int i = 0; i < 7; i++) expect_frequency(h, inv_freq, rows[i].i, rows[i].want, 1e-9);
    if (fabs(magnitude - 1.138629436) > 1e-6) th_fail(h, "magnitude is %.9g, expected 1.138629436", (double)magnitude);

    // Position 0 does not turn, but yarn scales.
    int64_t shape[] = {2, 2, 128};
    lls_tensor positions = th_data(h, LLS_I32, 1, shape, (int32_t[]){0, 40000});
    lls_tensor x = th_constant(h, LLS_F32, 3, shape, NULL, 1), out = th_output(h, "out", LLS_F32, 3, shape, NULL, 1e-5);
    args.x = &x, args.positions = &positions, args.out = &out, args.variant = h->variant;
    if (!th_ok(h, lls_rope(h->ctx, &args, h->stream))) return;
    th_expect_near(h, &out, 5, 1.138629436, 1e-6);

    lls_tensor plain = th_output(h, "attention_factor 1", LLS_F32, 3, shape, NULL, 1e-5);
    args.scaling.attention_factor = 1, args.out = &plain;
    if (!th_ok(h, lls_rope(h->ctx, &args, h->stream))) return;
    th_expect_near(h, &plain, 5, 1, 1e-6);
}

static void linear_and_factors(th *h, const void *param) {
    (void)param;
    double inv_freq[LLS_ROPE_MAX_PAIRS];
    float magnitude, factors[] = {1, 2, 4, 0.5f};
    lls_rope_args args = LLS_ROPE_ARGS_INIT;
    args.rotary_dim = 8, args.theta = 1e4f, args.freq_factors = factors;
    args.scaling = (lls_rope_scaling){.type = LLS_ROPE_SCALING_LINEAR, .factor = 4};
    if (lls_rope_frequencies(&args, inv_freq, &magnitude)) th_fail(h, "%s", lls_last_error());
    for (int i = 0; i < 4; i++) expect_frequency(h, inv_freq, i, pow(10, -i) / 4 / (double)factors[i], 1e-12);
    int64_t shape[] = {2, 3, 8};
    lls_tensor positions = th_data(h, LLS_I32, 1, shape, (int32_t[]){7, 4096});
    lls_tensor x = th_normal(h, LLS_BF16, 3, shape, NULL, 1), out = th_output(h, "out", LLS_BF16, 3, shape, NULL, 1e-2);
    args.x = &x, args.positions = &positions, args.out = &out, args.variant = h->variant;
    th_ok(h, lls_rope(h->ctx, &args, h->stream));
}

static double unit(int64_t i, const void *second) {
    return i % 32 == *(const int64_t *)second ? 1 : 0;
}

// R04: neither position nor angle in half precision; exact at positions far beyond any table.
static void r04(th *h, const void *param) {
    (void)param;
    int64_t shape[] = {6, 1, 32}, pair0 = 0, pair1 = 1;
    lls_tensor positions = th_data(h, LLS_I32, 1, shape, (int32_t[]){1857, 131071, 257, -1, INT32_MAX, INT32_MIN});
    lls_tensor x0 = th_filled(h, LLS_F32, 3, shape, NULL, unit, &pair0),
               x1 = th_filled(h, LLS_F32, 3, shape, NULL, unit, &pair1);
    lls_tensor out0 = th_output(h, "pair 0", LLS_F32, 3, shape, NULL, 1e-5),
               out1 = th_output(h, "pair 1", LLS_F32, 3, shape, NULL, 1e-5);
    lls_rope_args args = base_args(h, &x0, &positions, &out0);
    args.theta = 1e4f;
    if (!th_ok(h, lls_rope(h->ctx, &args, h->stream))) return;
    args.x = &x1, args.out = &out1;
    if (!th_ok(h, lls_rope(h->ctx, &args, h->stream))) return;
    th_expect_near(h, &out1, 0 * 32 + 1, 0.306693, 3e-6);
    th_expect_near(h, &out0, 1 * 32, -0.817983, 1e-6);
    th_expect_near(h, &out0, 1 * 32 + 16, -0.575242, 1e-6);
    th_expect_near(h, &out0, 2 * 32, cos(257), 1e-6);
    th_expect_near(h, &out0, 3 * 32 + 16, sin(-1), 1e-6);
    th_expect_near(h, &out0, 4 * 32, cos(2147483647.0), 3e-6);
    th_expect_near(h, &out0, 5 * 32 + 16, sin(-2147483648.0), 3e-6);
}

typedef struct params {
    int64_t tokens, heads, heads2, head_dim;
    int32_t rotary_dim;
    lls_dtype dtype;
    lls_rope_style style;
    bool in_place, packed;
} params;

// Queries and keys, either on their own or as slices of one packed [tokens, (heads + 2 * heads2) * head_dim]
// projection.
static void random_case(th *h, const void *param) {
    const params *p = param;
    double tol = th_tol(p->dtype);
    int64_t row = (p->heads + 2 * p->heads2) * p->head_dim + 3;
    int64_t q_shape[] = {p->tokens, p->heads, p->head_dim}, k_shape[] = {p->tokens, p->heads2, p->head_dim},
            qkv_shape[] = {p->tokens, row};
    static int32_t positions_host[300];
    for (int i = 0; i < p->tokens; i++) positions_host[i] = (i * 7919) % 200000;
    lls_tensor positions = th_data(h, LLS_I32, 1, q_shape, positions_host);
    lls_tensor q, k = {0}, q_out, k_out;
    if (p->packed) {
        lls_tensor qkv = th_normal(h, p->dtype, 2, qkv_shape, NULL, 1);
        q = lls_tensor_make(qkv.data, p->dtype, h->device, 3, q_shape), q.stride[0] = row;
        k = lls_tensor_make((char *)qkv.data + p->heads * p->head_dim * lls_dtype_block_bytes(p->dtype), p->dtype,
                            h->device, 3, k_shape),
        k.stride[0] = row;
        if (p->in_place) th_also_output(h, "qkv", &qkv, tol);
    } else {
        q = th_normal(h, p->dtype, 3, q_shape, NULL, 1);
        if (p->heads2) k = th_normal(h, p->dtype, 3, k_shape, NULL, 1);
        if (p->in_place) th_also_output(h, "q", &q, tol);
        if (p->in_place && p->heads2) th_also_output(h, "k", &k, tol);
    }
    q_out = p->in_place ? q
                        : th_output(h, "q_out", p->dtype, 3, q_shape,
                                    (int64_t[]){p->heads * (p->head_dim + 8) + 1, p->head_dim + 8, 1}, tol);
    k_out = p->in_place || !p->heads2 ? k : th_output(h, "k_out", p->dtype, 3, k_shape, NULL, tol);
    lls_rope_args args = base_args(h, &q, &positions, &q_out);
    if (p->heads2) args.x2 = &k, args.out2 = &k_out;
    args.rotary_dim = p->rotary_dim, args.style = p->style;
    th_ok(h, lls_rope(h->ctx, &args, h->stream));
}

/* How a caller's cosines and sines lie in memory. */
typedef enum table_layout {
    TWO_TABLES, // contiguous
    ONE_CACHE,  // halves of the rows of one table: both strides are twice the width
    ONE_ROW     // stride 0: every position turns by the same angles
} table_layout;

typedef struct table_params {
    int64_t tokens, heads, heads2, head_dim;
    int32_t rotary_dim;
    lls_dtype dtype, table_dtype;
    lls_rope_style style;
    table_layout layout;
    bool in_place, no_positions;
} table_params;

static void make_tables(th *h, lls_dtype dtype, int64_t rows, int64_t pairs, table_layout layout, lls_tensor *cos,
                        lls_tensor *sin) {
    int64_t shape[] = {rows, pairs}, cache_shape[] = {rows, 2 * pairs}, repeated[] = {0, 1};
    if (layout == ONE_CACHE) {
        *cos = th_normal(h, dtype, 2, cache_shape, NULL, 1);
        cos->shape[1] = pairs, *sin = *cos;
        sin->data = lls__at(cos, pairs);
    } else {
        *cos = th_normal(h, dtype, 2, shape, layout == ONE_ROW ? repeated : NULL, 1);
        *sin = th_normal(h, dtype, 2, shape, layout == ONE_ROW ? repeated : NULL, 1);
    }
}

static void random_tables(th *h, const void *param) {
    const table_params *p = param;
    double tol = th_tol(p->dtype);
    enum { ROWS = 300 };
    int64_t q_shape[] = {p->tokens, p->heads, p->head_dim}, k_shape[] = {p->tokens, p->heads2, p->head_dim};
    int32_t positions_host[ROWS], dim = p->rotary_dim ? p->rotary_dim : (int32_t)p->head_dim;
    for (int i = 0; i < ROWS; i++) positions_host[i] = (ROWS - 1 + i * 7919) % ROWS; // the last row first
    lls_tensor positions = th_data(h, LLS_I32, 1, q_shape, positions_host), cos, sin;
    make_tables(h, p->table_dtype, p->no_positions ? p->tokens : ROWS, dim / 2, p->layout, &cos, &sin);
    lls_tensor q = th_normal(h, p->dtype, 3, q_shape, NULL, 1), k = th_normal(h, p->dtype, 3, k_shape, NULL, 1),
               q_out = q, k_out = k;
    if (p->in_place) {
        th_also_output(h, "q", &q, tol), th_also_output(h, "k", &k, tol);
    } else {
        q_out = th_output(h, "q_out", p->dtype, 3, q_shape, NULL, tol);
        k_out = th_output(h, "k_out", p->dtype, 3, k_shape, NULL, tol);
    }
    lls_rope_args args = base_args(h, &q, p->no_positions ? NULL : &positions, &q_out);
    if (p->heads2) args.x2 = &k, args.out2 = &k_out;
    args.rotary_dim = p->rotary_dim, args.style = p->style, args.cos = &cos, args.sin = &sin;
    th_ok(h, lls_rope(h->ctx, &args, h->stream));
}

static void generate_tables(th *h) {
    static const struct {
        int64_t tokens, head_dim;
        int32_t rotary_dim;
    } sizes[] = {{1, 2, 0}, {7, 128, 0}, {260, 80, 20}, {7, 65, 34}, {3, 256, 0}};
    static const lls_dtype dtypes[] = {LLS_F32, LLS_F16, LLS_BF16};
    for (int d = 0; d < 3; d++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            for (int mode = 0; mode < 16; mode++) {
                bool wide = mode & 1, in_place = mode & 2, gptj = mode & 4, no_positions = mode & 8;
                table_params p = {.tokens = sizes[i].tokens,
                                  .heads = 3,
                                  .heads2 = in_place ? 2 : 0,
                                  .head_dim = sizes[i].head_dim,
                                  .rotary_dim = sizes[i].rotary_dim,
                                  .dtype = dtypes[d],
                                  .table_dtype = wide ? LLS_F32 : dtypes[d],
                                  .style = gptj ? LLS_ROPE_GPTJ : LLS_ROPE_NEOX,
                                  .layout = (table_layout)((i + (size_t)mode) % 3),
                                  .in_place = in_place,
                                  .no_positions = no_positions};
                char name[128];
                snprintf(name, sizeof name, "tables %lldx%lld rotary %d %s from %s %s layout %d%s%s",
                         (long long)p.tokens, (long long)p.head_dim, p.rotary_dim, lls_dtype_name(p.dtype),
                         lls_dtype_name(p.table_dtype), gptj ? "gptj" : "neox", (int)p.layout,
                         in_place ? " in place" : "", no_positions ? " by token" : "");
                th_run_case(h, name, random_tables, &p);
            }
        }
    }
}

static void generate(th *h) {
    static const struct {
        int64_t head_dim;
        int32_t rotary_dim;
    } dims[] = {{2, 0}, {64, 0}, {80, 20}, {96, 0}, {128, 0}, {256, 64}, {256, 0}, {320, 18}, {65, 34}};
    static const lls_dtype dtypes[] = {LLS_F32, LLS_F16, LLS_BF16};
    for (int d = 0; d < 3; d++) {
        for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
            for (int mode = 0; mode < 8; mode++) {
                bool packed = mode & 1, in_place = mode & 2, gptj = mode & 4;
                params p = {.tokens = i % 3 == 0   ? 1
                                      : i % 3 == 1 ? 7
                                                   : 260,
                            .heads = i % 2 ? 9 : 2,
                            .heads2 = packed || i % 2 ? 3 : 0,
                            .head_dim = dims[i].head_dim,
                            .rotary_dim = dims[i].rotary_dim,
                            .dtype = dtypes[d],
                            .style = gptj ? LLS_ROPE_GPTJ : LLS_ROPE_NEOX,
                            .in_place = in_place,
                            .packed = packed};
                char name[128];
                snprintf(name, sizeof name, "random %lldx(%lld+%lld)x%lld rotary %d %s %s%s%s", (long long)p.tokens,
                         (long long)p.heads, (long long)p.heads2, (long long)p.head_dim, p.rotary_dim,
                         lls_dtype_name(p.dtype), gptj ? "gptj" : "neox", packed ? " packed" : "",
                         in_place ? " in place" : "");
                th_run_case(h, name, random_case, &p);
            }
        }
    }
    generate_tables(h);
}

// Which row, which half, which sign: by hand.
static void table_values(th *h, const void *param) {
    (void)param;
    static const double want[2][2][6] = {{{-6.5, -11, 5.5, 13, 5, 6}, {-14.5, -21, -13.5, -19.5, 5, 6}},
                                         {{-4, 4.5, -9.5, 16.5, 5, 6}, {-11.5, -8, -27, -17.25, 5, 6}}};
    int64_t x_shape[] = {2, 1, 6}, table_shape[] = {3, 2};
    lls_tensor x = th_data(h, LLS_F32, 3, x_shape, (float[]){1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6});
    lls_tensor cos = th_data(h, LLS_F32, 2, table_shape, (float[]){-5.5f, -6, 99, 99, 1, 1.5f}),
               sin = th_data(h, LLS_F32, 2, table_shape, (float[]){3, 2.25f, 99, 99, 2.5f, 3.5f});
    lls_tensor positions = th_data(h, LLS_I32, 1, x_shape, (int32_t[]){2, 0});
    for (int style = 0; style < 2; style++) {
        lls_tensor out = th_output(h, style ? "interleaved" : "half-split", LLS_F32, 3, x_shape, NULL, 1e-6);
        lls_rope_args args = base_args(h, &x, &positions, &out);
        args.style = style ? LLS_ROPE_GPTJ : LLS_ROPE_NEOX, args.rotary_dim = 4, args.cos = &cos, args.sin = &sin;
        if (!th_ok(h, lls_rope(h->ctx, &args, h->stream))) return;
        for (int i = 0; i < 12; i++) th_expect_near(h, &out, i, want[style][i / 6][i % 6], 1e-6);
    }
}

static void bad_table_positions(th *h, const void *param) {
    (void)param;
    static const int32_t bad[] = {-1, 4, INT32_MAX, INT32_MIN};
    int64_t shape[] = {3, 2, 8}, table_shape[] = {4, 2};
    for (int i = 0; i < 4; i++) {
        lls_tensor x = th_normal(h, LLS_F16, 3, shape, NULL, 1), cos = th_constant(h, LLS_F32, 2, table_shape, NULL, 1),
                   sin = th_constant(h, LLS_F32, 2, table_shape, NULL, 0);
        lls_tensor positions = th_data(h, LLS_I32, 1, shape, (int32_t[]){3, bad[i], 0});
        lls_tensor out = th_output(h, "out", LLS_F16, 3, shape, NULL, -1);
        lls_rope_args args = base_args(h, &x, &positions, &out);
        args.rotary_dim = 4, args.cos = &cos, args.sin = &sin;
        lls_status status = lls_rope(h->ctx, &args, h->stream);
        if (h->device.type == LLS_CPU) {
            char part[64];
            snprintf(part, sizeof part, "positions[1] is %d, must be in [0, 4)", bad[i]);
            th_expect_error(h, status, LLS_ERR_ARGUMENT, part);
            continue;
        }
        if (!th_ok(h, status)) return;
        for (int64_t k = 0; k < 48; k++) { // cosine 1, sine 0: the good tokens come back as they were
            bool lost = k / 16 == 1 && k % 8 < 4;
            th_expect_near(h, &out, k, lost ? NAN : th_value(h, &x, k), 0);
        }
    }
}

// A caller built before cos and sin were added passes a struct that ends at `variant`; what lies behind it is not read.
static void older_struct(th *h, const void *param) {
    (void)param;
    int64_t shape[] = {3, 2, 8};
    lls_tensor x = th_normal(h, LLS_F32, 3, shape, NULL, 1), out = th_output(h, "out", LLS_F32, 3, shape, NULL, 1e-5);
    lls_tensor positions = th_data(h, LLS_I32, 1, shape, (int32_t[]){0, 1, 77});
    lls_rope_args args = base_args(h, &x, &positions, &out);
    args.struct_size = offsetof(lls_rope_args, cos);
    memset(&args.cos, 0xff, sizeof args - offsetof(lls_rope_args, cos));
    if (th_ok(h, lls_rope(h->ctx, &args, h->stream))) th_expect_near(h, &out, 5, th_value(h, &x, 5), 0);
}

static void zero_sizes(th *h, const void *param) {
    (void)param;
    int64_t none[] = {0, 4, 64}, one[] = {1, 4, 64};
    int32_t position = 5;
    lls_tensor no_positions = th_data(h, LLS_I32, 1, none, NULL), positions = th_data(h, LLS_I32, 1, one, &position);
    lls_tensor x = th_normal(h, LLS_F16, 3, none, NULL, 1), out = th_output(h, "none", LLS_F16, 3, none, NULL, 0);
    lls_rope_args args = base_args(h, &x, &no_positions, &out);
    if (!th_ok(h, lls_rope(h->ctx, &args, h->stream))) return;
    lls_tensor x1 = th_normal(h, LLS_F16, 3, one, NULL, 1), out1 = th_output(h, "next", LLS_F16, 3, one, NULL, 2e-3);
    args = base_args(h, &x1, &positions, &out1);
    th_ok(h, lls_rope(h->ctx, &args, h->stream));
}

#define EXPECT(status, part) th_expect_error(h, lls_rope(h->ctx, &args, h->stream), status, part)
static void table_errors(th *h, const void *param) {
    (void)param;
    int64_t shape[] = {2, 3, 8}, table_shape[] = {5, 4}, short_shape[] = {5, 3}, other_shape[] = {4, 4};
    float factors[] = {1, 1, 1, 1};
    lls_tensor positions = th_data(h, LLS_I32, 1, shape, (int32_t[]){0, 4});
    lls_tensor x = th_normal(h, LLS_F16, 3, shape, NULL, 1), out = th_output(h, "out", LLS_F16, 3, shape, NULL, 0);
    lls_tensor cos = th_normal(h, LLS_F32, 2, table_shape, NULL, 1),
               sin = th_normal(h, LLS_F32, 2, table_shape, NULL, 1),
               half = th_normal(h, LLS_F16, 2, table_shape, NULL, 1),
               bf16 = th_normal(h, LLS_BF16, 2, table_shape, NULL, 1),
               narrow = th_normal(h, LLS_F32, 2, short_shape, NULL, 1),
               fewer = th_normal(h, LLS_F32, 2, other_shape, NULL, 1);
    lls_rope_args good = base_args(h, &x, &positions, &out), args;
    good.cos = &cos, good.sin = &sin;
    args = good, args.sin = NULL;
    EXPECT(LLS_ERR_ARGUMENT, "cos and sin must be given together, sin is NULL");
    args = good, args.cos = NULL;
    EXPECT(LLS_ERR_ARGUMENT, "cos is NULL");
    args = good, args.cos = &bf16, args.sin = &bf16;
    EXPECT(LLS_ERR_DTYPE, "cos.dtype is bf16 (3), must be one of f32, f16");
    args = good, args.sin = &half;
    EXPECT(LLS_ERR_DTYPE, "sin.dtype is f16, must equal cos.dtype = f32");
    args = good, args.sin = &fewer;
    EXPECT(LLS_ERR_SHAPE, "sin.shape[0] is 4, must equal cos.shape[0] = 5");
    args = good, args.cos = &narrow, args.sin = &narrow;
    EXPECT(LLS_ERR_SHAPE, "cos.shape[1] is 3, must equal rotary_dim / 2 = 4");
    args = good, args.rotary_dim = 6;
    EXPECT(LLS_ERR_SHAPE, "cos.shape[1] is 4, must equal rotary_dim / 2 = 3");
    args = good, args.rotary_dim = 7;
    EXPECT(LLS_ERR_ARGUMENT, "rotary_dim is 7, must be even");
    args = good, args.positions = NULL;
    EXPECT(LLS_ERR_SHAPE, "cos.shape[0] is 5, must equal x.shape[0], positions being NULL = 2");
    args = good, args.theta = 1e4f;
    EXPECT(LLS_ERR_ARGUMENT, "theta is set, must be left at its default with cos and sin");
    args = good, args.freq_factors = factors;
    EXPECT(LLS_ERR_ARGUMENT, "freq_factors is set");
    args = good, args.scaling.type = LLS_ROPE_SCALING_LINEAR, args.scaling.factor = 2;
    EXPECT(LLS_ERR_ARGUMENT, "scaling.type is set");
    args = good, args.cos = args.sin = NULL, args.positions = NULL;
    EXPECT(LLS_ERR_ARGUMENT, "positions is NULL");
    lls_tensor strided = cos;
    strided.stride[1] = 2, strided.shape[0] = 1, args = good, args.cos = args.sin = &strided;
    EXPECT(LLS_ERR_STRIDE, "cos.stride[1] is 2, must be 1");
    lls_tensor inside = lls_tensor_make(out.data, LLS_F16, h->device, 2, table_shape);
    args = good, args.cos = &half, args.sin = &inside;
    EXPECT(LLS_ERR_ALIAS, "overlaps sin");
}

static void errors(th *h, const void *param) {
    (void)param;
    int64_t shape[] = {2, 3, 8}, wide_shape[] = {2, 3, 300}, three = 3;
    float factors[] = {1, 0, 1, 1};
    lls_tensor positions = th_data(h, LLS_I32, 1, shape, (int32_t[]){0, 1}),
               more_positions = th_data(h, LLS_I32, 1, &three, (int32_t[]){0, 1, 2});
    lls_tensor x = th_normal(h, LLS_F16, 3, shape, NULL, 1), x32 = th_normal(h, LLS_F32, 3, shape, NULL, 1),
               wide = th_normal(h, LLS_F16, 3, wide_shape, NULL, 1);
    lls_tensor out = th_output(h, "out", LLS_F16, 3, shape, NULL, 0),
               out32 = th_output(h, "out32", LLS_F32, 3, shape, NULL, 0);
    lls_tensor wide_out = th_output(h, "wide_out", LLS_F16, 3, wide_shape, NULL, 0);
    lls_rope_args good = base_args(h, &x, &positions, &out), args = good;
    args.rotary_dim = 3;
    EXPECT(LLS_ERR_ARGUMENT, "rotary_dim is 3, must be even and 2 to 256");
    args.rotary_dim = -2;
    EXPECT(LLS_ERR_ARGUMENT, "rotary_dim is -2");
    args.rotary_dim = 10;
    EXPECT(LLS_ERR_ARGUMENT, "rotary_dim is 10, must be at most head_dim = 8");
    args = base_args(h, &wide, &positions, &wide_out);
    EXPECT(LLS_ERR_ARGUMENT, "rotary_dim is 300");
    args = good, args.theta = -1;
    EXPECT(LLS_ERR_ARGUMENT, "theta is -1, must be above 0");
    args = good, args.theta = NAN;
    EXPECT(LLS_ERR_ARGUMENT, "theta is");
    args = good, args.freq_factors = factors;
    EXPECT(LLS_ERR_ARGUMENT, "freq_factors[1] is 0, must be above 0");
    args = good, args.style = (lls_rope_style)7;
    EXPECT(LLS_ERR_ARGUMENT, "style is 7");
    args = good, args.scaling.type = (lls_rope_scaling_type)9;
    EXPECT(LLS_ERR_ARGUMENT, "scaling.type is 9");
    args = good, args.scaling.type = LLS_ROPE_SCALING_LINEAR;
    EXPECT(LLS_ERR_ARGUMENT, "scaling.factor is 0, must be above 0");
    args.scaling.type = LLS_ROPE_SCALING_LLAMA3, args.scaling.factor = 8;
    EXPECT(LLS_ERR_ARGUMENT, "original_context is 0");
    args.scaling.original_context = 8192, args.scaling.low_freq_factor = 4;
    EXPECT(LLS_ERR_ARGUMENT, "high_freq_factor is 4, must be above scaling.low_freq_factor = 4");
    args.scaling = (lls_rope_scaling){
        .type = LLS_ROPE_SCALING_YARN, .factor = 4, .original_context = 4096, .attention_factor = -1};
    EXPECT(LLS_ERR_ARGUMENT, "attention_factor is -1");
    args = base_args(h, &x, &more_positions, &out);
    EXPECT(LLS_ERR_SHAPE, "positions.shape[0] is 3, must equal x.shape[0] = 2");
    args = base_args(h, &x, &x, &out);
    EXPECT(LLS_ERR_DTYPE, "positions.dtype is f16");
    args = base_args(h, &x, &positions, &out32);
    EXPECT(LLS_ERR_DTYPE, "out.dtype is f32, must equal x.dtype = f16");
    args = good, args.x2 = &x32, args.out2 = &out32;
    EXPECT(LLS_ERR_DTYPE, "x2.dtype is f32, must equal x.dtype = f16");
    args = good, args.x2 = &x;
    EXPECT(LLS_ERR_ARGUMENT, "out2 is NULL");
    args = good, args.x2 = &x, args.out2 = &out;
    EXPECT(LLS_ERR_ALIAS, "out2");
    lls_tensor shifted = out;
    shifted.data = (char *)x.data + 4;
    args = base_args(h, &x, &positions, &shifted);
    EXPECT(LLS_ERR_ALIAS, "partly overlaps");
    args = good, args.x = NULL;
    EXPECT(LLS_ERR_ARGUMENT, "x is NULL");
}
#undef EXPECT

#define MANY(tokens, heads, head_dim, rotary_dim, style)                                     \
    {                                                                                        \
        "R01 " #tokens "x" #heads "x" #head_dim " rotary " #rotary_dim " " #style, r01_many, \
            &(const partial){tokens, heads, head_dim, rotary_dim, LLS_ROPE_##style}, false   \
    }
static const th_case cases[] = {
    {"R01 partial rotary, both styles", r01, NULL, false},
    MANY(2560, 4, 80, 20, NEOX),
    MANY(2560, 4, 80, 20, GPTJ),
    MANY(2560, 4, 256, 64, NEOX),
    {"R02 llama3 frequencies", r02, NULL, false},
    {"yarn frequencies", yarn, NULL, false},
    {"linear scaling, frequency factors", linear_and_factors, NULL, false},
    {"R04 far positions", r04, NULL, false},
    {"G02 zero tokens", zero_sizes, NULL, false},
    {"tables by hand", table_values, NULL, false},
    {"positions outside the tables", bad_table_positions, NULL, false},
    {"a struct without tables", older_struct, NULL, false},
    {"errors", errors, NULL, false},
    {"errors of tables", table_errors, NULL, false},
};

const th_suite th_suite_rope = {"rope", cases, sizeof cases / sizeof *cases, generate};
