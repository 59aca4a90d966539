/* Blocked matrix product (Goto and van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication"; Van Zee and
 * van de Geijn 2015, "BLIS").
 * A task is a tile of out. It walks k in blocks and multiplies packed strips of a and b with a MICRO_M x MICRO_N inner
 * loop whose sums stay in registers, while one strip of b (L1) meets each strip of a (a block of the tile's rows, L2).
 * An operand that several tiles need is packed for all of them first, by all threads: a pass over (m + n) * k elements for
 * m * n * k products. One that a single tile needs (b, for few rows) is packed by that tile, a strip just before its use,
 * so that it is read from memory once and goes no further than L1.
 * k is cut into the same blocks whatever the tiles and threads, and a sum adds its blocks in order: same bits for any
 * number of threads, tile size and m. So every call is batch invariant. */
#include "core/ctx.h"
#include "core/error.h"
#include "core/tensor.h"
#include "ops/gemm/finish.h"
#include "ops/gemm/gemm_kernels.h"
#include "ops/gemm/micro.h"
#include "ops/gemm/pack.h"

enum {
    MAX_WORDS = 256,              // a strip of b [256][MICRO_N] takes at most 32 KB of L1
    MAX_STRIPS_M = 256 / MICRO_M, // a block of a tile's rows and the sums of 256 x 512: 0.8 MB of L2
    MAX_STRIPS_N = 512 / MICRO_N,
    MAX_PANEL_WORDS = 1 << 22, // 16 MB of either operand packed ahead
    MIN_USES_OF_A = 4,         // a block of a that each tile packs for itself is in L2 when it is used
    TASKS_PER_THREAD = 4,      // so that threads end together
    MIN_PRODUCTS = 1 << 18,    // a thread's wake-up must be worth it: some 5 us
    PACK_PRODUCTS = 16         // what packing an element costs
};

// One operand. Lanes are rows of a or columns of b.
typedef struct side {
    const lls__gemm_matrix *matrix;
    const lls__gemm_scale *scale;
    bool is_a;
    int64_t lanes, lane_stride, depth_stride;
    int64_t strips, tile_strips, tiles; // strips of `width` lanes; strips a tile; tiles
    int64_t strip_words;
    bool ahead;           // packed before the tiles begin
    int64_t chunk_tiles;  // as many tiles at a time as the panels have room for
    int64_t first, count; // strips packed now
    float *panels;        // [batches, or 1 when they share a matrix][k_blocks][count][strip_words]
    bool pending;         // not packed yet
} side;

typedef struct job {
    lls__gemm_problem p;
    bool i8;
    int64_t words, depth, k_blocks; // words and elements of a block of k; the last may be shorter
    side a, b;
    int64_t first_batch, batches, chunk_batches;
    float *scratch;                      // 32-bit words: fp32, or int8 and int32 as i8.h says
    int64_t a_words, b_words, sum_words; // of a worker's scratch
} job;

static int64_t ceil_div(int64_t x, int64_t y) {
    return (x + y - 1) / y;
}

static int64_t min64(int64_t x, int64_t y) {
    return x < y ? x : y;
}

// ---- Packing ----------------------------------------------------------------------------------------

static int64_t words_in_block(const job *j, int64_t k_block) {
    return min64(j->words, words_of(j->p.a.dtype, j->p.k - k_block * j->depth));
}

static void pack_strip(const job *j, const side *s, int64_t batch, int64_t k_block, int64_t strip, float *to) {
    int64_t lane = strip * (s->is_a ? MICRO_M : MICRO_N), k = k_block * j->depth,
            size = lls__elem_size(s->matrix->dtype);
    block x = {.data = lls__gemm_base(s->matrix, batch, size) + (lane * s->lane_stride + k * s->depth_stride) * size,
               .dtype = s->matrix->dtype,
               .lane_stride = s->lane_stride,
               .depth_stride = s->depth_stride,
               .lanes = s->lanes - lane,
               .depth = min64(j->p.k - k, j->depth),
               .scale = s->scale,
               .batch = batch,
               .line = lane,
               .k = k};
    if (!s->is_a) {
        pack(&x, MICRO_N, to);
        return;
    }
    pack(&x, MICRO_M, to);
    if (j->i8) i8_finish_a(to, words_in_block(j, k_block) * MICRO_M);
}

static bool one_matrix(const side *s) {
    return !s->matrix->pointers && s->matrix->batch == 0 && !(s->scale->blocks && s->scale->batch);
}

