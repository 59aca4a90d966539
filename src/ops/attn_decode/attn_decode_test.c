/* attn_decode: known faults A01 to A11, D01 to D07 and D10 through contiguous and paged caches, batch invariance,
 * errors, products. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/attn_common/attn_test.h"

static const attn_form contiguous = ATTN_CONTIGUOUS, paged = ATTN_PAGED;

static void generate(th *h) {
    attn_generate(h, (attn_form[]){ATTN_CONTIGUOUS, ATTN_PAGED}, 2);
}

// A contiguous or paged problem of single queries: H(i)-like random data, no mask.
static attn_problem single_queries(int32_t batch, const int32_t *kv_lens, lls_dtype dtype, int32_t num_heads,
                                   int32_t num_kv_heads, int32_t head_dim) {
    attn_problem p = {.batch = batch,
                      .num_heads = num_heads,
                      .num_kv_heads = num_kv_heads,
                      .head_dim = head_dim,
                      .dtype = dtype,
                      .mask = ATTN_MASK(false, -1, -1)};
    for (int32_t b = 0; b < batch; b++) p.q_len[b] = 1, p.kv_len[b] = kv_lens[b];
    return p;
}

/* ---- D01: unused slots ---- */

static void d01(th *h, const void *param) {
    static const double fills[] = {0, NAN, INFINITY};
    static const char *const names[] = {"zeros", "NaN", "inf"};
    for (int dim = 64; dim <= 128; dim += 64) {
        attn_problem p[3];
        for (int f = 0; f < 3; f++) {
            p[f] = single_queries(3, (const int32_t[]){1, 13, 17}, LLS_F16, 6, 2, dim);
            p[f].unused = fills[f], p[f].has_unused = true, p[f].extra_capacity = 3, p[f].out_name = names[f],
            p[f].num_splits = 2;
            if (!th_ok(h, attn_run(h, &p[f], *(const attn_form *)param))) return;
        }
        th_expect_bits_equal(h, &p[1].out, &p[0].out);
        th_expect_bits_equal(h, &p[2].out, &p[0].out);
        th_expect_bits_equal(h, &p[1].lse, &p[0].lse);
    }
}

/* ---- D03: page-table entries ---- */

static void d03_padding(th *h, const void *param) {
    (void)param;
    const int32_t garbage[] = {-1, 0x7fffffff, 6, (int32_t)0xdeadbeef};
    attn_problem good = single_queries(2, (const int32_t[]){33, 5}, LLS_F16, 6, 2, 64);
    good.extra_capacity = 8;
    attn_problem bad = good;
    bad.padding = garbage, bad.num_padding = 4, bad.out_name = "garbage in the padding";
    if (!th_ok(h, attn_run(h, &good, ATTN_PAGED)) || !th_ok(h, attn_run(h, &bad, ATTN_PAGED))) return;
    th_expect_bits_equal(h, &bad.out, &good.out);
}

// An id outside the pool, or a length outside the cache, inside the used range: an error on the CPU; on CUDA NaN for
// that sequence alone.
static void d03_used(th *h, const void *param) {
    int32_t bad_value = *(const int32_t *)param; // page id when negative or huge; 1000: a kv_len
    int64_t q_shape[] = {2, 1, 2, 64}, pool[] = {4, 16, 1, 64}, table_shape[] = {2, 2}, batch = 2;
    int32_t table[] = {2, 1, 0, bad_value}, lens[] = {20, 17};
    if (bad_value == 1000) table[3] = 3, lens[1] = 33;
    for (int splits = 1; splits <= 3; splits += 2) {
        lls_tensor q = th_normal(h, LLS_F16, 4, q_shape, NULL, 1), k = th_normal(h, LLS_F16, 4, pool, NULL, 1);
        lls_tensor out = th_output(h, "out", LLS_F16, 4, q_shape, NULL, -1),
                   t = th_data(h, LLS_I32, 2, table_shape, table), l = th_data(h, LLS_I32, 1, &batch, lens);
        lls_attn_decode_args a = LLS_ATTN_DECODE_ARGS_INIT;
        a.q = &q, a.k_cache = &k, a.v_cache = &k, a.page_table = &t, a.kv_lens = &l, a.out = &out,
        a.num_splits = splits, a.variant = h->variant;
        lls_status status = lls_attn_decode(h->ctx, &a, h->stream);
        if (h->device.type == LLS_CPU) {
            th_expect_error(h, status, LLS_ERR_ARGUMENT,
                            bad_value == 1000 ? "kv_lens[1] is 33, must be 0 to the cache's 32"
                                              : "page_table[1, 1] is ");
        } else if (th_ok(h, status)) {
            for (int64_t i = 0; i < 128; i++) {
                if (isnan(th_value(h, &out, i)))
                    th_fail(h, "element %lld of the healthy sequence is NaN", (long long)i);
                if (!isnan(th_value(h, &out, 128 + i)))
                    th_fail(h, "element %lld of the broken sequence is not NaN", (long long)i);
            }
        }
    }
}

