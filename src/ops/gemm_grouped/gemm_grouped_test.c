/* gemm_grouped: uneven and empty groups, rows of no group, layouts, dtypes and scales, epilogues, sizes of 0, more groups
 * than a grid has blocks, bad offsets, errors. Exact integers where a product allows it. */
#include <math.h>
#include <stdio.h>

#include "core/tensor.h"
#include "ops/gemm/gemm_test.h"

enum { MAX_GROUPS = 64 };

/* How many rows each group has, the first group's left of `before` rows of no group and the last's right of `after`. */
typedef struct grouping {
    const char *name;
    int32_t groups, before, after;
    int32_t rows[MAX_GROUPS];
} grouping;

static const grouping groupings[] = {
    {"uneven", 5, 0, 0, {3, 64, 1, 0, 17}},
    {"one", 1, 0, 0, {70}},
    {"empty ends", 4, 0, 0, {0, 5, 9, 0}},
    {"all in the last", 8, 0, 0, {0, 0, 0, 0, 0, 0, 0, 130}},
    {"a row each", 6, 0, 0, {1, 1, 1, 1, 1, 1}},
    {"rows of no group", 3, 4, 7, {10, 0, 33}},
    {"none has rows", 3, 5, 6, {0}},
    {"tiles and one more", 4, 1, 0, {128, 129, 127, 1}},
};
enum { NUM_GROUPINGS = sizeof groupings / sizeof *groupings };

typedef struct params {
    const grouping *g;
    gemm_product p; // m, batch, c, beta and residual are not used; b's layout says how each matrix lies
    bool scale_b_shared;
} params;

static int64_t offsets_of(const grouping *g, int32_t *offsets) {
    offsets[0] = g->before;
    for (int i = 0; i < g->groups; i++) offsets[i + 1] = offsets[i] + g->rows[i];
    return offsets[g->groups] + g->after;
}

static lls_gemm_grouped_args args_of(const th *h, const lls_tensor *a, const lls_tensor *b, const lls_tensor *offsets,
                                     const lls_tensor *out) {
    lls_gemm_grouped_args args = LLS_GEMM_GROUPED_ARGS_INIT;
    args.a = a, args.b = b, args.offsets = offsets, args.out = out, args.variant = h->variant;
    return args;
}

static double power_of_two(int64_t i, const void *user) {
    return ldexp(1, (int)th_hash9(i + 53, user) / 2);
}

static double near_one(int64_t i, const void *user) {
    return 1 + th_hash(i + 53, user) / 4;
}

static int64_t blocks_of(int64_t n) {
    return (n + 127) / 128;
}

static void run(th *h, const void *param) {
    const params *w = param;
    const gemm_product *p = &w->p;
    th_poison_workspace(h, 1 << 20);
    int32_t offsets[MAX_GROUPS + 1];
    int64_t tokens = offsets_of(w->g, offsets), groups = w->g->groups, bounds = groups + 1;
    bool i8 = p->in == LLS_I8;
    gemm_fill *fill_a = p->exact ? th_hash9
                        : i8     ? gemm_i8_of_a
                                 : NULL,
              *fill_b = p->exact ? gemm_hash9_of_b
                        : i8     ? gemm_i8_of_b
                                 : NULL,
              *fill_scale = p->exact ? power_of_two : near_one;
    lls_tensor a = gemm_matrix(h, p->in, 0, tokens, p->k, p->a, fill_a),
               b = gemm_matrix(h, p->in_b ? p->in_b : p->in, groups, p->k, p->n, p->b, fill_b),
               out = gemm_matrix(h, p->out, 0, tokens, p->gated ? p->n / 2 : p->n, p->o, gemm_three),
               at = th_data(h, LLS_I32, 1, &bounds, offsets), bias, scale_a, scale_b;
    th_also_output(h, "out", &out, gemm_tol(p));
    lls_gemm_grouped_args args = args_of(h, &a, &b, &at, &out);
    args.alpha = p->alpha, args.act = p->act, args.gated = p->gated, args.flags = p->flags;
    if (p->bias) bias = gemm_matrix(h, p->bias, 0, groups, p->n, p->o, fill_a), args.bias = &bias;
    bool block_a = p->scale_a == GEMM_BY_BLOCK, block_b = p->scale_b == GEMM_BY_BLOCK;
    if (p->scale_a) {
        scale_a = gemm_matrix(h, LLS_F32, 0, p->scale_a == GEMM_BY_ONE ? 1 : tokens, block_a ? blocks_of(p->k) : 1,
                              p->scale_layout, fill_scale);
        args.scale_a = &scale_a;
    }
    if (p->scale_b) {
        int64_t cols = block_b ? blocks_of(p->n) : p->scale_b == GEMM_BY_ONE ? 1 : p->n;
        scale_b = gemm_matrix(h, LLS_F32, w->scale_b_shared ? 0 : groups, block_b ? blocks_of(p->k) : 1, cols,
                              p->scale_layout, fill_scale);
        args.scale_b = &scale_b;
    }
    if (!th_ok(h, lls_gemm_grouped(h->ctx, &args, h->stream))) return;
    int64_t rows = offsets[groups], cols = out.shape[1]; // rows of no group are as they were
    if (w->g->before && cols) th_expect_near(h, &out, (int64_t)w->g->before * cols - 1, 3, 0);
    if (w->g->after && cols)
        th_expect_near(h, &out, rows * cols, 3, 0), th_expect_near(h, &out, tokens * cols - 1, 3, 0);
}

