/* What gemm's test files share: operands, and a product described by a struct. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/tensor.h"
#include "ops/gemm/gemm_test.h"

/* ---- Operands ---- */

lls_tensor gemm_matrix(th *h, lls_dtype dtype, int64_t batch, int64_t rows, int64_t cols, gemm_layout l,
                       gemm_fill *fill) {
    int64_t extra = l.shifted, r = rows + (l.transposed ? extra : 0), c = cols + (l.transposed ? 0 : extra),
            ld = (l.transposed ? r : c) + l.pad;
    int64_t shape[] = {batch, r, c}, stride[] = {l.broadcast ? 0 : ld * (l.transposed ? c : r) + l.pad,
                                                 l.transposed ? 1 : ld, l.transposed ? ld : 1};
    int32_t skip = batch == 0;
    lls_tensor t = fill ? th_filled(h, dtype, 3 - skip, shape + skip, stride + skip, fill, &c)
                        : th_normal(h, dtype, 3 - skip, shape + skip, stride + skip, 1);
    t.data = lls__at(&t, extra);
    t.shape[1 - skip] = rows, t.shape[2 - skip] = cols;
    return t;
}

int64_t gemm_fill_index(int64_t cols, gemm_layout l, int64_t row, int64_t col) {
    return l.transposed ? (row + l.shifted) * cols + col : row * (cols + l.shifted) + col + l.shifted;
}

double gemm_poison(int64_t i, const void *user) {
    (void)user;
    return i % 2 ? NAN : INFINITY;
}

double gemm_one(int64_t i, const void *user) {
    (void)i, (void)user;
    return 1;
}

double gemm_three(int64_t i, const void *user) {
    (void)i, (void)user;
    return 3;
}

double gemm_hash9_of_b(int64_t i, const void *user) {
    return th_hash9(i + 7919, user);
}

double gemm_i8_of_a(int64_t i, const void *user) {
    return 64 * th_hash(i, user);
}

double gemm_i8_of_b(int64_t i, const void *user) {
    return 64 * th_hash(i + 7919, user);
}

// All of int32 but its lowest bits.
static double i32_of_c(int64_t i, const void *user) {
    return 0x1p30 * th_hash(i, user) + 0x1p22 * (th_hash(i + 101, user) + 2);
}

static double halves(int64_t i, const void *user) {
    return th_hash9(i + 31, user) / 2;
}

// 1/4 to 4, and 0.
static double powers_of_two(int64_t i, const void *user) {
    return i % 7 == 5 ? 0 : ldexp(1, (int)th_hash9(i + 53, user) / 2);
}

static double near_one(int64_t i, const void *user) {
    return 1 + th_hash(i + 53, user) / 4;
}

lls_gemm_args gemm_args_of(const th *h, const lls_tensor *a, const lls_tensor *b, const lls_tensor *out) {
    lls_gemm_args args = LLS_GEMM_ARGS_INIT;
    args.a = a, args.b = b, args.out = out, args.variant = h->variant;
    return args;
}

/* ---- A product ---- */

static bool is_f8(lls_dtype dtype) {
    return dtype == LLS_F8_E4M3 || dtype == LLS_F8_E5M2;
}

static int64_t columns_of_out(const gemm_product *p) {
    return p->gated ? p->n / 2 : p->n;
}

static bool integers(const gemm_product *p) { // and nothing else
    return p->in == LLS_I8 && p->out == LLS_I32;
}

// Tensor cores cut what they add off instead of rounding it, at least every 16 of k: up to 2^-23 of the sum each time.
// Those of sm_90 keep 13 bits behind the leading one of f8 sums, for 128 of k unless they are left alone. tf32 has a
// rounding error of 2^-10 in each operand, or up to twice that where it is cut off.
double gemm_tol(const gemm_product *p) {
    if (p->exact || integers(p)) return 0;
    double sums = is_f8(p->in)                                   ? p->flags & LLS_GEMM_FAST_ACCUM ? 2e-2 : 2e-3
                  : p->in == LLS_F32 && p->flags & LLS_GEMM_TF32 ? 5e-3
                                                                 : 1e-5 + 1e-8 * (double)p->k;
    return fmax(sums, th_tol(p->out));
}

static lls_tensor scale_of(th *h, const gemm_product *p, int64_t rows, int64_t cols) {
    return gemm_matrix(h, LLS_F32, p->scale_batch ? p->batch : 0, rows, cols, p->scale_layout,
                       p->exact ? powers_of_two : near_one);
}

static int64_t blocks_of(int64_t n) {
    return (n + 127) / 128;
}

typedef struct scales {
    lls_tensor a, b, out;
} scales;

static void add_scales(th *h, const gemm_product *p, scales *s, lls_gemm_args *args) {
    int64_t rows_a = p->scale_a == GEMM_BY_ONE ? 1 : p->m, cols_a = p->scale_a == GEMM_BY_BLOCK ? blocks_of(p->k) : 1;
    if (p->scale_a) s->a = scale_of(h, p, rows_a, cols_a), args->scale_a = &s->a;
    int64_t rows_b = p->scale_b == GEMM_BY_BLOCK ? blocks_of(p->k) : 1, cols_b = p->scale_b == GEMM_BY_BLOCK
                                                                                     ? blocks_of(p->n)
                                                                                 : p->scale_b == GEMM_BY_LINE ? p->n
                                                                                                              : 1;
    if (p->scale_b) s->b = scale_of(h, p, rows_b, cols_b), args->scale_b = &s->b;
    int64_t rows_out = p->scale_out == GEMM_BY_LINE ? p->m : 1,
            cols_out = p->scale_out == GEMM_BY_COLUMN ? columns_of_out(p) : 1;
    if (p->scale_out) s->out = scale_of(h, p, rows_out, cols_out), args->scale_out = &s->out;
}

