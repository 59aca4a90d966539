/* attn_prefill's bias: its place in the score, what it hides, what hidden keys may hold, layouts, errors, products. */
#include "ops/attn_prefill/attn_bias_test.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "ops/attn_common/attn_test.h"

static attn_problem small(int32_t q_len, int32_t kv_len, lls_dtype dtype) {
    return (attn_problem){.batch = 1,
                          .q_len = {q_len},
                          .kv_len = {kv_len},
                          .num_heads = 1,
                          .num_kv_heads = 1,
                          .head_dim = 64,
                          .dtype = dtype,
                          .mask = ATTN_MASK(false, -1, -1)};
}

/* ---- Its place in the score ---- */

static double log_of_number(const attn_problem *p, int64_t b, int64_t head, int64_t i, int64_t j) {
    (void)p, (void)b, (void)head, (void)i;
    return log((double)j + 1);
}

// Scores 4 and 2, capped by 2.
static double four_and_two(const attn_problem *p, char which, int64_t b, int64_t row, int64_t head, int64_t d) {
    (void)p, (void)b, (void)head, (void)d;
    return which == 'q' ? 0.125 : which == 'k' ? (row == 0 ? 4 : 2) : row == 0;
}

static double half_for_the_second(const attn_problem *p, int64_t b, int64_t head, int64_t i, int64_t j) {
    (void)p, (void)b, (void)head, (void)i;
    return j == 1 ? 0.5 : 0;
}

void attn_bias_in_score(th *h, const void *param) {
    (void)param;
    attn_problem weighted = small(2, 3, LLS_F32), capped = small(1, 2, LLS_F32); // keys weigh 1, 2, 3
    weighted.fill = attn_uniform, weighted.bias = (attn_bias){.fill = log_of_number, .dtype = LLS_F32};
    capped.fill = four_and_two, capped.softcap = 2, capped.out_name = "capped";
    capped.bias = (attn_bias){.fill = half_for_the_second, .dtype = LLS_F32};
    if (!th_ok(h, attn_run(h, &weighted, ATTN_DENSE)) || !th_ok(h, attn_run(h, &capped, ATTN_DENSE))) return;
    for (int i = 0; i < 2; i++) {
        attn_expect_out(h, &weighted, 0, i, 0, 9, 8.0 / 6, 1e-6);
        attn_expect_lse(h, &weighted, 0, i, 0, log(6), 1e-6);
    }
    double first = 2 * tanh(2), second = 2 * tanh(1) + 0.5; // the bias is not capped
    attn_expect_out(h, &capped, 0, 0, 0, 63, 1 / (1 + exp(second - first)), 2e-6);
    attn_expect_lse(h, &capped, 0, 0, 0, log(exp(first) + exp(second)), 1e-6);
}

/* ---- The same as other parts of the call ---- */

static void expect_same(th *h, const attn_problem *got, const attn_problem *want, double tol) {
    for (int b = 0; b < got->batch; b++) {
        for (int i = 0; i < got->q_len[0]; i++) {
            for (int head = 0; head < got->num_heads; head++) {
                for (int d = 0; d < got->head_dim; d += 7)
                    attn_expect_out(h, got, b, i, head, d, attn_out(h, want, b, i, head, d), tol);
                attn_expect_lse(h, got, b, i, head, attn_lse(h, want, b, i, head), tol);
            }
        }
    }
}

static bool is_masked(const attn_problem *p, int64_t i, int64_t j) {
    int64_t ahead = j - (p->kv_len[0] - p->q_len[0] + i);
    int32_t right = p->mask.causal ? 0 : p->mask.window_right;
    return (right >= 0 && ahead > right) || (p->mask.window_left >= 0 && -ahead > p->mask.window_left);
}

static double causal_window(const attn_problem *p, int64_t b, int64_t head, int64_t i, int64_t j) {
    (void)b, (void)head;
    attn_problem masked = *p;
    masked.mask = ATTN_MASK(true, 90, -1);
    return is_masked(&masked, i, j) ? -INFINITY : 0;
}

