/* gemm: sizes on both sides of every tile and dispatch threshold, layouts with and without 16-byte alignment, products of
 * several tiles each way, and outputs past 2^31 elements; all in integers, so that any fault of an edge is a wrong
 * number. */
#include <stdlib.h>
#include <string.h>

#include "core/element.h"
#include "ops/gemm/gemm_test.h"

static const int64_t ms[] = {1, 16, 17, 32, 33, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 511, 512, 513},
                     ns[] = {1, 7, 8, 63, 64, 65, 127, 128, 129, 255, 256, 257, 320, 1000},
                     ks[] = {1, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 192, 513, 1000};
enum { NUM_M = sizeof ms / sizeof *ms, NUM_N = sizeof ns / sizeof *ns, NUM_K = sizeof ks / sizeof *ks };

static const struct {
    lls_dtype in, in_b, out;
    uint32_t flags;
} types[] = {{LLS_BF16, LLS_BF16, LLS_BF16, 0},
             {LLS_F16, LLS_F16, LLS_F16, 0},
             {LLS_F8_E4M3, LLS_F8_E4M3, LLS_BF16, 0},
             {LLS_I8, LLS_I8, LLS_I32, 0},
             {LLS_BF16, LLS_BF16, LLS_F32, 0},
             {LLS_F32, LLS_F32, LLS_F32, LLS_GEMM_TF32},
             {LLS_F8_E5M2, LLS_F8_E4M3, LLS_F32, LLS_GEMM_FAST_ACCUM},
             {LLS_F16, LLS_F16, LLS_F32, 0},
             {LLS_I8, LLS_I8, LLS_BF16, 0},
             {LLS_F32, LLS_F32, LLS_F32, 0},
             {LLS_F8_E4M3, LLS_F8_E5M2, LLS_F8_E4M3, 0}};
enum { NUM_TYPES = sizeof types / sizeof *types };

/* ---- Products of rank 2 ---- */

// a = u s + u' s' and b = t v + t' v', so that out is made of u, v and four sums over k: what it must be costs nothing that
// grows with k. Factors from -2 to 2 keep a and b within what e5m2 holds, and sums within the 13 bits that every
// accumulator holds.
enum { SEED_U = 1000003, SEED_S = 2000003, SEED_T = 3000017, SEED_V = 4000037 };

static int factor(int64_t seed, int64_t i, int term) {
    return (int)th_hash9(seed + 2 * i + term, NULL) / 2;
}

static double of_rank_2(int64_t seed_row, int64_t seed_col, int64_t row, int64_t col) {
    return factor(seed_row, row, 0) * factor(seed_col, col, 0) + factor(seed_row, row, 1) * factor(seed_col, col, 1);
}

static double fill_a(int64_t i, const void *user) {
    int64_t cols = *(const int64_t *)user;
    return of_rank_2(SEED_U, SEED_S, i / cols, i % cols);
}

static double fill_b(int64_t i, const void *user) {
    int64_t cols = *(const int64_t *)user;
    return of_rank_2(SEED_T, SEED_V, i / cols, i % cols);
}

// Where row and column 0 of the matrix lie in the buffer that was filled.
static int64_t row0(gemm_layout l) {
    return l.transposed && l.shifted;
}
static int64_t col0(gemm_layout l) {
    return !l.transposed && l.shifted;
}

// What rows first_row, ... of the product must be, written to out by the host.
static void write_expected(const gemm_product *p, int64_t first_row, lls_tensor *out) {
    int sums[2][2] = {{0}};
    for (int64_t k = 0; k < p->k; k++) {
        for (int i = 0; i < 4; i++)
            sums[i / 2][i % 2] += factor(SEED_S, k + col0(p->a), i / 2) * factor(SEED_T, k + row0(p->b), i % 2);
    }
    for (int64_t row = 0; row < p->m; row++) {
        int64_t at_u = first_row + row + row0(p->a);
        int u[] = {factor(SEED_U, at_u, 0), factor(SEED_U, at_u, 1)};
        int of_v[] = {u[0] * sums[0][0] + u[1] * sums[1][0], u[0] * sums[0][1] + u[1] * sums[1][1]};
        for (int64_t col = 0; col < p->n; col++) {
            int64_t at = row * out->stride[0] + col * out->stride[1], v = col + col0(p->b);
            int value = of_v[0] * factor(SEED_V, v, 0) + of_v[1] * factor(SEED_V, v, 1);
            if (out->dtype == LLS_I32) ((int32_t *)out->data)[at] = value;
            else lls__set(out, at, value);
        }
    }
}

