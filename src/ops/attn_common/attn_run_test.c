/* Builds the tensors of an attn_problem in each form, and generates products of cases. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/attn_common/attn_test.h"

static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double attn_random(const attn_problem *p, char which, int64_t b, int64_t row, int64_t head, int64_t d) {
    (void)p;
    uint64_t bits = mix(mix(mix((uint64_t)which * 0x9e3779b97f4a7c15u + (uint64_t)b) + (uint64_t)row) +
                        (uint64_t)(head * 1024 + d));
    double sum = 0; // of four uniforms, scaled to variance 1
    for (int i = 0; i < 4; i++, bits >>= 16) sum += (double)(bits & 0xffff) / 65536 - 0.5;
    return sum * sqrt(3);
}

double attn_uniform(const attn_problem *p, char which, int64_t b, int64_t row, int64_t head, int64_t d) {
    (void)p, (void)b, (void)head, (void)d;
    return which == 'q' ? 0 : which == 'v' ? (double)row : 1;
}

typedef struct filler {
    const attn_problem *p;
    char which;
    int64_t shape[4]; // logical; ragged tensors have 3 axes
} filler;

static int64_t page_size_of(const attn_problem *p) {
    return p->page_size ? p->page_size : 16;
}

static double fill(int64_t index, const void *user) {
    const filler *f = user;
    const attn_problem *p = f->p;
    int64_t d = index % f->shape[3], head = index / f->shape[3] % f->shape[2], row = index / f->shape[3] / f->shape[2],
            b = 0;
    bool ragged = p->form == ATTN_VARLEN || (p->form == ATTN_PAGED && f->which == 'q');
    if (ragged) {
        const int32_t *begin = f->which == 'q' ? p->q_begin : p->kv_begin;
        while (b + 1 < p->batch && row >= begin[b + 1]) b++;
        row -= begin[b];
    } else if (p->form == ATTN_PAGED) {
        int64_t page = row / page_size_of(p), owner = p->owner[page];
        if (owner < 0) return p->has_unused ? p->unused : NAN;
        b = owner / p->max_pages;
        row = owner % p->max_pages * page_size_of(p) + row % page_size_of(p);
    } else {
        b = row / f->shape[1], row %= f->shape[1];
    }
    if (f->which != 'q' && row >= p->kv_len[b]) return p->has_unused ? p->unused : NAN;
    return (p->fill ? p->fill : attn_random)(p, f->which, b, row, head, d);
}

// [leading axis, rows, heads, dim], or [rows, heads, dim] where leading is 0. Transposed: heads outside rows.
static lls_tensor make(th *h, const attn_problem *p, char which, lls_dtype dtype, int64_t leading, int64_t rows,
                       int64_t heads, int64_t dim, const char *output) {
    int64_t shape[] = {leading, rows, heads, dim}, stride[] = {rows * heads * dim, dim, rows * dim, 1};
    int skip = leading ? 0 : 1;
    const int64_t *strides = p->transposed && (which == 'q' || output) ? stride + skip : NULL;
    if (output)
        return th_output(h, output, dtype, 4 - skip, shape + skip, strides,
                         p->uncompared ? -1
                         : p->tol > 0  ? p->tol
                                       : th_tol(dtype));
    filler f = {p, which, {leading, rows, heads, dim}};
    return th_filled(h, dtype, 4 - skip, shape + skip, strides, fill, &f);
}

static double slope_of(int64_t head, const void *user) {
    return exp2(-8.0 * (double)(head + 1) / *(const int32_t *)user);
}

static double sink_of(int64_t head, const void *user) {
    (void)user;
    return 0.25 * (double)(head % 5) - 0.5;
}

// Elements of an axis of the bias in memory.
static int64_t bias_extent(const attn_problem *p, int axis) {
    int64_t full[] = {p->batch, p->num_heads, p->q_len[0], p->kv_len[0]};
    return p->bias.shared[axis] && full[axis] > 1 ? 1 : full[axis];
}

static double bias_at(int64_t index, const void *user) {
    const attn_problem *p = user;
    int64_t at[4];
    for (int axis = 3; axis >= 0; axis--) {
        at[axis] = index % bias_extent(p, axis);
        index /= bias_extent(p, axis);
    }
    return p->bias.fill(p, at[0], at[1], at[2], at[3]);
}

static lls_tensor make_bias(th *h, const attn_problem *p) {
    static const int inward[][4] = {{0, 1, 2, 3}, {0, 1, 3, 2}, {2, 0, 3, 1}}; // axes by attn_bias_order
    int64_t full[] = {p->batch, p->num_heads, p->q_len[0], p->kv_len[0]}, shape[4], stride[4];
    int64_t step = p->bias.order == ATTN_BIAS_SPREAD ? 3 : 1;
    for (int n = 3; n >= 0; n--) {
        int axis = inward[p->bias.order][n];
        shape[axis] = bias_extent(p, axis), stride[axis] = step;
        step *= shape[axis];
    }
    lls_tensor bias = th_filled(h, p->bias.dtype, 4, shape, stride, bias_at, p);
    for (int axis = 0; axis < 4; axis++) {
        if (p->bias.shared[axis]) bias.shape[axis] = full[axis], bias.stride[axis] = 0;
    }
    return bias;
}

static lls_tensor make_page_table(th *h, attn_problem *p, int64_t *num_pages) {
    int64_t size = page_size_of(p), used = 0;
    int32_t table[4096];
    p->max_pages = 1 + p->extra_capacity;
    for (int32_t b = 0; b < p->batch; b++) {
        int32_t pages = (int32_t)((p->kv_len[b] + size - 1) / size) + p->extra_capacity;
        if (pages > p->max_pages) p->max_pages = pages;
        used += (p->kv_len[b] + size - 1) / size;
    }
    *num_pages = used + 3; // some that nobody owns
    int64_t next = *num_pages - 2;
    int32_t entry = 0;
    for (int64_t page = 0; page < *num_pages; page++) p->owner[page] = -1;
    for (int32_t b = 0; b < p->batch; b++) {
        for (int32_t n = 0; n < p->max_pages; n++) {
            bool in_use = n * size < p->kv_len[b];
            table[b * p->max_pages + n] = in_use           ? (int32_t)next
                                          : p->num_padding ? p->padding[entry++ % p->num_padding]
                                                           : 0;
            if (in_use) p->owner[next--] = b * p->max_pages + n;
        }
    }
    return th_data(h, LLS_I32, 2, (int64_t[]){p->batch, p->max_pages}, table);
}

static void make_tensors(th *h, attn_problem *p) {
    int64_t kv_capacity = 0, batch = p->batch, bounds = batch + 1;
    lls_dtype kv_dtype = p->kv_dtype ? p->kv_dtype : p->dtype;
    int64_t dim = p->head_dim, dim_v = p->head_dim_v ? p->head_dim_v : dim, heads = p->num_heads,
            kv_heads = p->num_kv_heads;
    for (int32_t b = 0; b < p->batch; b++) {
        p->q_begin[b + 1] = p->q_begin[b] + p->q_len[b];
        p->kv_begin[b + 1] = p->kv_begin[b] + p->kv_len[b];
        if (p->kv_len[b] + p->extra_capacity > kv_capacity) kv_capacity = p->kv_len[b] + p->extra_capacity;
    }
    bool ragged = p->form == ATTN_VARLEN || p->form == ATTN_PAGED;
    int64_t leading = ragged ? 0 : batch, rows = ragged ? p->q_begin[batch] : p->q_len[0];
    p->q = make(h, p, 'q', p->dtype, leading, rows, heads, dim, NULL);
    p->out = make(h, p, 'o', p->dtype, leading, rows, heads, dim_v, p->out_name ? p->out_name : "out");
    int64_t lse_shape[] = {batch, heads, rows};
    p->lse = th_output(h, "lse", LLS_F32, ragged ? 2 : 3, lse_shape + ragged, NULL, p->uncompared ? -1 : 1e-5);
    int64_t kv_leading = batch, kv_rows = p->form == ATTN_CONTIGUOUS ? kv_capacity : p->kv_len[0];
    if (p->form == ATTN_VARLEN) kv_leading = 0, kv_rows = p->kv_begin[batch];
    if (p->form == ATTN_PAGED) {
        p->page_table = make_page_table(h, p, &kv_leading);
        kv_rows = page_size_of(p);
    }
    p->k = make(h, p, 'k', kv_dtype, kv_leading, kv_rows, kv_heads, dim, NULL);
    p->v = make(h, p, 'v', kv_dtype, kv_leading, kv_rows, kv_heads, dim_v, NULL);
    if (ragged) p->cu_q = th_data(h, LLS_I32, 1, &bounds, p->q_begin);
    if (p->form == ATTN_VARLEN) p->cu_kv = th_data(h, LLS_I32, 1, &bounds, p->kv_begin);
    else p->kv_lens = th_data(h, LLS_I32, 1, &batch, p->kv_len);
    if (p->alibi) p->slopes = th_filled(h, LLS_F32, 1, &heads, NULL, slope_of, &p->num_heads);
    if (p->sinks) p->sink = th_filled(h, LLS_F32, 1, &heads, NULL, sink_of, NULL);
    if (p->bias.fill) p->bias_view = make_bias(h, p);
}

lls_status attn_run(th *h, attn_problem *p, attn_form form) {
    p->form = form;
    make_tensors(h, p);
    lls_attn_score score = {p->scale, p->softcap, p->alibi ? &p->slopes : NULL, p->sinks ? &p->sink : NULL};
    int32_t max_q_len = 0;
    for (int32_t b = 0; b < p->batch; b++) max_q_len = p->q_len[b] > max_q_len ? p->q_len[b] : max_q_len;
    if (form == ATTN_DENSE || form == ATTN_VARLEN) {
        lls_attn_prefill_args a = LLS_ATTN_PREFILL_ARGS_INIT;
        a.mask = p->mask, a.score = score, a.q = &p->q, a.k = &p->k, a.v = &p->v, a.out = &p->out, a.lse = &p->lse,
        a.variant = h->variant;
        if (p->bias.fill) a.bias = &p->bias_view;
        if (form == ATTN_VARLEN) a.cu_seqlens_q = &p->cu_q, a.cu_seqlens_kv = &p->cu_kv, a.max_q_len = max_q_len;
        return lls_attn_prefill(h->ctx, &a, h->stream);
    }
    lls_attn_decode_args a = LLS_ATTN_DECODE_ARGS_INIT;
    a.mask = p->mask, a.score = score, a.q = &p->q, a.k_cache = &p->k, a.v_cache = &p->v, a.kv_lens = &p->kv_lens,
    a.out = &p->out, a.lse = &p->lse;
    a.num_splits = p->num_splits, a.variant = h->variant;
    if (form == ATTN_PAGED) a.page_table = &p->page_table, a.cu_seqlens_q = &p->cu_q, a.max_q_len = max_q_len;
    size_t bytes;
    lls_status status = lls_attn_decode_workspace(h->ctx, &a, &bytes);
    if (!status) th_poison_workspace(h, bytes);
    return status ? status : lls_attn_decode(h->ctx, &a, h->stream);
}

// Row-major index of (b, i, head, d) of out, or of (b, head, i) of lse.
static int64_t out_index(const attn_problem *p, int64_t b, int64_t i, int64_t head, int64_t d) {
    bool ragged = p->form == ATTN_VARLEN || p->form == ATTN_PAGED;
    int64_t row = ragged ? p->q_begin[b] + i : b * p->q_len[0] + i;
    return (row * p->num_heads + head) * (p->head_dim_v ? p->head_dim_v : p->head_dim) + d;
}

static int64_t lse_index(const attn_problem *p, int64_t b, int64_t i, int64_t head) {
    bool ragged = p->form == ATTN_VARLEN || p->form == ATTN_PAGED;
    return ragged ? head * p->q_begin[p->batch] + p->q_begin[b] + i : (b * p->num_heads + head) * p->q_len[0] + i;
}

double attn_out(th *h, const attn_problem *p, int64_t b, int64_t i, int64_t head, int64_t d) {
    return th_value(h, &p->out, out_index(p, b, i, head, d));
}

void attn_expect_out(th *h, const attn_problem *p, int64_t b, int64_t i, int64_t head, int64_t d, double want,
                     double tol) {
    th_expect_near(h, &p->out, out_index(p, b, i, head, d), want, tol);
}

double attn_lse(th *h, const attn_problem *p, int64_t b, int64_t i, int64_t head) {
    return th_value(h, &p->lse, lse_index(p, b, i, head));
}

void attn_expect_lse(th *h, const attn_problem *p, int64_t b, int64_t i, int64_t head, double want, double tol) {
    th_expect_near(h, &p->lse, lse_index(p, b, i, head), want, tol);
}

/* ---- Products ---- */

