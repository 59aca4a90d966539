/* Known-fault rows that prefill and decode share. */
#include <math.h>
#include <stdio.h>

#include "ops/attn_common/attn_test.h"

static attn_form form_of(const void *param) {
    return *(const attn_form *)param;
}

static bool is_decode(attn_form form) {
    return form == ATTN_CONTIGUOUS || form == ATTN_PAGED;
}

static double one_based(const attn_problem *p, char which, int64_t b, int64_t row, int64_t head, int64_t d) {
    return which == 'v' ? (double)row + 1 : attn_uniform(p, which, b, row, head, d);
}

// A01: bottom-right alignment. 2 rows over 5 keys see 4 and 5 of them; 3 rows see 3, 4, 5.
void attn_a01(th *h, const void *param) {
    attn_problem p = {.batch = 1,
                      .q_len = {2},
                      .kv_len = {5},
                      .num_heads = 1,
                      .num_kv_heads = 1,
                      .head_dim = 64,
                      .dtype = LLS_F16,
                      .fill = one_based,
                      .mask = ATTN_MASK(true, -1, -1)};
    if (!th_ok(h, attn_run(h, &p, form_of(param)))) return;
    attn_expect_out(h, &p, 0, 0, 0, 63, 2.5, 0);
    attn_expect_out(h, &p, 0, 1, 0, 0, 3.0, 0);
    attn_expect_lse(h, &p, 0, 0, 0, log(4), 1e-6);
    attn_expect_lse(h, &p, 0, 1, 0, log(5), 1e-6);

    attn_problem s = {.batch = 1,
                      .q_len = {3},
                      .kv_len = {5},
                      .num_heads = 8,
                      .num_kv_heads = 2,
                      .head_dim = 64,
                      .dtype = LLS_F16,
                      .fill = one_based,
                      .mask = ATTN_MASK(true, -1, -1)};
    if (!th_ok(h, attn_run(h, &s, form_of(param)))) return;
    for (int i = 0; i < 3; i++) {
        for (int head = 0; head < 8; head++) {
            attn_expect_out(h, &s, 0, i, head, 7, 2 + 0.5 * i, 0);
            attn_expect_lse(h, &s, 0, i, head, log(3 + i), 1e-6);
        }
    }
}

static double global_row(const attn_problem *p, char which, int64_t b, int64_t row, int64_t head, int64_t d) {
    static const int32_t begin[] = {0, 3, 6, 6};
    return which == 'v' ? (double)(begin[b] + row) : attn_uniform(p, which, b, row, head, d);
}

// A03: sequences without queries, without keys, without either.
void attn_a03(th *h, const void *param) {
    attn_problem p = {.batch = 4,
                      .q_len = {0, 1, 1, 0},
                      .kv_len = {3, 3, 0, 2},
                      .num_heads = 9,
                      .num_kv_heads = 3,
                      .head_dim = 64,
                      .dtype = LLS_F16,
                      .fill = global_row,
                      .mask = ATTN_MASK(true, -1, -1),
                      .num_splits = is_decode(form_of(param)) ? 3 : 0};
    if (!th_ok(h, attn_run(h, &p, form_of(param)))) return;
    for (int head = 0; head < 9; head++) {
        attn_expect_out(h, &p, 1, 0, head, 11, 4, 0);
        attn_expect_out(h, &p, 2, 0, head, 11, 0, 0);
        attn_expect_lse(h, &p, 1, 0, head, log(3), 1e-6);
        attn_expect_lse(h, &p, 2, 0, head, -INFINITY, 0);
    }
    attn_problem none = {.batch = 3,
                         .num_heads = 9,
                         .num_kv_heads = 3,
                         .head_dim = 64,
                         .dtype = LLS_F16,
                         .mask = ATTN_MASK(true, -1, -1)};
    if (!th_ok(h, attn_run(h, &none, form_of(param)))) return;
    p.out_name = "next"; // the context still works
    th_ok(h, attn_run(h, &p, form_of(param)));
}