/* ---- D04: page sizes ---- */

// Sequences 1 and 5 are the same.
static double twins(const attn_problem *p, char which, int64_t b, int64_t row, int64_t head, int64_t d) {
    return attn_random(p, which, b == 5 ? 1 : b, row, head, d);
}

static void d04(th *h, const void *param) {
    int32_t page = *(const int32_t *)param;
    attn_problem p = single_queries(6, (const int32_t[]){1, 2, page, page + 1, 3 * page - 1, 2}, LLS_F16, 4, 2, 64);
    p.fill = twins, p.page_size = page, p.tol = 1e-3;
    if (!th_ok(h, attn_run(h, &p, ATTN_PAGED))) return;
    for (int head = 0; head < 4; head++) {
        for (int d = 0; d < 64; d++) {
            double a = attn_out(h, &p, 1, 0, head, d), b = attn_out(h, &p, 5, 0, head, d);
            if (a != b) th_fail(h, "equal sequences give %.9g and %.9g", a, b);
        }
    }
}

// A contiguous cache taken as a pool whose pages are its sequences: pages as long as a cache may be, of any size, with
// gaps between pages and rows and with heads in any place.
static void cache_as_pages(th *h, const void *param) {
    enum { SEQUENCES = 4, BATCH = 3, KV_HEADS = 2, DIM = 32 };
    int64_t len = *(const int32_t *)param, q_shape[] = {BATCH, 2, 4, DIM}, cache[] = {SEQUENCES, len, KV_HEADS, DIM};
    int64_t row = 2 * KV_HEADS * DIM + 8, rows_first[] = {len * row + 40, row, DIM + 4, 1},
            heads_first[] = {KV_HEADS * len * DIM + 24, DIM, len * DIM, 1};
    int64_t table_shape[] = {BATCH, 2}, batch = BATCH;
    int32_t lens[] = {(int32_t)len, 2, (int32_t)len / 2 + 1};
    lls_tensor q = th_normal(h, LLS_F32, 4, q_shape, NULL, 1), k = th_normal(h, LLS_F16, 4, cache, rows_first, 1),
               v = th_normal(h, LLS_F16, 4, cache, heads_first, 1), l = th_data(h, LLS_I32, 1, &batch, lens);
    lls_tensor in_order = th_data(h, LLS_I32, 2, table_shape, (int32_t[]){0, -1, 1, -1, 2, -1}),
               shuffled = th_data(h, LLS_I32, 2, table_shape, (int32_t[]){3, -1, 0, -1, 2, -1});
    in_order.shape[1] = shuffled.shape[1] = 1; // its rows lie apart, too
    lls_tensor want = th_output(h, "contiguous", LLS_F32, 4, q_shape, NULL, 1e-4),
               out = th_output(h, "paged", LLS_F32, 4, q_shape, NULL, 1e-4),
               other = th_output(h, "shuffled", LLS_F32, 4, q_shape, NULL, 1e-4);
    lls_attn_decode_args a = LLS_ATTN_DECODE_ARGS_INIT;
    a.mask.causal = true, a.q = &q, a.k_cache = &k, a.v_cache = &v, a.kv_lens = &l, a.variant = h->variant;
    a.page_table = &in_order, a.out = &out;
    if (!th_ok(h, lls_attn_decode(h->ctx, &a, h->stream))) return;
    a.page_table = &shuffled, a.out = &other;
    if (!th_ok(h, lls_attn_decode(h->ctx, &a, h->stream))) return;
    k.shape[0] = v.shape[0] = BATCH;
    a.page_table = NULL, a.out = &want;
    if (!th_ok(h, lls_attn_decode(h->ctx, &a, h->stream))) return;
    th_expect_bits_equal(h, &out, &want);
    if (th_value(h, &other, 0) == th_value(h, &want, 0))
        th_fail(h, "sequence 0 read its own rows, not those of page 3");
}