typedef struct generated {
    attn_problem p;
    attn_form form;
} generated;

static void run_generated(th *h, const void *param) {
    generated g = *(const generated *)param;
    th_ok(h, attn_run(h, &g.p, g.form));
}

static const char *const form_names[] = {"dense", "varlen", "contiguous", "paged"};

static void generate_one(th *h, attn_form form, int n, int32_t head_dim, lls_dtype dtype) {
    static const int32_t lens[][2] = {{1, 1},   {1, 33}, {2, 257}, {5, 5},   {16, 64}, {17, 65}, {48, 48},
                                      {49, 97}, {3, 1},  {1, 300}, {33, 31}, {8, 520}, {64, 63}, {1, 16}};
    static const int32_t heads[][2] = {{3, 1}, {9, 3}, {2, 2}, {8, 1}, {6, 2}, {5, 5}, {14, 2}};
    static const lls_attn_mask masks[] = {{true, -1, -1}, {false, -1, -1}, {true, 7, -1}, {false, 5, 9},
                                          {true, 0, -1},  {false, -1, 3},  {true, 70, -1}};
    const lls_dtype dtypes[] = {LLS_F32, LLS_F16, LLS_BF16};
    bool decode = form == ATTN_CONTIGUOUS || form == ATTN_PAGED, ragged = form == ATTN_VARLEN || form == ATTN_PAGED;
    generated g = {.form = form};
    attn_problem *p = &g.p;
    p->batch = 1 + n % 3;
    for (int32_t b = 0; b < p->batch; b++) {
        const int32_t *pair = lens[(n + (ragged ? 5 * b : 0)) % 14];
        const int32_t *longer = lens[(n + 3 * b) % 14];
        p->q_len[b] = pair[0];
        p->kv_len[b] = form == ATTN_CONTIGUOUS ? longer[1] : pair[1];
    }
    p->num_heads = heads[n % 7][0], p->num_kv_heads = heads[n % 7][1];
    p->head_dim = head_dim, p->head_dim_v = n % 4 == 3 ? 8 + 8 * (n % 9) : head_dim;
    p->dtype = dtype, p->kv_dtype = decode ? dtypes[n % 3] : dtype;
    p->mask = masks[n % 7];
    p->softcap = n % 5 == 2 ? 3.0f : 0;
    p->scale = n % 6 == 4 ? 0.2f : 0;
    p->alibi = n % 4 == 1, p->sinks = n % 5 == 3;
    p->page_size = (int32_t[]){16, 1, 7, 32, 64}[n % 5];
    p->extra_capacity = n % 3;
    p->transposed = n % 3 == 1;
    p->num_splits = decode ? (int32_t[]){0, 1, 2, 5, 128}[n % 5] : 0;
    // Keys round to their own dtype before either side reads them, so the tolerance is that of the output.
    char name[160];
    snprintf(name, sizeof name, "random %d %s D %d/%d %s %s batch %d q %d kv %d heads %d/%d mask %d,%d,%d%s%s%s%s", n,
             form_names[form], p->head_dim, p->head_dim_v, lls_dtype_name(p->dtype), lls_dtype_name(p->kv_dtype),
             p->batch, p->q_len[0], p->kv_len[0], p->num_heads, p->num_kv_heads, p->mask.causal, p->mask.window_left,
             p->mask.window_right, p->softcap > 0 ? " softcap" : "", p->alibi ? " alibi" : "", p->sinks ? " sinks" : "",
             p->transposed ? " transposed" : "");
    th_run_case(h, name, run_generated, &g);
}

void attn_generate(th *h, const attn_form *forms, int num_forms) {
    static const int32_t dims[] = {8, 24, 40, 64, 72, 80, 96, 112, 128, 160, 192, 256};
    static const lls_dtype dtypes[] = {LLS_F32, LLS_F16, LLS_BF16};
    int n = 0;
    for (int f = 0; f < num_forms; f++) {
        for (int repeat = 0; repeat < 2; repeat++) {
            for (int d = 0; d < 12; d++) {
                for (int t = 0; t < 3; t++, n++) generate_one(h, forms[f], n, dims[d], dtypes[t]);
            }
        }
    }
    // Odd head_dims: vector tails on the CPU.
    for (int f = 0; f < num_forms; f++) {
        for (int32_t dim = 1; dim <= 67; dim += 11, n++) generate_one(h, forms[f], n, dim, dtypes[dim % 3]);
    }
}