static double two_keys(const attn_problem *p, char which, int64_t b, int64_t row, int64_t head, int64_t d) {
    (void)p, (void)b, (void)head, (void)d;
    return which == 'q' ? 0.125 : which == 'k' ? (row == 0 ? 1 : -1) : row == 0;
}

// A05: the default scale comes from the true head_dim, and tail columns are right.
void attn_a05(th *h, const void *param) {
    static const int32_t dims[] = {40, 72, 80, 88, 96, 112, 160};
    static const char *const names[] = {"D40", "D72", "D80", "D88", "D96", "D112", "D160"};
    for (int i = 0; i < 7; i++) {
        attn_problem p = {.batch = 1,
                          .q_len = {1},
                          .kv_len = {2},
                          .num_heads = 1,
                          .num_kv_heads = 1,
                          .head_dim = dims[i],
                          .dtype = LLS_F16,
                          .fill = two_keys,
                          .out_name = names[i]};
        p.mask = ATTN_MASK(false, -1, -1);
        if (!th_ok(h, attn_run(h, &p, form_of(param)))) return;
        for (int d = 0; d < dims[i]; d++) attn_expect_out(h, &p, 0, 0, 0, d, 1 / (1 + exp(-sqrt(dims[i]) / 4)), 1e-3);
    }
}

static double by_kv_head(const attn_problem *p, char which, int64_t b, int64_t row, int64_t head, int64_t d) {
    return which == 'v' ? (double)head + 1 : attn_uniform(p, which, b, row, head, d);
}

// A06: any group size, and heads that do not divide.
void attn_a06(th *h, const void *param) {
    static const int32_t ratios[] = {3, 5, 6, 7, 12, 16, 24, 71};
    for (int n = 0; n < 8; n++) {
        attn_problem p = {.batch = 1,
                          .q_len = {2},
                          .kv_len = {5},
                          .num_heads = 2 * ratios[n],
                          .num_kv_heads = 2,
                          .head_dim = 64,
                          .dtype = LLS_F16,
                          .fill = by_kv_head,
                          .mask = ATTN_MASK(true, -1, -1)};
        if (!th_ok(h, attn_run(h, &p, form_of(param)))) return;
        for (int head = 0; head < p.num_heads; head++) {
            attn_expect_out(h, &p, 0, 0, head, 5, head / ratios[n] + 1, 0);
            attn_expect_out(h, &p, 0, 1, head, 63, head / ratios[n] + 1, 0);
        }
    }
}

// A07: a window of W sees the current key and W before it; one that covers everything changes nothing.
void attn_a07(th *h, const void *param) {
    static const double want[] = {0, 0.5, 1, 2, 3, 4};
    attn_problem p = {.batch = 1,
                      .q_len = {6},
                      .kv_len = {6},
                      .num_heads = 1,
                      .num_kv_heads = 1,
                      .head_dim = 64,
                      .dtype = LLS_F16,
                      .fill = attn_uniform,
                      .mask = ATTN_MASK(true, 2, -1)};
    if (!th_ok(h, attn_run(h, &p, form_of(param)))) return;
    for (int i = 0; i < 6; i++) attn_expect_out(h, &p, 0, i, 0, 9, want[i], 0);

    static const int32_t windows[] = {-1, 299, 300};
    static const char *const names[] = {"causal", "window 299", "window 300"};
    attn_problem wide[3];
    for (int w = 0; w < 3; w++) {
        wide[w] = (attn_problem){.batch = 1,
                                 .q_len = {is_decode(form_of(param)) ? 2 : 300},
                                 .kv_len = {300},
                                 .num_heads = 2,
                                 .num_kv_heads = 1,
                                 .head_dim = 64,
                                 .dtype = LLS_F16,
                                 .mask = ATTN_MASK(true, windows[w], -1),
                                 .out_name = names[w]};
        if (!th_ok(h, attn_run(h, &wide[w], form_of(param)))) return;
    }
    for (int w = 1; w < 3; w++) {
        for (int i = 0; i < wide[w].q_len[0]; i += 13) {
            for (int d = 0; d < 64; d += 7) {
                double got = attn_out(h, &wide[w], 0, i, 1, d), causal = attn_out(h, &wide[0], 0, i, 1, d);
                if (got != causal)
                    th_fail(h, "%s: row %d column %d is %.9g, without a window %.9g", names[w], i, d, got, causal);
            }
        }
    }
}