/* ---- D06: offsets past 2^31 and 2^32 elements; CUDA with 16 GiB free ---- */

enum { FAR_PAGE_ROWS = 16, FAR_DIM = 128, FAR_PAGE = FAR_PAGE_ROWS * FAR_DIM };

static bool pool_of_sevens(th *h, const int64_t *pages, int count, int64_t num_pages, void **pool) {
    size_t bytes = (size_t)num_pages * FAR_PAGE * 2, chunk = (size_t)64 << 20;
    if (lls_malloc(h->ctx, bytes, pool)) {
        th_fail(h, "pool: %s", lls_last_error());
        return false;
    }
    uint16_t *block = malloc(chunk);
    memset(block, 0xff, chunk);
    for (size_t at = 0; at < bytes; at += chunk)
        lls_upload(h->ctx, (char *)*pool + at, block, bytes - at < chunk ? bytes - at : chunk, h->stream);
    for (int i = 0; i < FAR_PAGE; i++) block[i] = 0x40e0; // 7 in bf16
    for (int i = 0; i < count; i++)
        lls_upload(h->ctx, (char *)*pool + pages[i] * FAR_PAGE * 2, block, FAR_PAGE * 2, h->stream);
    free(block);
    return true;
}

static void d06(th *h, const void *param) {
    (void)param;
    bool far = h->device.type == LLS_CUDA; // elsewhere the same with near pages, as the oracle
    int64_t pages[] = {far ? (1 << 20) - 1 : 0, far ? 1 << 20 : 1, far ? 1 << 21 : 2, far ? (1 << 21) + 1 : 3},
            num_pages = pages[3] + 1, batch = 2;
    void *pool[2];
    if (!pool_of_sevens(h, pages, 4, num_pages, &pool[0])) return;
    if (!pool_of_sevens(h, pages, 4, num_pages, &pool[1])) {
        lls_free(h->ctx, pool[0]);
        return;
    }
    int32_t table[] = {(int32_t)pages[3], (int32_t)pages[0], (int32_t)pages[2], (int32_t)pages[1]}, lens[] = {32, 25};
    int64_t q_shape[] = {2, 1, 4, FAR_DIM}, table_shape[] = {2, 2},
            pool_shape[] = {num_pages, FAR_PAGE_ROWS, 1, FAR_DIM};
    lls_tensor q = th_normal(h, LLS_BF16, 4, q_shape, NULL, 1), t = th_data(h, LLS_I32, 2, table_shape, table),
               l = th_data(h, LLS_I32, 1, &batch, lens);
    lls_tensor k = lls_tensor_make(pool[0], LLS_BF16, h->device, 4, pool_shape),
               v = lls_tensor_make(pool[1], LLS_BF16, h->device, 4, pool_shape);
    lls_tensor out = th_output(h, "paged", LLS_BF16, 4, q_shape, NULL, 0),
               apart = th_output(h, "far batches", LLS_BF16, 4, q_shape, NULL, 0);
    lls_attn_decode_args a = LLS_ATTN_DECODE_ARGS_INIT;
    a.q = &q, a.k_cache = &k, a.v_cache = &v, a.page_table = &t, a.kv_lens = &l, a.out = &out, a.variant = h->variant;
    if (th_ok(h, lls_attn_decode(h->ctx, &a, h->stream))) {
        for (int64_t i = 0; i < 2 * 4 * FAR_DIM; i += 61) th_expect_near(h, &out, i, 7, 0);
        // A contiguous cache of two sequences whose first rows lie 2^20 - 1 and 2^21 pages into the pool.
        int32_t short_lens[] = {16, 9};
        lls_tensor near = th_data(h, LLS_I32, 1, &batch, short_lens), far_k = k, far_v = v;
        far_k.shape[0] = far_v.shape[0] = 2;
        far_k.stride[0] = far_v.stride[0] = (pages[2] - pages[0]) * FAR_PAGE;
        far_k.data = (char *)pool[0] + pages[0] * FAR_PAGE * 2, far_v.data = (char *)pool[1] + pages[0] * FAR_PAGE * 2;
        a.k_cache = &far_k, a.v_cache = &far_v, a.page_table = NULL, a.kv_lens = &near, a.out = &apart;
        if (th_ok(h, lls_attn_decode(h->ctx, &a, h->stream))) {
            for (int64_t i = 0; i < 2 * 4 * FAR_DIM; i += 61) th_expect_near(h, &apart, i, 7, 0);
        }
    }
    lls_free(h->ctx, pool[0]);
    lls_free(h->ctx, pool[1]);
}