static void run_case(th *h, const grouping *g, gemm_product p, bool shared) {
    static const char *const scalings[] = {"", " one", " line", "", " block"}, *const acts[] = {"", " relu", " silu"};
    char name[200];
    snprintf(name, sizeof name, "%s %lldx%lld %s->%s %c%c%s%s%s%s a%s b%s%s%s%s%s", g->name, (long long)p.n,
             (long long)p.k, lls_dtype_name(p.in), lls_dtype_name(p.out), p.a.transposed ? 'T' : 'N',
             p.b.transposed ? 'T' : 'N', p.a.shifted ? " shifted" : "", p.b.broadcast ? " one b" : "",
             p.bias ? " bias" : "", acts[p.act], scalings[p.scale_a], scalings[p.scale_b], shared ? " shared" : "",
             p.gated ? " gated" : "", p.flags ? " flags" : "", p.exact ? " exact" : "");
    th_run_case(h, name, run, &(params){g, p, shared});
}

static const struct {
    lls_dtype in, in_b, out;
} types[] = {{LLS_BF16, LLS_BF16, LLS_BF16},      {LLS_F16, LLS_F16, LLS_F16}, {LLS_F8_E4M3, LLS_F8_E4M3, LLS_BF16},
             {LLS_BF16, LLS_BF16, LLS_F32},       {LLS_I8, LLS_I8, LLS_I32},   {LLS_F32, LLS_F32, LLS_F32},
             {LLS_F8_E4M3, LLS_F8_E5M2, LLS_F32}, {LLS_I8, LLS_I8, LLS_BF16},  {LLS_BF16, LLS_BF16, LLS_F8_E4M3},
             {LLS_F16, LLS_F16, LLS_I8}};
enum { NUM_TYPES = sizeof types / sizeof *types };
static const int64_t sizes[][2] = {{64, 128}, {130, 40}, {33, 257}, {8, 17}, {256, 64}, {1, 300}, {136, 200}};
enum { NUM_SIZES = sizeof sizes / sizeof *sizes };

static gemm_product product_number(int turn) {
    const int64_t *size = sizes[turn % NUM_SIZES];
    return (gemm_product){.n = size[0],
                          .k = size[1],
                          .in = types[turn % NUM_TYPES].in,
                          .in_b = types[turn % NUM_TYPES].in_b,
                          .out = types[turn % NUM_TYPES].out,
                          .a = {.transposed = turn % 7 == 6, .pad = turn % 3, .shifted = turn % 4 == 3},
                          .b = {.transposed = turn % 3 != 0, .shifted = turn % 5 == 4},
                          .o = {.pad = turn % 2, .transposed = turn % 11 == 10},
                          .alpha = 1,
                          .exact = turn % 2};
}

static void generate_groups(th *h) {
    for (int i = 0; i < NUM_GROUPINGS; i++) {
        for (int j = 0; j < NUM_TYPES; j++) run_case(h, &groupings[i], product_number(i * (NUM_TYPES + 1) + j), false);
    }
    gemm_product shared = product_number(1);
    shared.b.broadcast = true;
    run_case(h, &groupings[0], shared, false);
}

