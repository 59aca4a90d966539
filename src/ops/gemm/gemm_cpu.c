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
#include "ops/gemm/pack.h"

// Sums take MICRO_M * MICRO_V of the level's 32 (AVX-512) or 16 vector registers; the rest hold a row of b and the
// broadcast element of a.
#if LLS_VF == 16
enum { MICRO_M = 14, MICRO_V = 2 };
#elif LLS_VF == 8
enum { MICRO_M = 6, MICRO_V = 2 };
#else
enum { MICRO_M = 4, MICRO_V = 2 };
#endif
enum {
    MICRO_N = MICRO_V * LLS_VF,
    MAX_DEPTH = 256,              // a strip of b [256][MICRO_N] takes at most 32 KB of L1
    MAX_STRIPS_M = 256 / MICRO_M, // panels and sums of a 256 x 512 tile: 1.3 MB of L2
    MAX_STRIPS_N = 512 / MICRO_N,
    TASKS_PER_THREAD = 4,  // so that threads end together
    MIN_PRODUCTS = 1 << 18 // a thread's wake-up must be worth it: some 5 us
};

typedef struct job {
    lls__gemm_problem p;
    int64_t depth;              // k of a block; the last may be shorter
    int64_t strips_m, strips_n; // of a tile
    int64_t tiles_m, tiles_n;
    float *scratch;
    int64_t a_floats, b_floats, sum_floats; // of a worker's scratch
} job;

static int64_t ceil_div(int64_t x, int64_t y) {
    return (x + y - 1) / y;
}

static int64_t min64(int64_t x, int64_t y) {
    return x < y ? x : y;
}

// sums [MICRO_M][MICRO_N] = or += a [depth][MICRO_M]^T b [depth][MICRO_N], the first `rows` of them.
LLS_INLINE void micro_kernel(int rows, int64_t depth, const float *a, const float *b, bool first, float *sums) {
    vf sum[MICRO_M][MICRO_V];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < MICRO_V; v++) sum[r][v] = vf_set1(0);
    }
    for (int64_t k = 0; k < depth; k++, a += MICRO_M, b += MICRO_N) {
        vf row[MICRO_V];
#pragma GCC unroll 4
        for (int v = 0; v < MICRO_V; v++) row[v] = vf_load_f32(b + v * LLS_VF);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            vf element = vf_set1(a[r]);
#pragma GCC unroll 4
            for (int v = 0; v < MICRO_V; v++) sum[r][v] = vf_fma(element, row[v], sum[r][v]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < MICRO_V; v++) {
            float *to = sums + r * MICRO_N + v * LLS_VF;
            vf_store_f32(to, first ? sum[r][v] : vf_load_f32(to) + sum[r][v]);
        }
    }
}

// Few rows need few sums: without the shorter forms one row would cost as much as MICRO_M.
static void micro(int64_t rows, int64_t depth, const float *a, const float *b, bool first, float *sums) {
    if (rows == 1) micro_kernel(1, depth, a, b, first, sums);
    else if (rows == 2) micro_kernel(2, depth, a, b, first, sums);
    else if (rows <= 4 && MICRO_M > 4) micro_kernel(4, depth, a, b, first, sums);
    else if (rows <= 8 && MICRO_M > 8) micro_kernel(8, depth, a, b, first, sums);
    else micro_kernel(MICRO_M, depth, a, b, first, sums);
}

// sums [strips_n][strips_m][MICRO_M][MICRO_N]
static void multiply_panels(int64_t rows, int64_t cols, int64_t depth, const float *a, const float *b, bool first,
                            float *sums) {
    for (int64_t col = 0; col < cols; col += MICRO_N, b += depth * MICRO_N) {
        const float *a_strip = a;
        for (int64_t row = 0; row < rows; row += MICRO_M, a_strip += depth * MICRO_M, sums += MICRO_M * MICRO_N) {
            micro(min64(rows - row, MICRO_M), depth, a_strip, b, first, sums);
        }
    }
}

// One row piece of out: n <= MICRO_N columns from their sums. Offsets are those of the first column.
static void finish_row(const lls__gemm_problem *p, const float *sums, int64_t n, int64_t out_offset, int64_t c_offset) {
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
    float *a_panel = j->scratch + worker * (j->a_floats + j->b_floats + j->sum_floats),
          *b_panel = a_panel + j->a_floats, *sums = b_panel + j->b_floats;
    for (int64_t i = begin; i < end; i++) {
        int64_t batch = i / (j->tiles_m * j->tiles_n);
        int64_t row0 = i / j->tiles_n % j->tiles_m * j->strips_m * MICRO_M,
                col0 = i % j->tiles_n * j->strips_n * MICRO_N;
        int64_t rows = min64(p->m - row0, j->strips_m * MICRO_M), cols = min64(p->n - col0, j->strips_n * MICRO_N);
        if (p->k == 0) memset(sums, 0, (size_t)j->sum_floats * sizeof *sums);
        for (int64_t k = 0; k < p->k; k += j->depth) {
            int64_t depth = min64(p->k - k, j->depth);
            pack(&(block){address(&p->a, batch, row0, k), p->a.dtype, p->a.row, p->a.col, rows, depth}, MICRO_M,
                 a_panel);
            pack(&(block){address(&p->b, batch, k, col0), p->b.dtype, p->b.col, p->b.row, cols, depth}, MICRO_N,
                 b_panel);
            multiply_panels(rows, cols, depth, a_panel, b_panel, k == 0, sums);
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
    int64_t k_blocks = ceil_div(p->k, MAX_DEPTH);
    j.depth = k_blocks ? ceil_div(ceil_div(p->k, k_blocks), LLS_VF) * LLS_VF : 0;
    j.a_floats = j.depth * j.strips_m * MICRO_M + PANEL_SLACK;
    j.b_floats = j.depth * j.strips_n * MICRO_N + PANEL_SLACK;
    j.sum_floats = j.strips_m * j.strips_n * MICRO_M * MICRO_N;
    j.a_floats = ceil_div(j.a_floats, 16) * 16; // every part starts on a cache line
    void *scratch;
    LLS_TRY(lls__ctx_workspace(ctx, "gemm",
                               (size_t)(threads * (j.a_floats + j.b_floats + j.sum_floats)) * sizeof(float), &scratch));
    j.scratch = scratch;
    int64_t products = min64(p->m, j.strips_m * MICRO_M) * min64(p->n, j.strips_n * MICRO_N) * (p->k + 1); // of a tile
    lls__parallel(ctx, p->batch * j.tiles_m * j.tiles_n, MIN_PRODUCTS / products + 1, tiles, &j);
    return LLS_OK;
}