void attn_bias_as_mask(th *h, const void *param) {
    (void)param;
    attn_problem mask = small(150, 260, LLS_F16);
    mask.batch = 2, mask.q_len[1] = 150, mask.kv_len[1] = 260, mask.num_heads = 6, mask.num_kv_heads = 2;
    attn_problem bias = mask;
    mask.mask = ATTN_MASK(true, 90, -1), mask.out_name = "masked";
    bias.bias = (attn_bias){.fill = causal_window, .dtype = LLS_F16, .shared = {true, true}};
    if (!th_ok(h, attn_run(h, &mask, ATTN_DENSE)) || !th_ok(h, attn_run(h, &bias, ATTN_DENSE))) return;
    expect_same(h, &bias, &mask, 1e-3);

    // A caller built before the bias was added to the struct.
    lls_tensor out = th_output(h, "without the field", LLS_F16, 4, bias.out.shape, NULL, th_tol(LLS_F16)), wrong = {0};
    lls_attn_prefill_args a = LLS_ATTN_PREFILL_ARGS_INIT;
    a.struct_size = offsetof(lls_attn_prefill_args, bias);
    a.mask = mask.mask, a.q = &mask.q, a.k = &mask.k, a.v = &mask.v, a.out = &out, a.variant = h->variant,
    a.bias = &wrong;
    if (th_ok(h, lls_attn_prefill(h->ctx, &a, h->stream))) th_expect_bits_equal(h, &out, &mask.out);
}

static double alibi(const attn_problem *p, int64_t b, int64_t head, int64_t i, int64_t j) {
    (void)b;
    double slope = exp2(-8.0 * (double)(head + 1) / p->num_heads); // those of attn_run
    return slope * (double)(j - (p->kv_len[0] - p->q_len[0] + i));
}

void attn_bias_as_alibi(th *h, const void *param) {
    (void)param;
    attn_problem slopes = small(60, 130, LLS_F32);
    slopes.num_heads = 4, slopes.num_kv_heads = 2, slopes.mask = ATTN_MASK(true, -1, -1);
    attn_problem bias = slopes;
    slopes.alibi = true, slopes.out_name = "slopes";
    bias.bias = (attn_bias){.fill = alibi, .dtype = LLS_F32, .shared = {true}};
    if (!th_ok(h, attn_run(h, &slopes, ATTN_DENSE)) || !th_ok(h, attn_run(h, &bias, ATTN_DENSE))) return;
    expect_same(h, &bias, &slopes, 1e-4);
}

/* ---- What it hides ---- */

static double hides_row_one(const attn_problem *p, int64_t b, int64_t head, int64_t i, int64_t j) {
    (void)p, (void)b, (void)j;
    return i == 1 && head == 0 ? -INFINITY : 0;
}

void attn_bias_hides_rows(th *h, const void *param) {
    (void)param;
    static const int32_t lens[][2] = {{2, 5}, {2, 700}, {60, 70}}; // tiles of few rows, parts of keys, many rows
    for (int n = 0; n < 3; n++) {
        for (int sinks = 0; sinks < 2; sinks++) {
            attn_problem p = small(lens[n][0], lens[n][1], LLS_F32);
            p.num_heads = 2, p.sinks = sinks, p.bias = (attn_bias){.fill = hides_row_one, .dtype = LLS_F32};
            if (!th_ok(h, attn_run(h, &p, ATTN_DENSE))) return;
            for (int d = 0; d < 64; d++) attn_expect_out(h, &p, 0, 1, 0, d, 0, 0);
            attn_expect_lse(h, &p, 0, 1, 0, sinks ? -0.5 : -INFINITY, 0);
            if (attn_out(h, &p, 0, 0, 0, 3) == 0 || attn_out(h, &p, 0, 1, 1, 3) == 0)
                th_fail(h, "a row that sees keys is 0");
        }
    }
}

static double not_finite(const attn_problem *p, int64_t b, int64_t head, int64_t i, int64_t j) {
    (void)b;
    if (is_masked(p, i, j)) return j % 2 ? NAN : INFINITY; // harmless
    if (head == 1 && j == 1 && i % 4 < 2) return i % 8 < 4 ? NAN : INFINITY;
    return i % 4 == 0 ? -INFINITY : 0;
}

static double harmless(const attn_problem *p, int64_t b, int64_t head, int64_t i, int64_t j) {
    return head == 1 && i % 4 < 2 ? 0 : is_masked(p, i, j) ? 0 : not_finite(p, b, head, i, j);
}

