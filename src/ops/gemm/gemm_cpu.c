/* Blocked matrix product (Goto and van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication"; Van Zee and
 * van de Geijn 2015, "BLIS").
 * A task is a tile of out: it walks k in blocks, packs a block of a and one of b into its worker's scratch (they live
 * in L2), and multiplies the panels with a MICRO_M x MICRO_N inner loop whose sums stay in registers while one strip of
 * b (L1) meets each strip of a. Packing costs two passes over (tile_m + tile_n) * k elements for tile_m * tile_n * k
 * products: some 5 % at 256 x 512.
 * k is cut into the same blocks whatever the tiles and threads, and a sum adds its blocks in order: same bits for any
 * number of threads, tile size and m. */
#include "core/ctx.h"
#include "core/error.h"
#include "core/tensor.h"
#include "ops/gemm/gemm_kernels.h"
#include "ops/gemm/micro.h"
#include "ops/gemm/pack.h"

enum {
    MAX_WORDS = 256,              // a strip of b [256][MICRO_N] takes at most 32 KB of L1
    MAX_STRIPS_M = 256 / MICRO_M, // panels and sums of a 256 x 512 tile: 1.3 MB of L2
    MAX_STRIPS_N = 512 / MICRO_N,
    TASKS_PER_THREAD = 4,  // so that threads end together
    MIN_PRODUCTS = 1 << 18 // a thread's wake-up must be worth it: some 5 us
};

typedef struct job {
    lls__gemm_problem p;
    int64_t words, depth;       // of a block of k; the last may be shorter
    int64_t strips_m, strips_n; // of a tile
    int64_t tiles_m, tiles_n;
    float *scratch;                      // 32-bit words: fp32, or int8 and int32 as i8.h says
    int64_t a_words, b_words, sum_words; // of a worker's scratch
} job;

static int64_t ceil_div(int64_t x, int64_t y) {
    return (x + y - 1) / y;
}

static int64_t min64(int64_t x, int64_t y) {
    return x < y ? x : y;
}

// sums [strips_n][strips_m][MICRO_M][MICRO_N]
static void multiply_panels(bool i8, int64_t rows, int64_t cols, int64_t words, const float *a, const float *b,
                            bool first, float *sums) {
    for (int64_t col = 0; col < cols; col += MICRO_N, b += words * MICRO_N) {
        vf start[MICRO_V];
        for (int v = 0; v < MICRO_V; v++) start[v] = i8 ? i8_start(b + v * LLS_VF, words, MICRO_N) : vf_set1(0);
        const float *a_strip = a;
        for (int64_t row = 0; row < rows; row += MICRO_M, a_strip += words * MICRO_M, sums += MICRO_M * MICRO_N) {
            micro(i8, min64(rows - row, MICRO_M), words, a_strip, b, start, first, sums);
        }
    }
}

// out = sums + c in int32.
static void finish_row_i8(const lls__gemm_problem *p, const float *sums, int64_t n, int64_t out_offset,
                          int64_t c_offset) {
    int32_t *out = (int32_t *)p->out.data + out_offset;
    const int32_t *c = p->c.data ? (const int32_t *)p->c.data + c_offset : NULL;
    uint32_t sum[MICRO_N];
    memcpy(sum, sums, (size_t)n * sizeof *sum);
    for (int64_t i = 0; c && i < n; i++) sum[i] += (uint32_t)c[i * p->c.col];
    for (int64_t i = 0; i < n; i++) out[i * p->out.col] = (int32_t)sum[i];
}

// One row piece of out: n <= MICRO_N columns from their sums. Offsets are those of the first column.
static void finish_row(const lls__gemm_problem *p, const float *sums, int64_t n, int64_t out_offset, int64_t c_offset) {
    if (p->out.dtype == LLS_I32) {
        finish_row_i8(p, sums, n, out_offset, c_offset);
        return;
    }
    if (p->out.col == 1 && (!p->c.data || p->c.col == 1)) {
        for (int64_t i = 0; i < n; i += LLS_VF) {
            int64_t left = n - i;
            vf value = vf_load_f32(sums + i) * vf_set1(p->alpha);
            if (p->c.data) {
                vf c = left >= LLS_VF ? vf_load(p->c.dtype, p->c.data, c_offset + i)
                                      : vf_load_n(p->c.dtype, p->c.data, c_offset + i, left);
                value = vf_fma(c, vf_set1(p->beta), value);
            }
            if (left >= LLS_VF) vf_store(p->out.dtype, p->out.data, out_offset + i, value);
            else vf_store_n(p->out.dtype, p->out.data, out_offset + i, left, value);
        }
        return;
    }
    lls_tensor out = {.data = p->out.data, .dtype = p->out.dtype}, c = {.data = p->c.data, .dtype = p->c.dtype};
    for (int64_t i = 0; i < n; i++) {
        double value = (double)p->alpha * (double)sums[i];
        if (c.data) value += (double)p->beta * lls__get(&c, c_offset + i * p->c.col);
        lls__set(&out, out_offset + i * p->out.col, value);
    }
}

static void finish_tile(const lls__gemm_problem *p, int64_t batch, int64_t row0, int64_t col0, int64_t rows,
                        int64_t cols, const float *sums) {
    int64_t strips_m = ceil_div(rows, MICRO_M);
    for (int64_t row = 0; row < rows; row++) {
        int64_t out_offset = batch * p->out.batch + (row0 + row) * p->out.row + col0 * p->out.col;
        int64_t c_offset = batch * p->c.batch + (row0 + row) * p->c.row + col0 * p->c.col;
        for (int64_t col = 0; col < cols; col += MICRO_N) {
            const float *strip = sums +
                                 ((col / MICRO_N * strips_m + row / MICRO_M) * MICRO_M + row % MICRO_M) * MICRO_N;
            finish_row(p, strip, min64(cols - col, MICRO_N), out_offset + col * p->out.col, c_offset + col * p->c.col);
        }
    }
}