static double capped(const attn_problem *p, char which, int64_t b, int64_t row, int64_t head, int64_t d) {
    (void)p, (void)b, (void)head, (void)d;
    return which == 'q' ? 1 : which == 'k' ? (row == 0 ? 0.5 : 0.25) : row == 0;
}

// A08: the cap acts on scaled logits; 0 is off; a negative one is an error.
void attn_a08(th *h, const void *param) {
    attn_problem base = {.batch = 1,
                         .q_len = {1},
                         .kv_len = {2},
                         .num_heads = 1,
                         .num_kv_heads = 1,
                         .head_dim = 64,
                         .dtype = LLS_F32,
                         .fill = capped,
                         .scale = 0.125f};
    base.mask = ATTN_MASK(false, -1, -1);
    attn_problem cap = base, off = base;
    cap.softcap = 2, off.out_name = "off";
    if (!th_ok(h, attn_run(h, &cap, form_of(param))) || !th_ok(h, attn_run(h, &off, form_of(param)))) return;
    attn_expect_out(h, &cap, 0, 0, 0, 3, 0.599856, 2e-6);
    attn_expect_lse(h, &cap, 0, 0, 0, 2.439120, 1e-6);
    attn_expect_out(h, &off, 0, 0, 0, 3, 1 / (1 + exp(-2)), 1e-6);
}

static double very_negative(const attn_problem *p, char which, int64_t b, int64_t row, int64_t head, int64_t d) {
    (void)b, (void)head, (void)d;
    if (which == 'q') return 1;
    bool last = row == p->kv_len[0] - 1;
    return which == 'k' ? (last && row > 0 ? -4080 : -4096) : last ? 1 : 0.25;
}

static double overflowing(const attn_problem *p, char which, int64_t b, int64_t row, int64_t head, int64_t d) {
    (void)p, (void)b, (void)head;
    return which == 'q' ? 64 : which == 'k' ? (row == 1 && d % 20 == 7 ? 63.96875 : 64) : row == 0;
}

// A09: no finite stand-in for minus infinity, no fp16 products.
void attn_a09(th *h, const void *param) {
    attn_problem one = {.batch = 1,
                        .q_len = {1},
                        .kv_len = {1},
                        .num_heads = 1,
                        .num_kv_heads = 1,
                        .head_dim = 128,
                        .dtype = LLS_BF16,
                        .fill = very_negative};
    one.mask = ATTN_MASK(false, -1, -1);
    attn_problem many = one, wide = one;
    many.kv_len[0] = 65;
    wide.kv_len[0] = 2, wide.head_dim = 80, wide.dtype = LLS_F16, wide.fill = overflowing;
    if (!th_ok(h, attn_run(h, &one, form_of(param))) || !th_ok(h, attn_run(h, &many, form_of(param))) ||
        !th_ok(h, attn_run(h, &wide, form_of(param))))
        return;
    attn_expect_out(h, &one, 0, 0, 0, 0, 1, 0);
    attn_expect_lse(h, &one, 0, 0, 0, -46340.950, 1e-7);
    attn_expect_out(h, &many, 0, 0, 0, 100, 1, 0);
    attn_expect_out(h, &wide, 0, 0, 0, 79, 0.709803, 1e-3);
}

// D10, its last part: the LSE of 8 equal zero logits is ln 8, not 3.
void attn_lse_of_equals(th *h, const void *param) {
    attn_problem p = {.batch = 1,
                      .q_len = {1},
                      .kv_len = {8},
                      .num_heads = 1,
                      .num_kv_heads = 1,
                      .head_dim = 64,
                      .dtype = LLS_F16,
                      .fill = attn_uniform};
    p.mask = ATTN_MASK(false, -1, -1);
    if (th_ok(h, attn_run(h, &p, form_of(param)))) attn_expect_lse(h, &p, 0, 0, 0, 2.079442, 1e-6);
}
