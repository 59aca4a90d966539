/* gemm: scales of f8, i8 and float operands, one for all, by row and column, by blocks of 128; zero scales (Q01). */
#include "core/tensor.h"
#include "ops/gemm/gemm_test.h"

static const lls_dtype outs[] = {LLS_BF16, LLS_F32, LLS_F8_E4M3, LLS_F16, LLS_I8, LLS_F8_E5M2};
enum { NUM_OUTS = sizeof outs / sizeof *outs };

// m, n and k on both sides of 128; one row; k and n that end within a block, within a vector, and at a block.
static const int64_t sizes[][3] = {{1, 64, 128},  {5, 9, 40},    {1, 130, 300},   {64, 128, 256}, {33, 72, 384},
                                   {7, 257, 129}, {3, 256, 127}, {129, 130, 257}, {17, 200, 512}, {2, 24, 1000}};
enum { NUM_SIZES = sizeof sizes / sizeof *sizes };

/* Every pair of scalings up to the most that the operands take, each with sizes, layouts and outputs by turns. */
static void generate_pairs(th *h, const lls_dtype (*types)[2], int num_types, const gemm_scaling *scalings,
                           int num_scalings, int rounds) {
    int turn = 0;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < num_scalings * num_scalings; i++, turn++) {
            const int64_t *size = sizes[turn % NUM_SIZES];
            const lls_dtype *in = types[turn / 3 % num_types];
            bool exact = turn % 3 != 0;
            gemm_product p = {.m = size[0],
                              .n = size[1],
                              .k = size[2],
                              .in = in[0],
                              .in_b = in[1],
                              .out = outs[turn % NUM_OUTS],
                              .a = {.transposed = turn % 4 == 3, .pad = turn % 5 == 0, .shifted = turn % 5 == 0},
                              .b = {.transposed = turn % 4 != 1, .pad = 16 * (turn % 3 == 0), .shifted = turn % 7 == 0},
                              .o = {.pad = turn % 2},
                              .alpha = turn % 6 ? 1 : 0.5f,
                              .scale_a = scalings[i / num_scalings],
                              .scale_b = scalings[i % num_scalings],
                              .scale_layout = {.transposed = turn % 3 == 1, .pad = turn % 2 * 3},
                              .flags = turn % 5 == 4 ? LLS_GEMM_FAST_ACCUM : 0,
                              .exact = exact};
            gemm_run_case(h, "scaled", NULL, p);
        }
    }
}

static void generate_batches(th *h) {
    for (int i = 0; i < 8; i++) { // scales with and without the batch axis; one a or b for the batch
        gemm_product p = {.batch = 3,
                          .m = 19,
                          .n = 140,
                          .k = 200,
                          .in = i % 2 ? LLS_F8_E4M3 : LLS_I8,
                          .out = LLS_F32,
                          .a = {.broadcast = i == 1},
                          .b = {.transposed = true, .broadcast = i == 3},
                          .alpha = 1,
                          .scale_a = i % 2 && i / 2 % 2 ? GEMM_BY_BLOCK : GEMM_BY_LINE,
                          .scale_b = i % 2 && i / 2 % 2 ? GEMM_BY_BLOCK : GEMM_BY_LINE,
                          .scale_batch = i / 4,
                          .exact = i < 6};
        gemm_run_case(h, "scaled", NULL, p);
    }
}

void gemm_generate_scales(th *h) {
    static const lls_dtype f8[][2] = {{LLS_F8_E4M3, LLS_F8_E4M3},
                                      {LLS_F8_E4M3, LLS_F8_E5M2},
                                      {LLS_F8_E5M2, LLS_F8_E4M3},
                                      {LLS_F8_E5M2, LLS_F8_E5M2}},
                           i8[][2] = {{LLS_I8, LLS_I8}},
                           floats[][2] = {{LLS_BF16, LLS_BF16}, {LLS_F16, LLS_F16}, {LLS_F32, LLS_F32}};
    static const gemm_scaling scalings[] = {GEMM_BY_BLOCK, GEMM_BY_LINE, GEMM_BY_ONE, GEMM_UNSCALED};
    generate_pairs(h, f8, 4, scalings, 4, 7);
    generate_pairs(h, i8, 1, scalings + 1, 3, 7);
    generate_pairs(h, floats, 3, scalings + 1, 3, 3);
    generate_batches(h);
}

static double by_list(int64_t i, const void *user) {
    return ((const double *)user)[i];
}