static void run_edge(th *h, const void *param) {
    const gemm_product *p = param;
    th_poison_workspace(h, 1 << 20);
    lls_tensor a = gemm_matrix(h, p->in, 0, p->m, p->k, p->a, fill_a),
               b = gemm_matrix(h, p->in_b, 0, p->k, p->n, p->b, fill_b),
               out = gemm_matrix(h, p->out, 0, p->m, p->n, p->o, p->out == LLS_I32 ? gemm_three : gemm_poison);
    th_also_output(h, "out", &out, 0);
    if (th_is_reference(h)) { // in place of the oracle
        write_expected(p, 0, &out);
        return;
    }
    lls_gemm_args args = gemm_args_of(h, &a, &b, &out);
    args.flags = p->flags;
    th_ok(h, lls_gemm(h->ctx, &args, h->stream));
}

/* ---- Sizes ---- */

static int64_t up_to_16(int64_t width) {
    return (16 - width % 16) % 16;
}

// Layouts by the bits of `order`. Aligned: every row begins at a multiple of 16 elements; else one element off, rows of
// any length.
static gemm_product product_of(int64_t m, int64_t n, int64_t k, int type, int order, bool aligned) {
    gemm_product p = {.m = m,
                      .n = n,
                      .k = k,
                      .in = types[type].in,
                      .in_b = types[type].in_b,
                      .out = types[type].out,
                      .flags = types[type].flags,
                      .alpha = 1,
                      .exact = true};
    p.a.transposed = order & 1, p.b.transposed = order & 2, p.o.transposed = order & 4;
    p.a.shifted = p.b.shifted = p.o.shifted = !aligned;
    p.a.pad = aligned ? up_to_16(p.a.transposed ? m : k) : order % 3;
    p.b.pad = aligned ? up_to_16(p.b.transposed ? k : n) : order % 2;
    p.o.pad = aligned ? up_to_16(p.o.transposed ? m : n) : order % 2;
    return p;
}

// Operands along k, as TMA takes them: fewer, as many and more steps of 64 than a ring has stages, rounds of it, and
// tiles of 128 that reach past the matrix.
static void generate_rings(th *h) {
    static const int64_t sizes[] = {127, 1, 129, 128, 257},
                         steps[] = {1, 63, 64, 65, 128, 129, 192, 193, 256, 257, 384, 385, 448, 449};
    static const int halves[] = {0, 1, 4, 7}; // f16 and bf16 of `types`
    for (int i = 0; i < 28; i++) {
        gemm_product p = product_of(sizes[i % 5], sizes[i / 5 % 5], steps[i % 14], halves[i % 4], 2, true);
        gemm_run_case(h, "ring", run_edge, p);
    }
}

// Each part of the formula behind such a product, in a batch, whose matrices TMA keeps apart.
static void generate_ring_epilogues(th *h) {
    for (int i = 0; i < 16; i++) {
        gemm_product p = {.batch = 3, .m = 66 * (1 + i % 2), .n = 130, .k = 136, .b = {.transposed = true}, .alpha = 1};
        p.in = i % 2 ? LLS_F16 : LLS_BF16, p.out = i / 2 % 2 ? LLS_F32 : p.in, p.exact = true;
        p.a.broadcast = i % 5 == 1, p.b.broadcast = i % 5 == 3;
        switch (i / 2) {
        case 1: p.bias = LLS_F32, p.act = LLS_GEMM_ACT_RELU; break;
        case 2: p.gated = true, p.residual = p.out; break;
        case 3: p.beta = -1.5f, p.in_place = i % 2; break;
        case 4: p.scale_a = p.scale_b = GEMM_BY_LINE; break;
        case 5: p.out = LLS_I8, p.scale_out = GEMM_BY_COLUMN; break;
        case 6: p.out = LLS_F8_E4M3, p.scale_out = GEMM_BY_ONE; break;
        case 7: p.o.transposed = true, p.bias = p.in; break; // no transposed problem
        default: break;
        }
        gemm_run_case(h, "ring", NULL, p);
    }
}

