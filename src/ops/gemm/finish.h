/* What happens to finished sums: the rest of the formula in ops.h, in fp32, one rounding at the end, a vector of columns at
 * a time. Every stride and dtype passes: only loads and stores know them.
 * Included by gemm_cpu.c, once a SIMD level. */
#ifndef LLS_OPS_GEMM_FINISH_H
#define LLS_OPS_GEMM_FINISH_H

#include "core/element.h"
#include "cpu/simd_act.h"
#include "ops/gemm/micro.h"
#include "ops/gemm/pack.h"
#include "ops/gemm/problem.h"

/* A matrix of the batch. Addresses of absent operands mean nothing. */
typedef struct finish {
    const lls__gemm_problem *p;
    int64_t batch;
    char *out;
    const char *c, *residual, *bias;
    bool plain; /* out = alpha * sums, rows of floats */
} finish;

static finish finish_of(const lls__gemm_problem *p, int64_t batch) {
    return (finish){
        .p = p,
        .batch = batch,
        .out = lls__gemm_base(&p->out, batch, lls__elem_size(p->out.dtype)),
        .c = p->c.data ? lls__gemm_base(&p->c, batch, lls__elem_size(p->c.dtype)) : NULL,
        .residual = p->residual.data ? lls__gemm_base(&p->residual, batch, lls__elem_size(p->residual.dtype)) : NULL,
        .bias = p->bias.data ? lls__gemm_base(&p->bias, batch, lls__elem_size(p->bias.dtype)) : NULL,
        .plain = lls__gemm_is_plain(p) && !p->scale_a.data && !p->scale_b.data && lls__is_float(p->out.dtype) &&
                 p->out.col == 1 && p->a.dtype != LLS_I8,
    };
}

// Elements (row, col) to (row, col + n - 1), LLS_VF at most; past them anything.
LLS_INLINE vf load_row(const lls__gemm_matrix *x, const char *base, int64_t row, int64_t col, int64_t n) {
    int64_t i = lls__gemm_offset(x, row, col);
    if (x->col == 1) return n >= LLS_VF ? vf_load(x->dtype, base, i) : vf_load_n(x->dtype, base, i, n);
    lls_tensor t = {.data = (void *)base, .dtype = x->dtype};
    float lanes[LLS_VF] = {0};
    for (int64_t lane = 0; lane < n && lane < LLS_VF; lane++) lanes[lane] = (float)lls__get(&t, i + lane * x->col);
    return vf_load_f32(lanes);
}

// The factors of lines `line` to line + n - 1.
LLS_INLINE vf load_scales(const lls__gemm_scale *s, int64_t batch, int64_t line, int64_t n) {
    if (s->line == 0) return vf_set1(lls__gemm_scale_at(s, batch, 0, 0));
    if (s->line == 1 && s->line_size == 1 && n >= LLS_VF) return vf_load_f32(s->data + batch * s->batch + line);
    float lanes[LLS_VF] = {0};
    for (int64_t lane = 0; lane < n && lane < LLS_VF; lane++)
        lanes[lane] = lls__gemm_scale_at(s, batch, line + lane, 0);
    return vf_load_f32(lanes);
}

LLS_INLINE void round_to(lls_dtype dtype, void *to, vf x) {
    switch (dtype) {
    case LLS_F8_E4M3: vf_store_e4m3(to, x); break;
    case LLS_F8_E5M2: vf_store_e5m2(to, x); break;
    case LLS_I8: vf_store_i8(to, x); break;
    default: vf_store(dtype, to, 0, x); break;
    }
}

LLS_INLINE void store_row(const lls__gemm_matrix *x, char *base, int64_t row, int64_t col, int64_t n, vf value) {
    int64_t size = bytes_of(x->dtype);
    char *to = base + lls__gemm_offset(x, row, col) * size;
    if (x->col == 1 && n >= LLS_VF) {
        round_to(x->dtype, to, value);
        return;
    }
    char rounded[LLS_VF * 4];
    round_to(x->dtype, rounded, value);
    if (n > LLS_VF) n = LLS_VF;
    if (x->col == 1) memcpy(to, rounded, (size_t)(n * size));
    else
        for (int64_t lane = 0; lane < n; lane++) memcpy(to + lane * x->col * size, rounded + lane * size, (size_t)size);
}

// x of the formula.
LLS_INLINE vf finish_linear(const finish *f, int64_t row, int64_t col, int64_t n, vf sum) {
    const lls__gemm_problem *p = f->p;
    vf scale = vf_set1(1); // a's times b's, then alpha: the same bits when the roles of a and b are exchanged
    if (p->scale_a.data && !p->scale_a.blocks) scale = vf_set1(lls__gemm_scale_at(&p->scale_a, f->batch, row, 0));
    if (p->scale_b.data && !p->scale_b.blocks) scale *= load_scales(&p->scale_b, f->batch, col, n);
    vf x = p->k ? sum * (scale * vf_set1(p->alpha)) : vf_set1(0); // a scale may be infinite
    if (f->c) x = vf_fma(load_row(&p->c, f->c, row, col, n), vf_set1(p->beta), x);
    return f->bias ? x + load_row(&p->bias, f->bias, row, col, n) : x;
}

