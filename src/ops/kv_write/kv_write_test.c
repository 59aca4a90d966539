/* kv_write: K01, the append part of D03, D04 and D06, G02 (zero sizes), dtype pairs, cache layouts, errors. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/harness.h"

typedef enum layout {
    NHD,
    HND,
    KV_IN_PAGE
} layout; // a page as [slots, heads, width], [heads, slots, width], or keys and values in one page

typedef struct params {
    int64_t tokens, page_size, num_pages, heads, width, width_v;
    lls_dtype dtype, cache;
    layout layout;
} params;

typedef struct caches {
    lls_tensor k, v;
} caches;

static lls_kv_write_args base_args(const th *h, const lls_tensor *k, const lls_tensor *v, const caches *c,
                                   const lls_tensor *slots) {
    lls_kv_write_args args = LLS_KV_WRITE_ARGS_INIT;
    args.k = k, args.v = v, args.k_cache = &c->k, args.v_cache = &c->v, args.slots = slots, args.variant = h->variant;
    return args;
}

// Both caches full of -7 and registered as outputs, to be compared exactly: what no slot names must stay.
static caches make_caches(th *h, const params *p) {
    caches c;
    if (p->layout == KV_IN_PAGE) {
        lls_tensor both =
            th_constant(h, p->cache, 5, (int64_t[]){p->num_pages, 2, p->page_size, p->heads, p->width}, NULL, -7);
        th_also_output(h, "kv_cache", &both, 0);
        c.k = both;
        c.k.ndim = 4;
        for (int i = 1; i < 4; i++) c.k.shape[i] = both.shape[i + 1], c.k.stride[i] = both.stride[i + 1];
        c.v = c.k;
        c.v.data = (char *)both.data + both.stride[1] * lls_dtype_block_bytes(p->cache);
        return c;
    }
    for (int side = 0; side < 2; side++) {
        int64_t n = p->page_size, heads = p->heads, width = side ? p->width_v : p->width;
        int64_t hnd[] = {heads * n * width, width, n * width, 1};
        lls_tensor *t = side ? &c.v : &c.k;
        *t = th_constant(h, p->cache, 4, (int64_t[]){p->num_pages, n, heads, width}, p->layout == HND ? hnd : NULL, -7);
        th_also_output(h, side ? "v_cache" : "k_cache", t, 0);
    }
    return c;
}

// Token t goes to slot (t * 5 + 2) mod capacity; with 5 and the capacity coprime no two meet. Every fourth is padding.
static void random_case(th *h, const void *param) {
    const params *p = param;
    int64_t slots[64], k_shape[] = {p->tokens, p->heads, p->width}, v_shape[] = {p->tokens, p->heads, p->width_v};
    for (int64_t t = 0; t < p->tokens; t++)
        slots[t] = t % 4 == 3 ? -1 - t : (t * 5 + 2) % (p->num_pages * p->page_size);
    lls_tensor slot_tensor = th_data(h, LLS_I64, 1, &p->tokens, slots);
    int64_t packed[] = {p->heads * p->width * 3 + 1, p->width, 1}; // k as a slice of a packed projection, v contiguous
    lls_tensor k = th_normal(h, p->dtype, 3, k_shape, packed, 1), v = th_normal(h, p->dtype, 3, v_shape, NULL, 1);
    caches c = make_caches(h, p);
    lls_kv_write_args args = base_args(h, &k, &v, &c, &slot_tensor);
    th_ok(h, lls_kv_write(h->ctx, &args, h->stream));
}

static void generate(th *h) {
    static const lls_dtype dtypes[] = {LLS_F32, LLS_F16, LLS_BF16};
    static const int64_t widths[] = {1, 8, 40, 64, 72, 128, 131};
    static const char *const layouts[] = {"NHD", "HND", "K and V in a page"};
    for (int from = 0; from < 3; from++) {
        for (int to = 0; to < 3; to++) {
            for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
                for (int l = NHD; l <= KV_IN_PAGE; l++) {
                    int64_t width = widths[i], width_v = l == KV_IN_PAGE || i % 2 ? width : width + 24;
                    params p = {.tokens = i % 2 ? 33 : 5,
                                .page_size = 16,
                                .num_pages = 12,
                                .heads = i % 3 ? 3 : 8,
                                .width = width,
                                .width_v = width_v,
                                .dtype = dtypes[from],
                                .cache = dtypes[to],
                                .layout = (layout)l};
                    char name[96];
                    snprintf(name, sizeof name, "random %lldx%lldx%lld/%lld %s to %s %s", (long long)p.tokens,
                             (long long)p.heads, (long long)width, (long long)width_v, lls_dtype_name(p.dtype),
                             lls_dtype_name(p.cache), layouts[l]);
                    th_run_case(h, name, random_case, &p);
                }
            }
        }
    }
}

enum { K01_TOKENS = 7, K01_HEADS = 3, K01_WIDTH = 72, K01_PAGE = 16, K01_PAGES = 2, K01_QUERIES = 4 };

// Keys (part 1) and values (part 2) of a packed projection whose first part are the queries.
static lls_tensor k01_slice(const lls_tensor *qkv, int part) {
    lls_tensor t = *qkv;
    t.ndim = 3, t.shape[1] = K01_HEADS, t.shape[2] = K01_WIDTH, t.stride[1] = K01_WIDTH, t.stride[2] = 1;
    t.data = (char *)qkv->data + (K01_QUERIES + (part - 1) * K01_HEADS) * K01_WIDTH * 2;
    return t;
}

static caches k01_caches(th *h, double tol) {
    static uint8_t old[K01_PAGES * K01_PAGE * K01_HEADS * K01_WIDTH * 2];
    memset(old, 0xA5, sizeof old);
    int64_t shape[] = {K01_PAGES, K01_PAGE, K01_HEADS, K01_WIDTH};
    caches c = {th_data(h, LLS_F16, 4, shape, old), th_data(h, LLS_F16, 4, shape, old)};
    th_also_output(h, "k_cache", &c.k, tol);
    th_also_output(h, "v_cache", &c.v, tol);
    return c;
}

// K01: padding slots, the first and last slot of each page, rows that are slices of a packed projection.
static void k01(th *h, const void *param) {
    (void)param;
    static const int64_t slots[K01_TOKENS] = {5, -1, 15, 16, 31, -1, 0};
    lls_tensor qkv = th_filled(h, LLS_F16, 2, (int64_t[]){K01_TOKENS, (K01_QUERIES + 2 * K01_HEADS) * K01_WIDTH}, NULL,
                               th_hash, NULL);
    lls_tensor k = k01_slice(&qkv, 1), v = k01_slice(&qkv, 2),
               slot_tensor = th_data(h, LLS_I64, 1, (int64_t[]){K01_TOKENS}, slots);
    caches c = k01_caches(h, 0);
    lls_kv_write_args args = base_args(h, &k, &v, &c, &slot_tensor);
    if (!th_ok(h, lls_kv_write(h->ctx, &args, h->stream))) return;
    const int64_t row = K01_HEADS * K01_WIDTH;
    for (int64_t slot = 0; slot < K01_PAGES * K01_PAGE; slot++) {
        int64_t token = -1;
        for (int64_t t = 0; t < K01_TOKENS; t++) token = slots[t] == slot ? t : token;
        for (int64_t i = 0; i < row; i += 43) {
            double old = -0x1.694p-6; // 0xA5A5
            th_expect_near(h, &c.k, slot * row + i, token < 0 ? old : th_value(h, &k, token * row + i), 0);
            th_expect_near(h, &c.v, slot * row + i, token < 0 ? old : th_value(h, &v, token * row + i), 0);
        }
    }
}

// K01, D03: a slot past the cache, as a wrong or uninitialised page table would give: the CPU refuses the whole call,
// CUDA skips that token.
static void bad_slots(th *h, const void *param) {
    (void)param;
    static const int64_t capacity = K01_PAGES * K01_PAGE,
                         bad[] = {K01_PAGES * K01_PAGE, (int64_t)1 << 40, INT32_MAX, 0xdeadbeef, INT64_MAX};
    lls_tensor qkv =
        th_filled(h, LLS_F16, 2, (int64_t[]){2, (K01_QUERIES + 2 * K01_HEADS) * K01_WIDTH}, NULL, th_hash, NULL);
    lls_tensor k = k01_slice(&qkv, 1), v = k01_slice(&qkv, 2);
    const int64_t row = K01_HEADS * K01_WIDTH;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lls_tensor slots = th_data(h, LLS_I64, 1, (int64_t[]){2}, (int64_t[]){3, bad[i]});
        caches c = k01_caches(h, -1); // the reference refuses where CUDA skips: nothing to compare
        lls_kv_write_args args = base_args(h, &k, &v, &c, &slots);
        lls_status status = lls_kv_write(h->ctx, &args, h->stream);
        if (h->device.type == LLS_CPU) {
            char part[64];
            snprintf(part, sizeof part, "slots[1] is %lld, must be below", (long long)bad[i]);
            th_expect_error(h, status, LLS_ERR_ARGUMENT, part);
            continue;
        }
        if (!th_ok(h, status)) return;
        for (int64_t slot = 0; slot < capacity; slot++) {
            for (int64_t e = 0; e < row; e += 71)
                th_expect_near(h, &c.v, slot * row + e, slot == 3 ? th_value(h, &v, e) : -0x1.694p-6, 0);
        }
    }
}

// D04: page sizes that are one, odd, or large; sequences of [1, 2, page, page + 1, 3 page - 1] tokens over pages in
// reversed order.
static void d04(th *h, const void *param) {
    enum { MAX_TOKENS = 4 * 512 + 512 + 8, WIDTH = 8 };
    static int64_t slots[MAX_TOKENS];
    int64_t page = *(const int64_t *)param, lens[] = {1, 2, page, page + 1, 3 * page - 1}, tokens = 0, pages = 0;
    for (int s = 0; s < 5; s++) pages += (lens[s] + page - 1) / page;
    int64_t next_page = pages;
    for (int s = 0; s < 5; s++) {
        for (int64_t i = 0; i < lens[s]; i++) {
            if (i % page == 0) next_page--;
            slots[tokens++] = next_page * page + i % page;
        }
    }
    lls_tensor slot_tensor = th_data(h, LLS_I64, 1, &tokens, slots);
    int64_t shape[] = {tokens, 2, WIDTH};
    lls_tensor k = th_filled(h, LLS_F16, 3, shape, NULL, th_hash, NULL),
               v = th_filled(h, LLS_F16, 3, shape, NULL, th_hash9, NULL);
    params p = {.page_size = page, .num_pages = pages, .heads = 2, .width = WIDTH, .width_v = WIDTH, .cache = LLS_F16};
    caches c = make_caches(h, &p);
    lls_kv_write_args args = base_args(h, &k, &v, &c, &slot_tensor);
    if (!th_ok(h, lls_kv_write(h->ctx, &args, h->stream))) return;
    // The last sequence holds the lowest pages: its last token lies in page 0.
    int64_t slot = (lens[4] - 1) % page, row = 2 * WIDTH;
    for (int64_t i = 0; i < row; i++) {
        th_expect_near(h, &c.k, slot * row + i, th_hash((tokens - 1) * row + i, NULL), 0);
        th_expect_near(h, &c.v, slot * row + i, th_hash9((tokens - 1) * row + i, NULL), 0);
    }
}

// D06: page offsets past 2^31 and 2^32 elements (8 GiB a cache; on a CPU only the touched pages exist). Pages 0 and 1
// are where a wrapped offset lands.
enum { D06_PAGE = 16, D06_WIDTH = 128, D06_PAGE_BYTES = D06_PAGE * D06_WIDTH * 2 };

static void d06_fill(th *h, void *cache, int64_t page) {
    static uint8_t nan[D06_PAGE_BYTES];
    memset(nan, 0xFF, sizeof nan);
    if (lls_upload(h->ctx, (char *)cache + page * D06_PAGE_BYTES, nan, sizeof nan, h->stream))
        th_fail(h, "%s", lls_last_error());
}

static void d06_check(th *h, void *cache, int64_t page, int64_t slot, uint16_t bits) {
    static uint16_t got[D06_PAGE * D06_WIDTH];
    if (lls_download(h->ctx, got, (char *)cache + page * D06_PAGE_BYTES, sizeof got, h->stream))
        th_fail(h, "%s", lls_last_error());
    for (int64_t i = 0; i < D06_PAGE * D06_WIDTH; i++) {
        uint16_t want = i / D06_WIDTH == slot ? bits : 0xFFFF;
        if (got[i] != want) {
            th_fail(h, "page %lld element %lld is %04x, expected %04x", (long long)page, (long long)i, got[i], want);
            return;
        }
    }
}

static void d06(th *h, const void *param) {
    (void)param;
    enum { TOKENS = 4 };
    static const int64_t num_pages = (1 << 21) + 2, pages[TOKENS] = {(1 << 20) - 1, 1 << 20, 1 << 21, (1 << 21) + 1};
    int64_t slots[TOKENS], shape[] = {num_pages, D06_PAGE, 1, D06_WIDTH};
    for (int t = 0; t < TOKENS; t++) slots[t] = pages[t] * D06_PAGE + 3 * t;
    void *memory[2] = {NULL, NULL};
    for (int side = 0; side < 2; side++) {
        if (lls_malloc(h->ctx, (size_t)num_pages * D06_PAGE_BYTES, &memory[side])) {
            th_fail(h, "%s", lls_last_error());
            break;
        }
        for (int t = 0; t < TOKENS; t++) d06_fill(h, memory[side], pages[t]);
        for (int page = 0; page < 2; page++) d06_fill(h, memory[side], page);
    }
    if (memory[0] && memory[1]) {
        caches c = {lls_tensor_make(memory[0], LLS_BF16, h->device, 4, shape),
                    lls_tensor_make(memory[1], LLS_BF16, h->device, 4, shape)};
        lls_tensor slot_tensor = th_data(h, LLS_I64, 1, (int64_t[]){TOKENS}, slots);
        lls_tensor k = th_constant(h, LLS_BF16, 3, (int64_t[]){TOKENS, 1, D06_WIDTH}, NULL, 2);
        lls_tensor v = th_constant(h, LLS_BF16, 3, (int64_t[]){TOKENS, 1, D06_WIDTH}, NULL, 7);
        lls_kv_write_args args = base_args(h, &k, &v, &c, &slot_tensor);
        if (th_ok(h, lls_kv_write(h->ctx, &args, h->stream))) {
            for (int t = 0; t < TOKENS; t++)
                d06_check(h, memory[0], pages[t], 3 * t, 0x4000), d06_check(h, memory[1], pages[t], 3 * t, 0x40e0);
            for (int page = 0; page < 2; page++)
                d06_check(h, memory[0], page, -1, 0), d06_check(h, memory[1], page, -1, 0);
        }
    }
    for (int side = 0; side < 2; side++) lls_free(h->ctx, memory[side]);
}

// Ties go to the even neighbour: 1 + 2^-11 and 1 + 3 2^-11 in f16, 1 + 2^-8 and 1 + 3 2^-8 in bf16.
static void rounding(th *h, const void *param) {
    (void)param;
    float k_row[] = {1 + 0x1p-11f, 1 + 0x3p-11f, 65519, -65520},
          v_row[] = {1 + 0x1p-8f, 1 + 0x3p-8f, 0x1p-24f, 0x1p-25f};
    lls_tensor k = th_data(h, LLS_F32, 3, (int64_t[]){1, 1, 4}, k_row),
               v = th_data(h, LLS_F32, 3, (int64_t[]){1, 1, 4}, v_row);
    lls_tensor slot = th_data(h, LLS_I64, 1, (int64_t[]){1}, (int64_t[]){1});
    params p = {.page_size = 1, .num_pages = 2, .heads = 1, .width = 4, .width_v = 4, .cache = LLS_F16};
    caches half = make_caches(h, &p);
    p.cache = LLS_BF16;
    caches bf16 = make_caches(h, &p);
    lls_kv_write_args args = base_args(h, &k, &v, &half, &slot);
    if (!th_ok(h, lls_kv_write(h->ctx, &args, h->stream))) return;
    args = base_args(h, &k, &v, &bf16, &slot);
    if (!th_ok(h, lls_kv_write(h->ctx, &args, h->stream))) return;
    static const double want_half[] = {1, 1 + 0x1p-9, 65504, -INFINITY};
    for (int i = 0; i < 4; i++) th_expect_near(h, &half.k, 4 + i, want_half[i], 0);
    th_expect_near(h, &half.v, 4 + 2, 0x1p-24, 0);
    th_expect_near(h, &half.v, 4 + 3, 0, 0);
    th_expect_near(h, &bf16.v, 4, 1, 0);
    th_expect_near(h, &bf16.v, 5, 1 + 0x1p-6, 0);
}

static void zero_sizes(th *h, const void *param) {
    (void)param;
    static const int64_t sizes[][3] = {{0, 2, 8}, {2, 0, 8}, {2, 2, 0}, {2, 2, 8}}; // the last: a call afterwards works
    for (int i = 0; i < 4; i++) {
        lls_tensor k = th_normal(h, LLS_F16, 3, sizes[i], NULL, 1), v = th_normal(h, LLS_F16, 3, sizes[i], NULL, 1);
        lls_tensor slots = th_data(h, LLS_I64, 1, sizes[i], (int64_t[]){0, 3});
        params p = {.page_size = 2,
                    .num_pages = 2,
                    .heads = sizes[i][1],
                    .width = sizes[i][2],
                    .width_v = sizes[i][2],
                    .cache = LLS_F16};
        caches c = make_caches(h, &p);
        lls_kv_write_args args = base_args(h, &k, &v, &c, &slots);
        if (!th_ok(h, lls_kv_write(h->ctx, &args, h->stream))) return;
    }
}

static void expect_error(th *h, const lls_kv_write_args *args, lls_status want, const char *part) {
    th_expect_error(h, lls_kv_write(h->ctx, args, h->stream), want, part);
}

static void errors(th *h, const void *param) {
    (void)param;
    int64_t shape[] = {3, 2, 8};
    params p = {.page_size = 4, .num_pages = 2, .heads = 2, .width = 8, .width_v = 8, .cache = LLS_F16};
    lls_tensor k = th_normal(h, LLS_F16, 3, shape, NULL, 1), v = th_normal(h, LLS_F16, 3, shape, NULL, 1),
               v32 = th_normal(h, LLS_F32, 3, shape, NULL, 1);
    lls_tensor slots = th_data(h, LLS_I64, 1, (int64_t[]){3}, (int64_t[]){0, 1, 2});
    caches c = make_caches(h, &p), other;

    lls_kv_write_args args = base_args(h, &k, &v32, &c, &slots);
    expect_error(h, &args, LLS_ERR_DTYPE, "v.dtype is f32, must equal k.dtype = f16");
    lls_tensor one_head = v;
    one_head.shape[1] = 1;
    args = base_args(h, &k, &one_head, &c, &slots);
    expect_error(h, &args, LLS_ERR_SHAPE, "v.shape[1] is 1, must equal k.shape[1] = 2");
    other = c;
    other.k.shape[3] = 7;
    args = base_args(h, &k, &v, &other, &slots);
    expect_error(h, &args, LLS_ERR_SHAPE, "k_cache.shape[3] is 7, must equal k.shape[2] = 8");
    other = c;
    other.v.shape[0] = 1;
    args = base_args(h, &k, &v, &other, &slots);
    expect_error(h, &args, LLS_ERR_SHAPE, "v_cache.shape[0] is 1, must equal k_cache.shape[0] = 2");
    other = c;
    other.v.stride[1] = 3; // slots would share memory
    args = base_args(h, &k, &v, &other, &slots);
    expect_error(h, &args, LLS_ERR_STRIDE, "v_cache.stride[1] is 3, below the 8 elements");
    other = c;
    other.v = c.k;
    args = base_args(h, &k, &v, &other, &slots);
    expect_error(h, &args, LLS_ERR_ALIAS, "v_cache at");
    lls_tensor narrow = slots;
    narrow.dtype = LLS_I32;
    args = base_args(h, &k, &v, &c, &narrow);
    expect_error(h, &args, LLS_ERR_DTYPE, "slots.dtype is i32");
    narrow = slots;
    narrow.shape[0] = 2;
    args = base_args(h, &k, &v, &c, &narrow);
    expect_error(h, &args, LLS_ERR_SHAPE, "slots.shape[0] is 2, must equal k.shape[0] = 3");
    args = base_args(h, &k, NULL, &c, &slots);
    expect_error(h, &args, LLS_ERR_ARGUMENT, "v is NULL");
}

#define D04(page) \
    { "D04 page " #page, d04, &(const int64_t){page}, false }
static const th_case cases[] = {
    {"random 5x3x40 f32 to f16", random_case, &(const params){5, 16, 12, 3, 40, 48, LLS_F32, LLS_F16, NHD}, false},
    {"K01 padding, page borders, packed rows", k01, NULL, false},
    {"K01 D03 slots past the cache", bad_slots, NULL, false},
    D04(1),
    D04(3),
    D04(7),
    D04(16),
    D04(48),
    D04(256),
    D04(512),
    {"D06 page offsets past 2^31", d06, NULL, true},
    {"rounding", rounding, NULL, false},
    {"G02 zero sizes", zero_sizes, NULL, false},
    {"errors", errors, NULL, false},
};

const th_suite th_suite_kv_write = {"kv_write", cases, sizeof cases / sizeof *cases, generate};