// +inf and NaN make NaN of the rows that see them, with their lse, and of no others.
void attn_bias_not_finite(th *h, const void *param) {
    (void)param;
    static const int32_t lens[][2] = {{4, 6}, {3, 600}, {70, 90}};
    for (int n = 0; n < 3; n++) {
        attn_problem p = small(lens[n][0], lens[n][1], LLS_F32);
        p.num_heads = 2, p.num_kv_heads = 1, p.mask = ATTN_MASK(true, -1, -1), p.uncompared = true, p.sinks = n == 0;
        p.bias = (attn_bias){.fill = not_finite, .dtype = LLS_F32};
        attn_problem clean = p;
        clean.bias.fill = harmless, clean.out_name = "clean";
        if (!th_ok(h, attn_run(h, &p, ATTN_DENSE)) || !th_ok(h, attn_run(h, &clean, ATTN_DENSE))) return;
        for (int i = 0; i < p.q_len[0]; i++) {
            for (int head = 0; head < 2; head++) {
                bool harmed = head == 1 && i % 4 < 2;
                double got[] = {attn_out(h, &p, 0, i, head, 0), attn_out(h, &p, 0, i, head, 63),
                                attn_lse(h, &p, 0, i, head)};
                double want[] = {attn_out(h, &clean, 0, i, head, 0), attn_out(h, &clean, 0, i, head, 63),
                                 attn_lse(h, &clean, 0, i, head)};
                for (int t = 0; t < 3; t++) {
                    if (harmed ? !isnan(got[t]) : got[t] != want[t])
                        th_fail(h, "%d rows, row %d head %d value %d is %g, must be %g", p.q_len[0], i, head, t, got[t],
                                harmed ? NAN : want[t]);
                }
            }
        }
    }
}

/* ---- Zero sizes and errors ---- */

static double zero(const attn_problem *p, int64_t b, int64_t head, int64_t i, int64_t j) {
    (void)p, (void)b, (void)head, (void)i, (void)j;
    return 0;
}

void attn_bias_zero_sizes(th *h, const void *param) {
    (void)param;
    attn_problem no_rows = small(0, 4, LLS_F16), no_keys = small(3, 0, LLS_F16);
    no_rows.bias = no_keys.bias = (attn_bias){.fill = zero, .dtype = LLS_F16};
    if (!th_ok(h, attn_run(h, &no_rows, ATTN_DENSE)) || !th_ok(h, attn_run(h, &no_keys, ATTN_DENSE))) return;
    attn_expect_out(h, &no_keys, 0, 2, 0, 15, 0, 0);
    attn_expect_lse(h, &no_keys, 0, 2, 0, -INFINITY, 0);

    int64_t shape[] = {0, 2, 1, 64}, bias_shape[] = {0, 1, 2, 2};
    lls_tensor q = th_normal(h, LLS_F16, 4, shape, NULL, 1), out = th_output(h, "nobody", LLS_F16, 4, shape, NULL, 0),
               bias = th_normal(h, LLS_F16, 4, bias_shape, NULL, 1);
    lls_attn_prefill_args a = LLS_ATTN_PREFILL_ARGS_INIT;
    a.q = a.k = a.v = &q, a.out = &out, a.bias = &bias, a.variant = h->variant;
    th_ok(h, lls_attn_prefill(h->ctx, &a, h->stream));
}