static void generate_epilogues(th *h) {
    for (int turn = 0; turn < 60; turn++) {
        gemm_product p = product_number(turn);
        bool exact_i32 = p.out == LLS_I32, f8 = p.in == LLS_F8_E4M3;
        p.bias = exact_i32 ? 0 : (lls_dtype[]){0, LLS_F32, LLS_BF16}[turn % 3];
        p.act = exact_i32 ? LLS_GEMM_ACT_NONE : p.exact ? (lls_gemm_act)(turn / 3 % 2) : (lls_gemm_act)(turn % 3);
        p.gated = !exact_i32 && turn % 4 == 1 && p.n % 2 == 0;
        p.flags = turn % 5 == 4 ? LLS_GEMM_BATCH_INVARIANT : 0;
        if (!exact_i32 && !p.gated && turn % 2 == turn / 10 % 2) {
            p.scale_a = f8 ? GEMM_BY_BLOCK : turn % 3 ? GEMM_BY_LINE : GEMM_BY_ONE;
            p.scale_b = f8 && turn % 3 ? GEMM_BY_BLOCK : turn % 4 ? GEMM_BY_LINE : GEMM_BY_ONE;
            p.scale_layout = (gemm_layout){.transposed = turn / 4 % 2, .pad = turn % 3};
        }
        run_case(h, &groupings[turn % NUM_GROUPINGS], p, turn % 6 == 0);
    }
}

// Experts of a mixture: many groups, several tiles; a layer with its activation.
static void generate_larger(th *h) {
    static grouping experts = {"64 experts", 64, 0, 0, {0}},
                    few = {"8 experts", 8, 0, 0, {300, 0, 64, 65, 1, 17, 129, 200}};
    for (int i = 0; i < 64; i++) experts.rows[i] = i * 37 % 11 * (i % 3);
    gemm_product p = {
        .n = 264, .k = 136, .in = LLS_BF16, .out = LLS_BF16, .b = {.transposed = true}, .alpha = 1, .exact = true};
    run_case(h, &experts, p, false);
    run_case(h, &few, p, false);
    p.exact = false, p.gated = true, p.act = LLS_GEMM_ACT_SILU;
    run_case(h, &experts, p, false);
    p.in = LLS_F8_E4M3, p.scale_a = p.scale_b = GEMM_BY_BLOCK;
    run_case(h, &few, p, false);
}

static void generate(th *h) {
    generate_groups(h);
    generate_epilogues(h);
    generate_larger(h);
}

/* ---- By hand ---- */

static double number_of_group(int64_t i, const void *user) {
    return (double)(i / *(const int64_t *)user + 1);
}

// Matrix g of b is g + 1 everywhere, a is 1: a row of group g is k (g + 1).
static void by_hand(th *h, const void *param) {
    (void)param;
    int64_t k = 8, n = 6, bounds = 4, shape[] = {3, k, n}, matrix = k * n;
    lls_tensor a = gemm_matrix(h, LLS_F16, 0, 9, k, (gemm_layout){0}, gemm_one),
               b = th_filled(h, LLS_F16, 3, shape, NULL, number_of_group, &matrix),
               at = th_data(h, LLS_I32, 1, &bounds, (const int32_t[]){1, 3, 3, 8}),
               out = gemm_matrix(h, LLS_F32, 0, 9, n, (gemm_layout){0}, gemm_three);
    th_also_output(h, "out", &out, 0);
    lls_gemm_grouped_args args = args_of(h, &a, &b, &at, &out);
    if (!th_ok(h, lls_gemm_grouped(h->ctx, &args, h->stream))) return;
    static const double rows[] = {3, 8, 8, 24, 24, 24, 24, 24, 3};
    for (int64_t i = 0; i < 9 * n; i++) th_expect_near(h, &out, i, rows[i / n], 0);
}

// More groups than a grid is high, a row each.
static void many_groups(th *h, const void *param) {
    (void)param;
    enum { GROUPS = 70000 };
    static int32_t offsets[GROUPS + 1];
    for (int32_t i = 0; i <= GROUPS; i++) offsets[i] = i;
    int64_t bounds = GROUPS + 1;
    lls_tensor a = gemm_matrix(h, LLS_BF16, 0, GROUPS, 2, (gemm_layout){0}, th_hash9),
               b = gemm_matrix(h, LLS_BF16, GROUPS, 2, 3, (gemm_layout){0}, gemm_hash9_of_b),
               at = th_data(h, LLS_I32, 1, &bounds, offsets),
               out = gemm_matrix(h, LLS_F32, 0, GROUPS, 3, (gemm_layout){0}, gemm_three);
    th_also_output(h, "out", &out, 0);
    lls_gemm_grouped_args args = args_of(h, &a, &b, &at, &out);
    th_ok(h, lls_gemm_grouped(h->ctx, &args, h->stream));
}