// What out holds before the call: nothing that may show up again, unless it is an operand.
static gemm_fill *fill_of_out(const gemm_product *p, gemm_fill *fill_c) {
    if (p->in_place || p->residual_is_out) return fill_c;
    return integers(p) ? fill_c : p->out == LLS_I8 ? gemm_three : gemm_poison;
}

bool gemm_run(th *h, const gemm_product *p, lls_tensor *out_made) {
    bool i8 = p->in == LLS_I8;
    gemm_fill *fill_c = p->exact ? th_hash9 : integers(p) ? i32_of_c : NULL;
    lls_dtype in_b = p->in_b ? p->in_b : p->in, c_type = lls__is_float(p->out) || p->out == LLS_I32 ? p->out : LLS_F32;
    lls_tensor a = gemm_matrix(h, p->in, p->batch, p->m, p->k, p->a, p->exact ? th_hash9 : i8 ? gemm_i8_of_a : NULL);
    lls_tensor b = gemm_matrix(h, in_b, p->batch, p->k, p->n, p->b,
                               p->exact ? gemm_hash9_of_b
                               : i8     ? gemm_i8_of_b
                                        : NULL);
    lls_tensor out = gemm_matrix(h, p->out, p->batch, p->m, columns_of_out(p), p->o, fill_of_out(p, fill_c)), c, bias,
               residual;
    th_also_output(h, "out", &out, gemm_tol(p));
    if (out_made) *out_made = out;
    lls_gemm_args args = gemm_args_of(h, &a, &b, &out);
    args.alpha = p->alpha, args.beta = p->beta, args.act = p->act, args.gated = p->gated, args.flags = p->flags;
    if (p->in_place) args.c = &out;
    else if (p->beta != 0) c = gemm_matrix(h, c_type, p->batch, p->m, p->n, p->c, fill_c), args.c = &c;
    gemm_fill *fill_bias = p->exact ? halves : NULL;
    int64_t step = 1 + p->o.pad; // a bias may be strided too
    if (p->bias) {
        bias = fill_bias ? th_filled(h, p->bias, 1, &p->n, &step, fill_bias, NULL)
                         : th_normal(h, p->bias, 1, &p->n, &step, 1);
        args.bias = &bias;
    }
    if (p->residual_is_out) args.residual = &out;
    else if (p->residual)
        residual = gemm_matrix(h, p->residual, p->batch, p->m, columns_of_out(p), p->c, p->exact ? th_hash9 : NULL),
        args.residual = &residual;
    scales s;
    add_scales(h, p, &s, &args);
    return th_ok(h, lls_gemm(h->ctx, &args, h->stream));
}

static void run_described(th *h, const void *param) {
    th_poison_workspace(h, 1 << 20);
    gemm_run(h, param, NULL);
}

typedef struct text {
    char chars[320];
    size_t used;
} text;

static void append(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int written = vsnprintf(t->chars + t->used, sizeof t->chars - t->used, format, args);
    va_end(args);
    if (written > 0 && t->used + (size_t)written < sizeof t->chars) t->used += (size_t)written;
}

static void describe_scale(text *t, const char *name, gemm_scaling s) {
    static const char *const kinds[] = {"", "one", "line", "column", "block"};
    if (s) append(t, " %s by %s", name, kinds[s]);
}

static void describe_layout(text *t, const char *name, gemm_layout l) {
    if (l.pad || l.shifted || l.broadcast)
        append(t, " %s%s%s%s", name, l.pad ? " padded" : "", l.shifted ? " shifted" : "", l.broadcast ? " shared" : "");
}

void gemm_run_case(th *h, const char *prefix, gemm_case_fn *run, gemm_product p) {
    static const char *const acts[] = {"", " relu", " silu", " gelu", " gelu_tanh"};
    text t = {.used = 0};
    append(&t, "%s %lldx%lldx%lld", prefix, (long long)p.m, (long long)p.n, (long long)p.k);
    if (p.batch) append(&t, " batch %lld", (long long)p.batch);
    append(&t, " %s", lls_dtype_name(p.in));
    if (p.in_b && p.in_b != p.in) append(&t, " by %s", lls_dtype_name(p.in_b));
    append(&t, "->%s %c%c%c", lls_dtype_name(p.out), p.a.transposed ? 'T' : 'N', p.b.transposed ? 'T' : 'N',
           p.o.transposed ? 'T' : 'N');
    describe_layout(&t, "a", p.a), describe_layout(&t, "b", p.b), describe_layout(&t, "c", p.c);
    describe_layout(&t, "out", p.o);
    if (p.alpha != 1) append(&t, " alpha %g", (double)p.alpha);
    if (p.beta != 0) append(&t, " beta %g%s", (double)p.beta, p.in_place ? " in place" : "");
    if (p.bias) append(&t, " bias %s", lls_dtype_name(p.bias));
    append(&t, "%s%s", acts[p.act], p.gated ? " gated" : "");
    if (p.residual_is_out) append(&t, " residual in place");
    else if (p.residual) append(&t, " residual %s", lls_dtype_name(p.residual));
    describe_scale(&t, "a", p.scale_a), describe_scale(&t, "b", p.scale_b), describe_scale(&t, "out", p.scale_out);
    if (p.scale_layout.transposed || p.scale_layout.pad) append(&t, " strided");
    if (p.scale_batch) append(&t, " batched");
    if (p.flags & LLS_GEMM_TF32) append(&t, " tf32");
    if (p.flags & LLS_GEMM_BATCH_INVARIANT) append(&t, " invariant");
    if (p.flags & LLS_GEMM_FAST_ACCUM) append(&t, " fast");
    if (p.exact) append(&t, " exact");
    th_run_case(h, t.chars, run ? run : run_described, &p);
}