/* ---- D07: splits ---- */

static void d07(th *h, const void *param) {
    int32_t kv_len = *(const int32_t *)param;
    static const int32_t splits[] = {1, 2, 3, 7, 16, 32, 128};
    enum { HEADS = 16, DIM = 128, APART = DIM + 8, EXTENT = (HEADS - 1) * APART + DIM };
    int repeats = th_is_reference(h) ? 1 : h->device.type == LLS_CUDA || kv_len < 100 ? 50 : 3;
    attn_problem p = single_queries(1, &kv_len, LLS_F16, HEADS, 8, DIM);
    p.tol = 1e-3;
    if (!th_ok(h, attn_run(h, &p, ATTN_CONTIGUOUS))) return;
    for (int s = 0; s < 7; s++) {
        // Every second output has gaps between its heads: the merge must not assume the layout of its parts.
        int64_t shape[] = {1, 1, HEADS, DIM}, gaps[] = {HEADS * APART, HEADS * APART, APART, 1};
        lls_tensor out = th_output(h, "split", LLS_F16, 4, shape, s % 2 ? gaps : NULL, 1e-3);
        lls_attn_decode_args a = LLS_ATTN_DECODE_ARGS_INIT;
        a.q = &p.q, a.k_cache = &p.k, a.v_cache = &p.v, a.kv_lens = &p.kv_lens, a.out = &out, a.num_splits = splits[s],
        a.variant = h->variant;
        uint16_t first[EXTENT], again[EXTENT];
        size_t bytes = 2 * (s % 2 ? EXTENT : HEADS * DIM);
        for (int r = 0; r < repeats; r++) {
            size_t workspace;
            if (!th_ok(h, lls_attn_decode_workspace(h->ctx, &a, &workspace))) return;
            th_poison_workspace(h, workspace);
            if (!th_ok(h, lls_attn_decode(h->ctx, &a, h->stream))) return;
            lls_download(h->ctx, r ? again : first, out.data, bytes, h->stream);
            if (r && memcmp(first, again, bytes))
                th_fail(h, "%d splits of %d keys: repeat %d differs in bits", splits[s], kv_len, r);
        }
    }
}

/* ---- Batch-mates ---- */