void attn_bias_errors(th *h, const void *param) {
    (void)param;
    int64_t q_shape[] = {2, 5, 6, 16}, kv_shape[] = {2, 7, 3, 16}, shape[] = {2, 6, 5, 7}, rows[] = {10, 6, 16},
            kv_rows[] = {14, 3, 16}, bounds = 3;
    lls_tensor q = th_normal(h, LLS_F16, 4, q_shape, NULL, 1), k = th_normal(h, LLS_F16, 4, kv_shape, NULL, 1),
               out = th_output(h, "out", LLS_F16, 4, q_shape, NULL, 0), bias = th_normal(h, LLS_F16, 4, shape, NULL, 1);
    lls_attn_prefill_args a = LLS_ATTN_PREFILL_ARGS_INIT;
    a.q = &q, a.k = &k, a.v = &k, a.out = &out, a.variant = h->variant;
    static const char *const wanted[] = {
        "bias.shape[0] is 1, must equal the batch of q = 2", "bias.shape[1] is 1, must equal the heads of q = 6",
        "bias.shape[2] is 1, must equal the rows of q = 5", "bias.shape[3] is 1, must equal the rows of k = 7"};
    for (int axis = 0; axis < 4; axis++) {
        lls_tensor wrong = bias;
        wrong.shape[axis] = 1, a.bias = &wrong; // broadcasting is by strides, not by shapes
        th_expect_error(h, lls_attn_prefill(h->ctx, &a, h->stream), LLS_ERR_SHAPE, wanted[axis]);
    }
    lls_tensor flat = bias;
    flat.ndim = 3, a.bias = &flat;
    th_expect_error(h, lls_attn_prefill(h->ctx, &a, h->stream), LLS_ERR_SHAPE, "bias.ndim is 3, must be 4");
    static const lls_dtype dtypes[] = {LLS_BF16, LLS_I32};
    for (int n = 0; n < 2; n++) {
        lls_tensor other = bias;
        other.dtype = dtypes[n], a.bias = &other;
        th_expect_error(h, lls_attn_prefill(h->ctx, &a, h->stream), LLS_ERR_DTYPE, "must be one of f32, f16");
    }
    lls_tensor elsewhere = bias, backward = bias, same = bias;
    elsewhere.device.index = 7, a.bias = &elsewhere;
    th_expect_error(h, lls_attn_prefill(h->ctx, &a, h->stream), LLS_ERR_DEVICE, "bias is on");
    backward.stride[3] = -1, a.bias = &backward;
    th_expect_error(h, lls_attn_prefill(h->ctx, &a, h->stream), LLS_ERR_STRIDE, "bias.stride[3] is -1");
    same.data = out.data, a.bias = &same;
    th_expect_error(h, lls_attn_prefill(h->ctx, &a, h->stream), LLS_ERR_ALIAS, "bias");

    lls_tensor rq = th_normal(h, LLS_F16, 3, rows, NULL, 1), rk = th_normal(h, LLS_F16, 3, kv_rows, NULL, 1),
               rout = th_output(h, "ragged", LLS_F16, 3, rows, NULL, 0);
    lls_tensor cu_q = th_data(h, LLS_I32, 1, &bounds, (int32_t[]){0, 5, 10}),
               cu_kv = th_data(h, LLS_I32, 1, &bounds, (int32_t[]){0, 7, 14});
    a.q = &rq, a.k = a.v = &rk, a.out = &rout, a.cu_seqlens_q = &cu_q, a.cu_seqlens_kv = &cu_kv, a.max_q_len = 5,
    a.bias = &bias;
    th_expect_error(h, lls_attn_prefill(h->ctx, &a, h->stream), LLS_ERR_ARGUMENT,
                    "bias is given with cu_seqlens_q, must be NULL");
}

/* ---- Products ---- */

static double relative(const attn_problem *p, int64_t b, int64_t head, int64_t i, int64_t j) {
    return 0.5 * attn_random(p, 'b', b, i, head, j);
}

// Every fifth key is left.
static double sieve(const attn_problem *p, int64_t b, int64_t head, int64_t i, int64_t j) {
    return (3 * i + j + b + head) % 5 ? -INFINITY : relative(p, b, head, i, j);
}

// Whole tiles are hidden, and whole rows.
static double stripes(const attn_problem *p, int64_t b, int64_t head, int64_t i, int64_t j) {
    bool tile = (j + 64 * b) / 64 % 2 == 1 || j / 256 == 1 || (i >= 64 && j < 64);
    return tile || (i + head) % 9 == 4 ? -INFINITY : relative(p, b, head, i, j);
}

static bool is_poisoned(int64_t j) {
    return j % 7 == 3 || (j >= 70 && j < 73);
}

static double poisoned(const attn_problem *p, char which, int64_t b, int64_t row, int64_t head, int64_t d) {
    if (which == 'q' || !is_poisoned(row)) return attn_random(p, which, b, row, head, d);
    return which == 'k' ? (row % 2 ? NAN : INFINITY) : row % 3 == 0 ? NAN : row % 3 == 1 ? INFINITY : -INFINITY;
}

// Hides what is poisoned, but not from every sixth row, and some of the healthy keys.
static double hides_poison(const attn_problem *p, int64_t b, int64_t head, int64_t i, int64_t j) {
    bool hidden = is_poisoned(j) ? i % 6 != 2 : (i + j) % 11 == 0;
    return hidden ? -INFINITY : relative(p, b, head, i, j);
}

static void run_hidden_poison(th *h, const void *param) {
    attn_problem p = *(const attn_problem *)param;
    p.uncompared = true, p.fill = poisoned, p.bias.fill = hides_poison;
    attn_problem clean = p;
    clean.fill = NULL, clean.out_name = "clean";
    if (!th_ok(h, attn_run(h, &p, ATTN_DENSE)) || !th_ok(h, attn_run(h, &clean, ATTN_DENSE))) return;
    for (int i = 0; i < p.q_len[0]; i++) {
        bool harmed = false;
        for (int j = 0; j < p.kv_len[0]; j++) harmed |= is_poisoned(j) && i % 6 == 2 && !is_masked(&p, i, j);
        for (int head = 0; head < p.num_heads; head++) {
            double lse = attn_lse(h, &p, 0, i, head), clean_lse = attn_lse(h, &clean, 0, i, head);
            if (!harmed && lse != clean_lse) th_fail(h, "row %d head %d: lse %g, must be %g", i, head, lse, clean_lse);
            for (int d = 0; d < p.head_dim; d += 5) {
                double got = attn_out(h, &p, 0, i, head, d), want = harmed ? NAN : attn_out(h, &clean, 0, i, head, d);
                if (got != want && !(isnan(got) && isnan(want)))
                    th_fail(h, "row %d head %d column %d is %g, must be %g", i, head, d, got, want);
            }
        }
    }
}