LLS_INLINE vf finish_activate(lls_gemm_act act, vf x) {
    switch (act) {
    case LLS_GEMM_ACT_RELU: return vf_max(vf_set1(0), x); // NaN, as the second operand, passes
    case LLS_GEMM_ACT_SILU: return vf_silu(x);
    case LLS_GEMM_ACT_GELU: return vf_gelu(x);
    case LLS_GEMM_ACT_GELU_TANH: return vf_gelu_tanh(x);
    default: return x;
    }
}

// The rest, for column `col` of out on.
LLS_INLINE void finish_output(const finish *f, int64_t row, int64_t col, int64_t n, vf y) {
    const lls__gemm_problem *p = f->p;
    if (f->residual) y += load_row(&p->residual, f->residual, row, col, n);
    if (p->scale_out.data || p->scale_out_col.data) {
        vf scale = p->scale_out.data ? vf_set1(lls__gemm_scale_at(&p->scale_out, f->batch, row, 0))
                                     : load_scales(&p->scale_out_col, f->batch, col, n);
        y = vf_select(scale == vf_set1(0), vf_set1(0), y / scale);
    }
    store_row(&p->out, f->out, row, col, n, y);
}

// out = sums + c in int32.
static void finish_row_i32(const finish *f, int64_t row, int64_t col, int64_t n, const float *sums) {
    const lls__gemm_matrix *out = &f->p->out, *c = &f->p->c;
    int32_t *to = (int32_t *)f->out + lls__gemm_offset(out, row, col);
    const int32_t *addend = f->c ? (const int32_t *)f->c + lls__gemm_offset(c, row, col) : NULL;
    uint32_t sum[MICRO_N];
    memcpy(sum, sums, (size_t)n * sizeof *sum);
    for (int64_t i = 0; addend && i < n; i++) sum[i] += (uint32_t)addend[i * c->col];
    for (int64_t i = 0; i < n; i++) to[i * out->col] = (int32_t)sum[i];
}

/* A row of a strip: columns col to col + n - 1 of the product from their sums [MICRO_N]; n <= MICRO_N. */
static void finish_row(const finish *f, int64_t row, int64_t col, int64_t n, const float *sums) {
    const lls__gemm_problem *p = f->p;
    if (p->out.dtype == LLS_I32) {
        finish_row_i32(f, row, col, n, sums);
        return;
    }
    vf x[MICRO_V] = {vf_set1(0)};
    for (int v = 0; v < MICRO_V && v * LLS_VF < n; v++) {
        vf sum = vf_load_f32(sums + v * LLS_VF);
        if (p->a.dtype == LLS_I8) sum = __builtin_convertvector((vi)sum, vf);
        x[v] = finish_linear(f, row, col + v * LLS_VF, n - v * LLS_VF, sum);
    }
    if (p->gated) { // pairs of neighbours from two vectors
        float lanes[MICRO_N], gate[LLS_VF], up[LLS_VF];
        memcpy(lanes, x, sizeof lanes);
        for (int i = 0; i < LLS_VF; i++) gate[i] = lanes[2 * i], up[i] = lanes[2 * i + 1];
        finish_output(f, row, col / 2, n / 2, finish_activate(p->act, vf_load_f32(gate)) * vf_load_f32(up));
        return;
    }
    for (int v = 0; v < MICRO_V && v * LLS_VF < n; v++)
        finish_output(f, row, col + v * LLS_VF, n - v * LLS_VF, finish_activate(p->act, x[v]));
}

LLS_INLINE void store_plain(lls_dtype dtype, const finish *f, int64_t row, int64_t rows, int64_t col,
                            const float *sums) {
    vf alpha = vf_set1(f->p->alpha);
    for (int64_t i = 0; i < rows; i++, sums += MICRO_N) {
        int64_t to = lls__gemm_offset(&f->p->out, row + i, col);
#pragma GCC unroll 4
        for (int v = 0; v < MICRO_V; v++)
            vf_store(dtype, f->out, to + v * LLS_VF, vf_load_f32(sums + v * LLS_VF) * alpha);
    }
}

/* Rows row to row + rows - 1 of a strip, from their sums [rows][MICRO_N]. */
static void finish_strip(const finish *f, int64_t row, int64_t rows, int64_t col, int64_t cols, const float *sums) {
    if (f->plain && cols == MICRO_N) {
        switch (f->p->out.dtype) {
        case LLS_F16: store_plain(LLS_F16, f, row, rows, col, sums); break;
        case LLS_BF16: store_plain(LLS_BF16, f, row, rows, col, sums); break;
        default: store_plain(LLS_F32, f, row, rows, col, sums); break;
        }
        return;
    }
    for (int64_t i = 0; i < rows; i++) finish_row(f, row + i, col, cols, sums + i * MICRO_N);
}

#endif