static void alone_or_in_a_batch(th *h, const void *param) {
    attn_problem batch = single_queries(5, (const int32_t[]){700, 3, 255, 0, 1025}, LLS_F32, 9, 3, 64);
    batch.kv_dtype = LLS_F16;
    batch.mask.causal = true;
    if (!th_ok(h, attn_run(h, &batch, *(const attn_form *)param))) return;
    attn_problem alone = batch;
    alone.batch = 1, alone.out_name = "alone";
    if (!th_ok(h, attn_run(h, &alone, *(const attn_form *)param))) return;
    for (int head = 0; head < 9; head++) {
        for (int d = 0; d < 64; d += 5) {
            double got = attn_out(h, &batch, 0, 0, head, d), want = attn_out(h, &alone, 0, 0, head, d);
            if (got != want) th_fail(h, "head %d column %d is %.9g in a batch, %.9g alone", head, d, got, want);
        }
    }
}

// One call for prompts, single tokens and speculated ones: what an engine's step looks like.
static void engine_step(th *h, const void *param) {
    (void)param;
    attn_problem p = {.batch = 5,
                      .q_len = {61, 1, 4, 0, 1},
                      .kv_len = {61, 601, 260, 7, 32},
                      .num_heads = 9,
                      .num_kv_heads = 3,
                      .head_dim = 64,
                      .dtype = LLS_F32,
                      .kv_dtype = LLS_F16,
                      .mask = ATTN_MASK(true, -1, -1),
                      .page_size = 32};
    th_ok(h, attn_run(h, &p, ATTN_PAGED));
}

/* ---- Errors ---- */

static void errors(th *h, const void *param) {
    (void)param;
    int64_t q_shape[] = {2, 1, 6, 16}, cache[] = {2, 8, 3, 16}, cache4[] = {2, 8, 4, 16}, batch = 2, three = 3,
            table_shape[] = {3, 1};
    int32_t lens[] = {8, 2}, ids[] = {0, 1, 1};
    lls_tensor q = th_normal(h, LLS_F32, 4, q_shape, NULL, 1), k = th_normal(h, LLS_F16, 4, cache, NULL, 1),
               k4 = th_normal(h, LLS_F16, 4, cache4, NULL, 1);
    lls_tensor l = th_data(h, LLS_I32, 1, &batch, lens), l3 = th_data(h, LLS_I32, 1, &three, ids),
               t = th_data(h, LLS_I32, 2, table_shape, ids);
    lls_tensor out = th_output(h, "out", LLS_F32, 4, q_shape, NULL, 0),
               lse = th_output(h, "lse", LLS_F32, 3, (int64_t[]){2, 6, 2}, NULL, 0);
    lls_attn_decode_args base = LLS_ATTN_DECODE_ARGS_INIT, a;
    base.q = &q, base.k_cache = &k, base.v_cache = &k, base.kv_lens = &l, base.out = &out, base.variant = h->variant;
    a = base, a.k_cache = a.v_cache = &k4;
    th_expect_error(h, lls_attn_decode(h->ctx, &a, h->stream), LLS_ERR_SHAPE,
                    "q has 6 heads, must be a multiple of the 4 heads of k_cache");
    a = base, a.v_cache = &k4;
    th_expect_error(h, lls_attn_decode(h->ctx, &a, h->stream), LLS_ERR_SHAPE,
                    "v_cache.shape[2] is 4, must equal k_cache = 3");
    a = base, a.num_splits = 129;
    th_expect_error(h, lls_attn_decode(h->ctx, &a, h->stream), LLS_ERR_ARGUMENT, "num_splits is 129, must be 0 to 128");
    a = base, a.num_splits = -1;
    th_expect_error(h, lls_attn_decode(h->ctx, &a, h->stream), LLS_ERR_ARGUMENT, "num_splits is -1");
    a = base, a.score.softcap = -2;
    th_expect_error(h, lls_attn_decode(h->ctx, &a, h->stream), LLS_ERR_ARGUMENT, "softcap is -2");
    a = base, a.kv_lens = NULL;
    th_expect_error(h, lls_attn_decode(h->ctx, &a, h->stream), LLS_ERR_ARGUMENT, "kv_lens is NULL");
    a = base, a.kv_lens = &l3;
    th_expect_error(h, lls_attn_decode(h->ctx, &a, h->stream), LLS_ERR_SHAPE,
                    "kv_lens.shape[0] is 3, must equal the batch = 2");
    a = base, a.page_table = &t;
    th_expect_error(h, lls_attn_decode(h->ctx, &a, h->stream), LLS_ERR_SHAPE,
                    "page_table.shape[0] is 3, must equal the batch = 2");
    a = base, a.lse = &lse;
    th_expect_error(h, lls_attn_decode(h->ctx, &a, h->stream), LLS_ERR_SHAPE,
                    "lse.shape[2] is 2, must equal the rows of q = 1");
    a = base, a.out = &q;
    th_expect_error(h, lls_attn_decode(h->ctx, &a, h->stream), LLS_ERR_ALIAS, "out at");
    a = base, a.variant = "no_such_rung";
    th_expect_error(h, lls_attn_decode(h->ctx, &a, h->stream), LLS_ERR_VARIANT, "no_such_rung");

    lls_tensor ragged = q, ragged_out = out;
    ragged.ndim = ragged_out.ndim = 3;
    memmove(ragged.shape, q.shape + 1, 3 * sizeof *q.shape), memmove(ragged.stride, q.stride + 1, 3 * sizeof *q.stride);
    memmove(ragged_out.shape, q.shape + 1, 3 * sizeof *q.shape),
        memmove(ragged_out.stride, q.stride + 1, 3 * sizeof *q.stride);
    ragged.shape[0] = ragged_out.shape[0] = 2;
    lls_tensor cu = th_data(h, LLS_I32, 1, &three, (int32_t[]){0, 1, 2});
    a = base, a.q = &ragged, a.out = &ragged_out, a.cu_seqlens_q = &cu;
    th_expect_error(h, lls_attn_decode(h->ctx, &a, h->stream), LLS_ERR_ARGUMENT,
                    "max_q_len is 0, must be at least the longest q_len");
}