// G02: no tokens, no groups, no columns, and no k: then the bias is left.
static void zero_sizes(th *h, const void *param) {
    (void)param;
    static const int64_t cases_of[][4] = {
        {0, 2, 5, 4}, {6, 0, 5, 4}, {6, 2, 0, 4}, {6, 2, 5, 0}}; // tokens, groups, n, k
    static const int32_t offsets[][3] = {{0, 0, 0}, {0, 0, 0}, {0, 2, 6}, {0, 2, 5}};
    for (int i = 0; i < 4; i++) {
        int64_t tokens = cases_of[i][0], groups = cases_of[i][1], n = cases_of[i][2], k = cases_of[i][3];
        int64_t bounds = groups + 1, b_shape[] = {groups, k, n}, bias_shape[] = {groups, n};
        lls_tensor a = gemm_matrix(h, LLS_F16, 0, tokens, k, (gemm_layout){0}, gemm_one),
                   b = th_constant(h, LLS_F16, 3, b_shape, NULL, 1),
                   bias = th_constant(h, LLS_F16, 2, bias_shape, NULL, 2),
                   at = th_data(h, LLS_I32, 1, &bounds, offsets[i]),
                   out = gemm_matrix(h, LLS_F16, 0, tokens, n, (gemm_layout){0}, gemm_three);
        th_also_output(h, "out", &out, 0);
        lls_gemm_grouped_args args = args_of(h, &a, &b, &at, &out);
        args.bias = &bias;
        if (!th_ok(h, lls_gemm_grouped(h->ctx, &args, h->stream))) return;
        if (i == 1) th_expect_near(h, &out, 29, 3, 0);
        if (i == 3) th_expect_near(h, &out, 24, 2, 0), th_expect_near(h, &out, 25, 3, 0);
    }
}

// The CPU refuses offsets outside the rows; CUDA, which cannot see them, brings them into the range.
static void bad_offsets(th *h, const void *param) {
    (void)param;
    static const struct {
        int32_t offsets[4];
        const char *message;
        double rows[6]; // on CUDA
    } lists[] = {{{-5, 2, 3, 6}, "offsets[0] is -5, must be at least 0", {4, 4, 8, 12, 12, 12}},
                 {{0, 2, 1, 1}, "offsets[2] is 1, must be at least the one before it, 2", {4, 4, 3, 3, 3, 3}},
                 {{0, 2, 3, 1000}, "offsets[3] is 1000, must be at most the 6 rows of a", {4, 4, 8, 12, 12, 12}}};
    int64_t n = 5, matrix = 4 * n, shape[] = {3, 4, n}, bounds = 4;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        lls_tensor a = gemm_matrix(h, LLS_F32, 0, 6, 4, (gemm_layout){0}, gemm_one),
                   b = th_filled(h, LLS_F32, 3, shape, NULL, number_of_group, &matrix),
                   at = th_data(h, LLS_I32, 1, &bounds, lists[i].offsets),
                   out = gemm_matrix(h, LLS_F32, 0, 6, n, (gemm_layout){0}, gemm_three);
        th_also_output(h, "out", &out, -1);
        lls_gemm_grouped_args args = args_of(h, &a, &b, &at, &out);
        lls_status status = lls_gemm_grouped(h->ctx, &args, h->stream);
        if (h->device.type == LLS_CPU) {
            th_expect_error(h, status, LLS_ERR_ARGUMENT, lists[i].message);
        } else if (th_ok(h, status)) {
            for (int64_t e = 0; e < 6 * n; e++) th_expect_near(h, &out, e, lists[i].rows[e / n], 0);
        } else {
            return;
        }
    }
}

static void expect(th *h, lls_gemm_grouped_args args, lls_status status, const char *part) {
    th_expect_error(h, lls_gemm_grouped(h->ctx, &args, h->stream), status, part);
}