// Where a strip that is packed ahead lies.
static float *panel_strip(const job *j, const side *s, int64_t batch, int64_t k_block, int64_t strip) {
    int64_t slot = one_matrix(s) ? 0 : batch - j->first_batch;
    return s->panels + ((slot * j->k_blocks + k_block) * s->count + strip - s->first) * s->strip_words;
}

static int64_t num_pending(const job *j, const side *s) {
    return s->pending ? (one_matrix(s) ? 1 : j->batches) * j->k_blocks * s->count : 0;
}

static void pack_ahead(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    int64_t of_a = num_pending(j, &j->a);
    for (int64_t i = begin; i < end; i++) {
        const side *s = i < of_a ? &j->a : &j->b;
        int64_t at = i < of_a ? i : i - of_a, strip = s->first + at % s->count, k_block = at / s->count % j->k_blocks,
                batch = j->first_batch + at / s->count / j->k_blocks;
        pack_strip(j, s, batch, k_block, strip, panel_strip(j, s, batch, k_block, strip));
    }
}

// ---- A tile -----------------------------------------------------------------------------------------

typedef struct tile {
    int64_t batch, strip_m, strip_n;
    int64_t strips_m, strips_n;
    float *a, *b, *sums; // scratch: what is not packed ahead, and sums [strips_n][strips_m][MICRO_M][MICRO_N]
    finish finish;
} tile;

// With one block of k they go from one place, in L1, straight to out.
static float *sums_of(const job *j, const tile *t, int64_t strip_m, int64_t strip_n) {
    return j->k_blocks == 1 ? t->sums : t->sums + (strip_n * j->a.tile_strips + strip_m) * MICRO_M * MICRO_N;
}

// Packed strips of a and one of b; out too where the block is the last of k.
static void multiply_strip(const job *j, const tile *t, int64_t k_block, const float *a, const float *b,
                           int64_t strip_n) {
    vf start[MICRO_V];
    int64_t words = words_in_block(j, k_block), cols = min64(MICRO_N, j->p.n - strip_n * MICRO_N);
    for (int v = 0; v < MICRO_V; v++) start[v] = j->i8 ? i8_start(b + v * LLS_VF, words, MICRO_N) : vf_set1(0);
    const char *next = (const char *)(b + j->b.strip_words); // where the tile's next strip of b lies, if packed ahead
    for (int64_t i = 0; i < t->strips_m; i++, a += j->a.strip_words, next += words / PREFETCH_EVERY * 64) {
        int64_t row = (t->strip_m + i) * MICRO_M, rows = min64(MICRO_M, j->p.m - row);
        float *sums = sums_of(j, t, i, strip_n - t->strip_n);
        // the sums of the block before, which went to L2
        for (int line = 0; k_block > 0 && line < MICRO_M * MICRO_V; line++) __builtin_prefetch(sums + line * LLS_VF);
        micro(j->i8, rows, words, a, b, start, k_block == 0, sums, next);
        if (k_block == j->k_blocks - 1) finish_strip(&t->finish, row, rows, strip_n * MICRO_N, cols, sums);
    }
}

static void multiply_block(const job *j, const tile *t, int64_t k_block) {
    const float *a = t->a;
    if (j->a.ahead) a = panel_strip(j, &j->a, t->batch, k_block, t->strip_m);
    else
        for (int64_t i = 0; i < t->strips_m; i++)
            pack_strip(j, &j->a, t->batch, k_block, t->strip_m + i, t->a + i * j->a.strip_words);
    for (int64_t strip = t->strip_n; strip < t->strip_n + t->strips_n; strip++) {
        const float *b = t->b;
        if (j->b.ahead) b = panel_strip(j, &j->b, t->batch, k_block, strip);
        else pack_strip(j, &j->b, t->batch, k_block, strip, t->b);
        multiply_strip(j, t, k_block, a, b, strip);
    }
}

// k is 0.
static void finish_zeros(const job *j, const tile *t) {
    static const float zeros[MICRO_M * MICRO_N];
    for (int64_t m = t->strip_m; m < t->strip_m + t->strips_m; m++) {
        for (int64_t n = t->strip_n; n < t->strip_n + t->strips_n; n++)
            finish_strip(&t->finish, m * MICRO_M, min64(MICRO_M, j->p.m - m * MICRO_M), n * MICRO_N,
                         min64(MICRO_N, j->p.n - n * MICRO_N), zeros);
    }
}