#define BOTH(name, run)                              \
    {name " contiguous", run, &contiguous, false}, { \
        name " paged", run, &paged, false            \
    }
#define D04(page) \
    { "D04 page size " #page, d04, &(const int32_t){page}, false }
#define D07(keys) \
    { "D07 splits of " #keys " keys", d07, &(const int32_t){keys}, false }
static const th_case cases[] = {
    BOTH("A01 bottom-right causal", attn_a01),
    {"A03 empty sequences paged", attn_a03, &paged, false},
    BOTH("A05 head_dims", attn_a05),
    BOTH("A06 group sizes", attn_a06),
    BOTH("A07 window", attn_a07),
    BOTH("A08 softcap", attn_a08),
    BOTH("A09 very negative logits", attn_a09),
    BOTH("D01 unused slots", d01),
    {"D03 padding of the page table", d03_padding, NULL, false},
    {"D03 used page -1", d03_used, &(const int32_t){-1}, false},
    {"D03 used page past the pool", d03_used, &(const int32_t){4}, false},
    {"D03 kv_len past the cache", d03_used, &(const int32_t){1000}, false},
    D04(1),
    D04(3),
    D04(7),
    D04(16),
    D04(48),
    D04(256),
    D04(512),
    {"D04 cache as pages of 3", cache_as_pages, &(const int32_t){3}, false},
    {"D04 cache as pages of 1000", cache_as_pages, &(const int32_t){1000}, false},
    {"D04 cache as pages of 4096", cache_as_pages, &(const int32_t){4096}, false},
    {"D06 offsets past 2^32", d06, NULL, true},
    D07(1),
    D07(65),
    D07(4096),
    BOTH("D10 lse of equal logits", attn_lse_of_equals),
    BOTH("alone or in a batch", alone_or_in_a_batch),
    {"engine step", engine_step, NULL, false},
    {"errors", errors, NULL, false},
};

const th_suite th_suite_attn_decode = {"attn_decode", cases, sizeof cases / sizeof *cases, generate};