static void run_biased(th *h, const void *param) {
    attn_problem p = *(const attn_problem *)param;
    th_ok(h, attn_run(h, &p, ATTN_DENSE));
}

static int32_t pick(uint32_t *state, int32_t count) {
    *state = *state * 1664525u + 1013904223u;
    return (int32_t)((*state >> 16) % (uint32_t)count);
}

static attn_problem draw(uint32_t seed, lls_dtype dtype) {
    static const int32_t lens[][2] = {{1, 1},   {1, 300}, {2, 257}, {5, 5},   {17, 65},   {48, 48},
                                      {49, 97}, {33, 31}, {8, 520}, {64, 63}, {100, 200}, {3, 700}};
    static const int32_t heads[][2] = {{3, 1}, {4, 4}, {6, 2}, {8, 1}, {1, 1}}, dims[] = {64, 40, 17, 128, 8, 256, 1};
    static const lls_attn_mask masks[] = {{false, -1, -1}, {true, -1, -1}, {true, 70, -1}, {false, 5, 9}};
    uint32_t s = seed;
    const int32_t *len = lens[pick(&s, 12)], *head = heads[pick(&s, 5)];
    attn_problem p = small(len[0], len[1], dtype);
    p.num_heads = head[0], p.num_kv_heads = head[1], p.head_dim = dims[pick(&s, 7)];
    p.mask = masks[pick(&s, 4)];
    p.bias.dtype = pick(&s, 2) ? LLS_F32 : dtype, p.bias.order = (attn_bias_order)pick(&s, 3);
    return p;
}

static void name_of(const attn_problem *p, const char *what, int n, char *name, size_t size) {
    static const char *const orders[] = {"rows", "keys", "spread"};
    snprintf(name, size, "bias %s %d %s of %s, %s%s%s%s%s, batch %d q %d kv %d heads %d/%d D %d mask %d,%d,%d", what, n,
             lls_dtype_name(p->bias.dtype), lls_dtype_name(p->dtype), orders[p->bias.order],
             p->bias.shared[0] ? " batch" : "", p->bias.shared[1] ? " head" : "", p->bias.shared[2] ? " row" : "",
             p->bias.shared[3] ? " key" : "", p->batch, p->q_len[0], p->kv_len[0], p->num_heads, p->num_kv_heads,
             p->head_dim, p->mask.causal, p->mask.window_left, p->mask.window_right);
}

void attn_bias_generate(th *h) {
    static const lls_dtype dtypes[] = {LLS_F32, LLS_F16, LLS_BF16};
    static const attn_bias_fill fills[] = {relative, sieve, stripes};
    static const char *const fill_names[] = {"relative", "sieve", "stripes"};
    char name[200];
    for (int n = 0; n < 96; n++) { // 16 sets of shared axes
        uint32_t s = (uint32_t)n;
        attn_problem p = draw(s, dtypes[n / 16 % 3]);
        p.batch = 1 + pick(&s, 3);
        for (int b = 1; b < p.batch; b++) p.q_len[b] = p.q_len[0], p.kv_len[b] = p.kv_len[0];
        p.softcap = pick(&s, 3) ? 0 : 3;
        p.alibi = pick(&s, 3) == 0, p.sinks = pick(&s, 3) == 0;
        p.bias.fill = fills[(n + n / 16) % 3];
        for (int axis = 0; axis < 4; axis++) p.bias.shared[axis] = n >> axis & 1;
        name_of(&p, fill_names[(n + n / 16) % 3], n, name, sizeof name);
        th_run_case(h, name, run_biased, &p);
    }
    for (int n = 0; n < 36; n++) {
        attn_problem p = draw((uint32_t)n + 1000, dtypes[n % 3]);
        name_of(&p, "over NaN", n, name, sizeof name);
        th_run_case(h, name, run_hidden_poison, &p);
    }
}