static void tiles(void *arg, int64_t begin, int64_t end, int worker) {
    const job *j = arg;
    int64_t tiles_m = ceil_div(j->a.count, j->a.tile_strips), tiles_n = ceil_div(j->b.count, j->b.tile_strips);
    tile t = {.a = j->scratch + worker * (j->a_words + j->b_words + j->sum_words)};
    t.b = t.a + j->a_words, t.sums = t.b + j->b_words;
    for (int64_t i = begin; i < end; i++) {
        int64_t tile_m = i / tiles_n % tiles_m, tile_n = i % tiles_n;
        t.batch = j->first_batch + i / (tiles_m * tiles_n);
        t.finish = finish_of(&j->p, t.batch);
        t.strip_m = j->a.first + tile_m * j->a.tile_strips, t.strip_n = j->b.first + tile_n * j->b.tile_strips;
        t.strips_m = min64(j->a.tile_strips, j->a.first + j->a.count - t.strip_m);
        t.strips_n = min64(j->b.tile_strips, j->b.first + j->b.count - t.strip_n);
        if (j->k_blocks == 0) finish_zeros(j, &t);
        for (int64_t k_block = 0; k_block < j->k_blocks; k_block++) multiply_block(j, &t, k_block);
    }
}

// ---- The whole --------------------------------------------------------------------------------------

#define EXCHANGE(x, y)            \
    do {                          \
        __typeof__(x) old_ = (x); \
        (x) = (y), (y) = old_;    \
    } while (0)

// out^T = b^T a^T: the same sums with the roles of a and b exchanged.
static void transpose_problem(lls__gemm_problem *p) {
    EXCHANGE(p->a, p->b);
    EXCHANGE(p->m, p->n);
    EXCHANGE(p->scale_a, p->scale_b);
    EXCHANGE(p->scale_out, p->scale_out_col);
    lls__gemm_matrix *all[] = {&p->a, &p->b, &p->c, &p->out, &p->residual, &p->bias};
    for (int i = 0; i < 6; i++) EXCHANGE(all[i]->row, all[i]->col);
}

// Columns are the vector axis: they should be neighbours in out, and more than a few.
static bool better_transposed(const lls__gemm_problem *p) {
    if (p->gated) return false; // pairs are neighbouring columns
    bool column_major = p->out.row == 1 && p->out.col != 1, tall = p->n < MICRO_N && p->m > p->n;
    return column_major ? !(p->m < MICRO_N && p->n > p->m) : tall;
}

// Strips a tile, at most `most`, such that the tiles are of about one size.
static int64_t balanced(int64_t strips, int64_t most) {
    return ceil_div(strips, ceil_div(strips, most));
}

static void choose_tiles(job *j, int threads) {
    side *a = &j->a, *b = &j->b;
    // For few rows all the work is to read b: line by line, along k or across a tile of columns.
    int64_t most_m = MAX_STRIPS_M, most_n = a->strips == 1 && b->depth_stride == 1 ? 1 : MAX_STRIPS_N;
    for (;;) {
        a->tile_strips = balanced(a->strips, most_m), b->tile_strips = balanced(b->strips, most_n);
        a->tiles = ceil_div(a->strips, a->tile_strips), b->tiles = ceil_div(b->strips, b->tile_strips);
        if (threads == 1 || j->p.batch * a->tiles * b->tiles >= TASKS_PER_THREAD * threads) return;
        int64_t *longer = a->tile_strips * MICRO_M > b->tile_strips * MICRO_N ? &most_m : &most_n;
        int64_t strips = longer == &most_m ? a->tile_strips : b->tile_strips;
        if (strips <= 2) return;
        *longer = strips / 2;
    }
}

// Whether a side is packed ahead, and how much of it at a time.
static void choose_chunk(const job *j, side *s, const side *other) {
    int64_t tile_words = s->tile_strips * s->strip_words * j->k_blocks;
    s->ahead = other->tiles > (s->is_a && s->strips > 1 ? MIN_USES_OF_A : 1) && tile_words > 0 &&
               tile_words <= MAX_PANEL_WORDS;
    s->chunk_tiles = s->ahead ? balanced(s->tiles, MAX_PANEL_WORDS / tile_words) : s->tiles;
}

static int64_t panel_words(const job *j, const side *s) {
    return s->ahead ? s->chunk_tiles * s->tile_strips * s->strip_words * j->k_blocks : 0;
}

// As many matrices at a time as fit, one where not even that does.
static int64_t batches_at_a_time(const job *j) {
    int64_t batches = j->p.batch;
    const side *sides[] = {&j->a, &j->b};
    for (int i = 0; i < 2; i++) {
        if (sides[i]->chunk_tiles < sides[i]->tiles) return 1;
        int64_t words = panel_words(j, sides[i]);
        if (words > 0 && !one_matrix(sides[i])) batches = min64(batches, MAX_PANEL_WORDS / words);
    }
    return batches < 1 ? 1 : batches;
}