static const void *address(const lls__gemm_matrix *x, int64_t batch, int64_t row, int64_t col) {
    return (const char *)x->data + (batch * x->batch + row * x->row + col * x->col) * lls__elem_size(x->dtype);
}

static void tiles(void *arg, int64_t begin, int64_t end, int worker) {
    const job *j = arg;
    const lls__gemm_problem *p = &j->p;
    bool i8 = p->a.dtype == LLS_I8;
    float *a_panel = j->scratch + worker * (j->a_words + j->b_words + j->sum_words), *b_panel = a_panel + j->a_words,
          *sums = b_panel + j->b_words;
    for (int64_t i = begin; i < end; i++) {
        int64_t batch = i / (j->tiles_m * j->tiles_n);
        int64_t row0 = i / j->tiles_n % j->tiles_m * j->strips_m * MICRO_M,
                col0 = i % j->tiles_n * j->strips_n * MICRO_N;
        int64_t rows = min64(p->m - row0, j->strips_m * MICRO_M), cols = min64(p->n - col0, j->strips_n * MICRO_N);
        if (p->k == 0) memset(sums, 0, (size_t)j->sum_words * sizeof *sums);
        for (int64_t k = 0; k < p->k; k += j->depth) {
            int64_t depth = min64(p->k - k, j->depth), words = words_of(p->a.dtype, depth);
            pack(&(block){address(&p->a, batch, row0, k), p->a.dtype, p->a.row, p->a.col, rows, depth}, MICRO_M,
                 a_panel);
            pack(&(block){address(&p->b, batch, k, col0), p->b.dtype, p->b.col, p->b.row, cols, depth}, MICRO_N,
                 b_panel);
            if (i8) i8_finish_a(a_panel, words * ceil_div(rows, MICRO_M) * MICRO_M);
            multiply_panels(i8, rows, cols, words, a_panel, b_panel, k == 0, sums);
        }
        finish_tile(p, batch, row0, col0, rows, cols, sums);
    }
}

// out^T = b^T a^T: the same sums with the roles of a and b exchanged.
static void transpose_problem(lls__gemm_problem *p) {
    lls__gemm_matrix a = p->a;
    p->a = p->b, p->b = a;
    lls__gemm_matrix *all[] = {&p->a, &p->b, &p->c, &p->out};
    for (int i = 0; i < 4; i++) {
        int64_t row = all[i]->row;
        all[i]->row = all[i]->col, all[i]->col = row;
    }
    int64_t m = p->m;
    p->m = p->n, p->n = m;
}

// Strips a tile, at most `most`, such that the tiles are of about one size.
static int64_t balanced(int64_t strips, int64_t most) {
    return ceil_div(strips, ceil_div(strips, most));
}

static void choose_tiles(job *j, int threads) {
    int64_t all_m = ceil_div(j->p.m, MICRO_M), all_n = ceil_div(j->p.n, MICRO_N), most_m = MAX_STRIPS_M,
            most_n = MAX_STRIPS_N;
    for (;;) {
        j->strips_m = balanced(all_m, most_m), j->strips_n = balanced(all_n, most_n);
        j->tiles_m = ceil_div(all_m, j->strips_m), j->tiles_n = ceil_div(all_n, j->strips_n);
        if (threads == 1 || j->p.batch * j->tiles_m * j->tiles_n >= TASKS_PER_THREAD * threads) return;
        int64_t *longer = j->strips_m * MICRO_M > j->strips_n * MICRO_N ? &most_m : &most_n;
        int64_t strips = longer == &most_m ? j->strips_m : j->strips_n;
        if (strips <= 2) return;
        *longer = strips / 2;
    }
}

lls_status LLS_CPU(lls__gemm_cpu)(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)stream;
    job j = {.p = lls__gemm_problem_of(args)};
    lls__gemm_problem *p = &j.p;
    // Columns are the vector axis: they should be neighbours in out, and more than a few.
    bool column_major = p->out.row == 1 && p->out.col != 1, tall = p->n < MICRO_N && p->m > p->n;
    if (column_major ? !(p->m < MICRO_N && p->n > p->m) : tall) transpose_problem(p);

    int threads = lls_ctx_num_threads(ctx);
    choose_tiles(&j, threads);
    int64_t words = words_of(p->a.dtype, p->k), k_blocks = ceil_div(words, MAX_WORDS);
    j.words = k_blocks ? ceil_div(ceil_div(words, k_blocks), LLS_VF) * LLS_VF : 0;
    j.depth = j.words * a_word(p->a.dtype);
    j.a_words = j.words * j.strips_m * MICRO_M + PANEL_SLACK;
    j.b_words = j.words * j.strips_n * MICRO_N + PANEL_SLACK;
    j.sum_words = j.strips_m * j.strips_n * MICRO_M * MICRO_N;
    j.a_words = ceil_div(j.a_words, 16) * 16; // every part starts on a cache line
    void *scratch;
    LLS_TRY(lls__ctx_workspace(ctx, "gemm", (size_t)(threads * (j.a_words + j.b_words + j.sum_words)) * sizeof(float),
                               &scratch));
    j.scratch = scratch;
    int64_t products = min64(p->m, j.strips_m * MICRO_M) * min64(p->n, j.strips_n * MICRO_N) * (p->k + 1); // of a tile
    lls__parallel(ctx, p->batch * j.tiles_m * j.tiles_n, MIN_PRODUCTS / products + 1, tiles, &j);
    return LLS_OK;
}
