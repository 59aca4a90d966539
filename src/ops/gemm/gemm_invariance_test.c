/* gemm: flags. LLS_GEMM_BATCH_INVARIANT promises bits that do not depend on m; the other two only leave to give. */
#include <math.h>

#include "core/tensor.h"
#include "ops/gemm/gemm_test.h"

enum { MOST_ROWS = 300 };

static lls_tensor first_rows(lls_tensor t, int64_t rows) {
    t.shape[0] = rows;
    return t;
}

static double normal_then_nan(int64_t i, const void *user) {
    return i < *(const int64_t *)user ? th_hash(i, NULL) : NAN;
}

// 300 rows, fewer rows, and one row among rows of NaN.
static void rows_do_not_see_m(th *h, const void *param) {
    static const int64_t ms[] = {MOST_ROWS, 1, 2, 7, 16, 17, 64, 129};
    const gemm_product *p = param;
    gemm_layout weight = {.transposed = true};
    int64_t shape[] = {MOST_ROWS, p->k}, finite = p->k;
    bool i8 = p->in == LLS_I8;
    lls_tensor a = gemm_matrix(h, p->in, 0, MOST_ROWS, p->k, (gemm_layout){0}, i8 ? gemm_i8_of_a : th_hash),
               b = gemm_matrix(h, p->in, 0, p->k, p->n, weight, i8 ? gemm_i8_of_b : NULL),
               lonely = i8 ? a : th_filled(h, p->in, 2, shape, NULL, normal_then_nan, &finite), scale_a, scale_b,
               all = {0};
    if (p->scale_a) {
        bool blocks = p->scale_a == GEMM_BY_BLOCK;
        int64_t of_k = blocks ? (p->k + 127) / 128 : 1;
        scale_a = gemm_matrix(h, LLS_F32, 0, MOST_ROWS, of_k, (gemm_layout){.transposed = true}, NULL);
        scale_b = gemm_matrix(h, LLS_F32, 0, of_k, blocks ? (p->n + 127) / 128 : p->n, weight, NULL);
    }
    for (size_t i = 0; i <= sizeof ms / sizeof *ms; i++) {
        bool is_lonely = i == sizeof ms / sizeof *ms;
        int64_t m = is_lonely ? MOST_ROWS : ms[i];
        lls_tensor rows = first_rows(is_lonely ? lonely : a, m), factors,
                   out = th_output(h, "out", p->out, 2, (int64_t[]){m, p->n}, NULL, gemm_tol(p));
        th_allow_nan(h, &out);
        lls_gemm_args args = gemm_args_of(h, &rows, &b, &out);
        args.flags = p->flags | LLS_GEMM_BATCH_INVARIANT;
        if (p->scale_a) factors = first_rows(scale_a, m), args.scale_a = &factors, args.scale_b = &scale_b;
        if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
        if (i == 0) all = out;
        lls_tensor same = first_rows(all, is_lonely ? 1 : m), got = first_rows(out, is_lonely ? 1 : m);
        th_expect_bits_equal(h, &got, &same);
    }
}

// Numbers that tf32 holds, and sums of them that any accumulator holds, are as exact with the flags as without.
static void generate_exact(th *h) {
    static const int64_t sizes[][3] = {{1, 64, 96}, {65, 130, 257}, {128, 128, 128}, {300, 264, 520}};
    for (int i = 0; i < 16; i++) {
        const int64_t *size = sizes[i % 4];
        bool tf32 = i / 4 % 2 == 0;
        gemm_product p = {.m = size[0],
                          .n = size[1],
                          .k = size[2],
                          .in = tf32    ? LLS_F32
                                : i % 2 ? LLS_F8_E4M3
                                        : LLS_F8_E5M2,
                          .in_b = tf32 ? LLS_F32 : LLS_F8_E4M3,
                          .out = i % 3 ? LLS_F32 : LLS_BF16,
                          .a = {.transposed = i % 4 == 3},
                          .b = {.transposed = i / 2 % 2},
                          .alpha = 1,
                          .flags = tf32 ? LLS_GEMM_TF32 : LLS_GEMM_FAST_ACCUM,
                          .exact = i < 8};
        gemm_run_case(h, "flag", NULL, p);
    }
}

void gemm_generate_invariance(th *h) {
    gemm_product p = {.n = 136, .k = 264};
    static const struct {
        lls_dtype in, out;
        gemm_scaling scaling;
        uint32_t flags;
    } rows[] = {{LLS_F16, LLS_F16, GEMM_UNSCALED, 0},
                {LLS_BF16, LLS_F32, GEMM_UNSCALED, 0},
                {LLS_F32, LLS_F32, GEMM_UNSCALED, 0},
                {LLS_F32, LLS_F32, GEMM_UNSCALED, LLS_GEMM_TF32},
                {LLS_F8_E4M3, LLS_F32, GEMM_UNSCALED, LLS_GEMM_FAST_ACCUM},
                {LLS_F8_E4M3, LLS_BF16, GEMM_BY_BLOCK, 0},
                {LLS_F8_E5M2, LLS_F16, GEMM_BY_LINE, 0},
                {LLS_I8, LLS_F32, GEMM_BY_LINE, 0},
                {LLS_I8, LLS_I32, GEMM_UNSCALED, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        p.m = MOST_ROWS, p.in = rows[i].in, p.out = rows[i].out, p.scale_a = p.scale_b = rows[i].scaling;
        p.flags = rows[i].flags, p.alpha = 1;
        gemm_run_case(h, "rows do not see m,", rows_do_not_see_m, p);
    }
    p = (gemm_product){.m = MOST_ROWS, .n = 9, .k = 2049, .in = LLS_BF16, .out = LLS_BF16, .alpha = 1};
    gemm_run_case(h, "rows do not see m,", rows_do_not_see_m, p); // long and narrow: what split-k is for
    generate_exact(h);
}