static void plan(job *j, int threads) {
    const lls__gemm_problem *p = &j->p;
    j->i8 = p->a.dtype == LLS_I8;
    int64_t words = words_of(p->a.dtype, p->k);
    j->k_blocks = ceil_div(words, MAX_WORDS);
    j->words = j->k_blocks ? ceil_div(ceil_div(words, j->k_blocks), LLS_VF) * LLS_VF : 0;
    j->depth = j->words * a_word(p->a.dtype);
    j->k_blocks = j->words ? ceil_div(words, j->words) : 0;
    j->a = (side){&p->a, &p->scale_a, true, p->m, p->a.row, p->a.col, .strips = ceil_div(p->m, MICRO_M)};
    j->b = (side){&p->b, &p->scale_b, false, p->n, p->b.col, p->b.row, .strips = ceil_div(p->n, MICRO_N)};
    j->a.strip_words = ceil_div(j->words * MICRO_M + STRIP_SLACK, 16) * 16; // every part starts on a cache line
    j->b.strip_words = j->words * MICRO_N;
    choose_tiles(j, threads);
    choose_chunk(j, &j->a, &j->b);
    choose_chunk(j, &j->b, &j->a);
    j->chunk_batches = batches_at_a_time(j);
    j->a_words = j->a.ahead ? 0 : j->a.tile_strips * j->a.strip_words;
    j->b_words = j->b.ahead ? 0 : j->b.strip_words;
    j->sum_words = (j->k_blocks == 1 ? 1 : j->a.tile_strips * j->b.tile_strips) * MICRO_M * MICRO_N;
}

static lls_status reserve(lls_ctx *ctx, job *j, int threads) {
    int64_t a = panel_words(j, &j->a) * (one_matrix(&j->a) ? 1 : j->chunk_batches);
    int64_t b = panel_words(j, &j->b) * (one_matrix(&j->b) ? 1 : j->chunk_batches);
    int64_t all = a + b + threads * (j->a_words + j->b_words + j->sum_words);
    void *words;
    LLS_TRY(lls__ctx_workspace(ctx, "gemm", (size_t)all * sizeof(float), &words));
    j->a.panels = words, j->b.panels = j->a.panels + a, j->scratch = j->b.panels + b;
    return LLS_OK;
}

static void next_chunk(side *s, int64_t first_tile) {
    s->first = first_tile * s->tile_strips;
    s->count = min64(s->chunk_tiles * s->tile_strips, s->strips - s->first);
}

static void run_chunk(lls_ctx *ctx, job *j) {
    int64_t strip_products = j->words * MICRO_N * PACK_PRODUCTS,
            to_pack = num_pending(j, &j->a) + num_pending(j, &j->b);
    if (to_pack > 0) lls__parallel(ctx, to_pack, MIN_PRODUCTS / strip_products + 1, pack_ahead, j);
    int64_t rows = min64(j->p.m, j->a.tile_strips * MICRO_M), cols = min64(j->p.n, j->b.tile_strips * MICRO_N);
    int64_t products = (rows + (j->b.ahead ? 0 : PACK_PRODUCTS)) * cols * (j->p.k + 1); // of a tile
    int64_t count = ceil_div(j->a.count, j->a.tile_strips) * ceil_div(j->b.count, j->b.tile_strips);
    lls__parallel(ctx, j->batches * count, MIN_PRODUCTS / products + 1, tiles, j);
}

lls_status LLS_CPU(lls__gemm_cpu_problem)(lls_ctx *ctx, const lls__gemm_problem *p) {
    job j = {.p = *p};
    if (better_transposed(&j.p)) transpose_problem(&j.p);
    int threads = lls_ctx_num_threads(ctx);
    plan(&j, threads);
    LLS_TRY(reserve(ctx, &j, threads));
    for (int64_t batch = 0; batch < j.p.batch; batch += j.chunk_batches) {
        j.first_batch = batch, j.batches = min64(j.chunk_batches, j.p.batch - batch);
        for (int64_t n = 0; n < j.b.tiles; n += j.b.chunk_tiles) {
            for (int64_t m = 0; m < j.a.tiles; m += j.a.chunk_tiles) {
                next_chunk(&j.a, m), next_chunk(&j.b, n);
                j.a.pending = j.a.ahead && (n == 0 || j.a.chunk_tiles < j.a.tiles);
                j.b.pending = j.b.ahead && m == 0;
                run_chunk(ctx, &j);
            }
        }
    }
    return LLS_OK;
}

lls_status LLS_CPU(lls__gemm_cpu)(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)stream;
    lls__gemm_problem p = lls__gemm_problem_of(args);
    return LLS_CPU(lls__gemm_cpu_problem)(ctx, &p);
}