void gemm_generate_edges(th *h) {
    generate_rings(h);
    generate_ring_epilogues(h);
    int turn = 0;
    for (int i = 0; i < NUM_M; i++) {
        for (int j = 0; j < NUM_N; j++, turn++) {
            int order = turn / 2 % 4 + (turn % 13 == 5 ? 4 : 0); // a transposed out is rare
            gemm_run_case(h, "edge", run_edge,
                          product_of(ms[i], ns[j], ks[turn * 7 % NUM_K], turn % NUM_TYPES, order, turn % 5 < 3));
        }
    }
    static const int64_t long_sums[][3] = {
        {1, 1032, 4104}, {17, 264, 8200}, {128, 128, 8192}, {200, 136, 6000}, {65, 72, 5001}};
    for (int i = 0; i < 15; i++) { // few tiles and a long k: split-k
        const int64_t *size = long_sums[i % 5];
        gemm_run_case(h, "long sums", run_edge,
                      product_of(size[0], size[1], size[2], i / 5 * 2 % NUM_TYPES, 2, i % 3 < 2));
    }
    static const int64_t many_tiles[][3] = {{1000, 1032, 2056}, {520, 1096, 4104}, {2056, 264, 200}};
    for (int i = 0; i < 3; i++) { // several tiles each way, more of them than multiprocessors
        const int64_t *size = many_tiles[i];
        gemm_run_case(h, "many tiles", run_edge, product_of(size[0], size[1], size[2], 2 * i, 2, true));
    }
    for (int type = 0; type < NUM_TYPES; type++)
        gemm_run_case(h, "many tiles", run_edge, product_of(520, 1032, 264, type, type % 4, type % 4 != 3));
}

/* ---- With --large ---- */

enum { BIG_M = 65536, BIG_N = 33000, BIG_K = 8, BIG_STEP = 1021 };

// Row by row, in rows of a buffer that the harness would need three copies of.
static void check_rows(th *h, const gemm_product *p, const lls_tensor *out) {
    uint16_t *got = malloc(2 * BIG_N * sizeof *got), *want = got + BIG_N;
    static const int64_t more[] = {1, 65074, 65075, 65076, BIG_M - 1}; // 65075: around element 2^31
    for (int64_t i = 0; i < BIG_M / BIG_STEP + 5; i++) {
        int64_t row = i < 5 ? more[i] : (i - 5) * BIG_STEP;
        if (lls_download(h->ctx, got, lls__at(out, row * BIG_N), BIG_N * sizeof *got, h->stream))
            th_fail(h, "download: %s", lls_last_error());
        gemm_product one = *p;
        one.m = 1;
        lls_tensor wanted = lls_tensor_make(want, p->out, (lls_device){LLS_CPU, 0}, 2, (int64_t[]){1, BIG_N});
        write_expected(&one, row, &wanted);
        if (memcmp(got, want, BIG_N * sizeof *got)) th_fail(h, "row %lld is wrong", (long long)row);
    }
    free(got);
}

void gemm_past_2_31_elements(th *h, const void *param) {
    (void)param;
    if (th_is_reference(h)) return;
    gemm_product p = {.m = BIG_M, .n = BIG_N, .k = BIG_K, .in = LLS_BF16, .out = LLS_BF16, .b = {.transposed = true}};
    lls_tensor a = gemm_matrix(h, p.in, 0, p.m, p.k, p.a, fill_a), b = gemm_matrix(h, p.in, 0, p.k, p.n, p.b, fill_b);
    void *memory;
    if (!th_ok(h, lls_malloc(h->ctx, (size_t)BIG_M * BIG_N * sizeof(uint16_t), &memory))) return;
    lls_tensor out = lls_tensor_make(memory, p.out, h->device, 2, (int64_t[]){BIG_M, BIG_N});
    lls_gemm_args args = gemm_args_of(h, &a, &b, &out);
    if (th_ok(h, lls_gemm(h->ctx, &args, h->stream))) check_rows(h, &p, &out);
    lls_free(h->ctx, memory);
}