static lls_tensor scale(th *h, int64_t rows, int64_t cols, const int64_t *stride, const double *values) {
    return th_filled(h, LLS_F32, 2, (int64_t[]){rows, cols}, stride, by_list, values);
}

// 300 = 128 + 128 + 44 of k, 200 = 128 + 72 of n; the scales lie by columns, as a kernel that quantises may leave them.
void gemm_block_scales_by_hand(th *h, const void *param) {
    (void)param;
    gemm_layout tight = {0}, columns = {.transposed = true};
    static const double of_a[] = {1, 2, 4, 8, 16, 32}, of_b[] = {1, 2, 4, 8, 16, 64};
    lls_tensor a = gemm_matrix(h, LLS_F8_E4M3, 0, 2, 300, tight, gemm_one),
               b = gemm_matrix(h, LLS_F8_E5M2, 0, 300, 200, columns, gemm_one),
               out = gemm_matrix(h, LLS_F32, 0, 2, 200, tight, gemm_poison);
    lls_tensor scale_a = scale(h, 2, 3, (int64_t[]){1, 4}, of_a), scale_b = scale(h, 3, 2, (int64_t[]){1, 5}, of_b);
    th_also_output(h, "out", &out, 0);
    lls_gemm_args args = gemm_args_of(h, &a, &b, &out);
    args.scale_a = &scale_a, args.scale_b = &scale_b;
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    double left = 128 * 1 * 1 + 128 * 2 * 4 + 44 * 4 * 16, right = 128 * 1 * 2 + 128 * 2 * 8 + 44 * 4 * 64;
    th_expect_near(h, &out, 0, left, 0), th_expect_near(h, &out, 127, left, 0);
    th_expect_near(h, &out, 128, right, 0), th_expect_near(h, &out, 199, right, 0);
    th_expect_near(h, &out, 200 + 127, 8 * left, 0), th_expect_near(h, &out, 200 + 128, 8 * right, 0);
}

// Q01: a row that was quantised with scale 0, one with a subnormal scale, and one with a block of scale 0 give 0, next to
// nothing, and the other block's sum; a column of scale 0 gives 0, into f8 too.
void gemm_scales_of_zero(th *h, const void *param) {
    (void)param;
    gemm_layout tight = {0}, columns = {.transposed = true};
    static const double of_a[] = {1, 1, 0, 0, 1e-40, 1e-40, 0, 2}, of_rows[] = {1, 0, 1e-40, 2}, of_b[] = {1, 4, 0, 2};
    lls_tensor a = gemm_matrix(h, LLS_F8_E4M3, 0, 4, 256, tight, gemm_three),
               b = gemm_matrix(h, LLS_F8_E4M3, 0, 256, 4, columns, gemm_one);
    lls_tensor blocks = scale(h, 4, 2, NULL, of_a), rows = scale(h, 4, 1, NULL, of_rows),
               cols = scale(h, 1, 4, NULL, of_b);
    lls_tensor by_block = gemm_matrix(h, LLS_F32, 0, 4, 4, tight, gemm_poison),
               by_line = gemm_matrix(h, LLS_F8_E4M3, 0, 4, 4, tight, gemm_poison),
               divided = gemm_matrix(h, LLS_I8, 0, 4, 4, tight, gemm_three);
    th_also_output(h, "by block", &by_block, 1e-6), th_also_output(h, "by line", &by_line, 0),
        th_also_output(h, "divided", &divided, 0);
    lls_gemm_args args = gemm_args_of(h, &a, &b, &by_block);
    args.scale_a = &blocks;
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    args.out = &by_line, args.scale_a = &rows, args.scale_b = &cols;
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    args.out = &divided, args.scale_a = NULL, args.scale_out = &cols, args.alpha = 1 / 64.0f;
    if (!th_ok(h, lls_gemm(h->ctx, &args, h->stream))) return;
    static const double by_hand[][4] = {{448, 448, 0, 448}, {0, 0, 0, 0}, {0, 0, 0, 0}, {448, 448, 0, 448}};
    for (int64_t i = 0; i < 16; i++) {
        static const double sums[] = {768, 0, 768 * 1e-40, 768};
        th_expect_near(h, &by_block, i, sums[i / 4], i / 4 == 2 ? 1e-4 : 0); // a subnormal has fewer bits
        th_expect_near(h, &by_line, i, by_hand[i / 4][i % 4], 0);
        th_expect_near(h, &divided, i, (double[]){12, 12, 0, 12}[i % 4],
                       0); // scale_b cancels scale_out, but 0 does not
    }
}