static void errors(th *h, const void *param) {
    (void)param;
    gemm_layout tight = {0};
    int64_t bounds = 3, four = 4, n = 6;
    static const int32_t offsets[] = {0, 1, 4, 4};
    lls_tensor a = gemm_matrix(h, LLS_BF16, 0, 4, 8, tight, gemm_one),
               b = gemm_matrix(h, LLS_BF16, 2, 8, n, tight, gemm_one), at = th_data(h, LLS_I32, 1, &bounds, offsets),
               long_at = th_data(h, LLS_I32, 1, &four, offsets),
               out = gemm_matrix(h, LLS_F32, 0, 4, n, tight, gemm_three),
               bias3 = gemm_matrix(h, LLS_F32, 0, 3, n, tight, gemm_one),
               bias1 = th_constant(h, LLS_F32, 1, &n, NULL, 1),
               scale = gemm_matrix(h, LLS_F32, 2, 1, n, tight, gemm_one),
               scale3 = gemm_matrix(h, LLS_F32, 3, 1, n, tight, gemm_one),
               batched = gemm_matrix(h, LLS_BF16, 2, 4, 8, tight, gemm_one),
               flat = gemm_matrix(h, LLS_BF16, 0, 8, n, tight, gemm_one);
    th_also_output(h, "out", &out, 0);
    lls_gemm_grouped_args good = args_of(h, &a, &b, &at, &out), bad;
    bad = good, bad.a = NULL;
    expect(h, bad, LLS_ERR_ARGUMENT, "gemm_grouped: a is NULL");
    bad = good, bad.a = &batched;
    expect(h, bad, LLS_ERR_SHAPE, "gemm_grouped: a.ndim is 3, must be 2");
    bad = good, bad.b = &flat;
    expect(h, bad, LLS_ERR_SHAPE, "b.ndim is 2, must be 3");
    bad = good, bad.b = &batched;
    expect(h, bad, LLS_ERR_SHAPE, "b.shape[1] is 4, must equal k, the last axis of a = 8");
    bad = good, bad.offsets = NULL;
    expect(h, bad, LLS_ERR_ARGUMENT, "offsets is NULL");
    bad = good, bad.offsets = &long_at;
    expect(h, bad, LLS_ERR_SHAPE, "offsets.shape[0] is 4, must equal b.shape[0] + 1 = 3");
    bad = good, bad.offsets = &bias1;
    expect(h, bad, LLS_ERR_DTYPE, "offsets.dtype is f32 (1), must be one of i32");
    bad = good, bad.bias = &bias1;
    expect(h, bad, LLS_ERR_SHAPE, "bias.ndim is 1, must be 2");
    bad = good, bad.bias = &bias3;
    expect(h, bad, LLS_ERR_SHAPE, "bias.shape[0] is 3, must equal b.shape[0] = 2");
    bad = good, bad.scale_b = &scale3;
    expect(h, bad, LLS_ERR_SHAPE, "scale_b.shape[0] is 3, must equal b.shape[0] = 2");
    bad = good, bad.scale_a = &scale;
    expect(h, bad, LLS_ERR_SHAPE, "scale_a.ndim is 3, must be 1 to 2");
    bad = good, bad.gated = true;
    expect(h, bad, LLS_ERR_SHAPE, "out.shape[1] is 6, must equal half the columns of b = 3");
    bad = good, bad.flags = 64;
    expect(h, bad, LLS_ERR_ARGUMENT, "gemm_grouped: flags are 0x40");
    lls_tensor on_a = out;
    on_a.data = a.data;
    bad = good, bad.out = &on_a;
    expect(h, bad, LLS_ERR_ALIAS, "overlaps a");
    bad = good, bad.variant = "no_such_rung";
    expect(h, bad, LLS_ERR_VARIANT, "no_such_rung");
    if (th_ok(h, lls_gemm_grouped(h->ctx, &good, h->stream))) th_expect_near(h, &out, 23, 8, 0);
}

static const th_case cases[] = {
    {"by hand", by_hand, NULL, false},
    {"70000 groups", many_groups, NULL, false},
    {"G02 zero sizes", zero_sizes, NULL, false},
    {"bad offsets", bad_offsets, NULL, false},
    {"errors", errors, NULL, false},
};

const th_suite th_suite_gemm_grouped = {"gemm_grouped", cases, sizeof cases / sizeof *cases, generate};
