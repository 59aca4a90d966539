/* The oracle: sums in double over the stored inputs, one rounding at the end; sums of int8 in integers. */
#include "core/activation.h"
#include "core/element.h"
#include "ops/gemm/gemm_kernels.h"

static lls_tensor located(const lls__gemm_matrix *x, int64_t batch, int64_t row, int64_t col) {
    lls_tensor t = {.data = lls__gemm_base(x, batch, lls__elem_size(x->dtype)), .dtype = x->dtype};
    t.data = lls__at(&t, lls__gemm_offset(x, row, col));
    return t;
}

static double element(const lls_tensor *t, int64_t i) {
    if (t->dtype == LLS_I8) return ((const int8_t *)t->data)[i];
    if (t->dtype == LLS_I32) return ((const int32_t *)t->data)[i];
    return lls__get(t, i);
}

static double element_at(const lls__gemm_matrix *x, int64_t batch, int64_t row, int64_t col) {
    lls_tensor t = located(x, batch, row, col);
    return element(&t, 0);
}

// The sum over k, with scale_a and scale_b.
static double scaled_sum(const lls__gemm_problem *p, int64_t batch, int64_t row, int64_t col) {
    lls_tensor a = located(&p->a, batch, row, 0), b = located(&p->b, batch, 0, col);
    double sum = 0;
    for (int64_t k = 0; k < p->k; k++) {
        double scale = (double)lls__gemm_scale_at(&p->scale_a, batch, row, k) *
                       (double)lls__gemm_scale_at(&p->scale_b, batch, col, k);
        sum += scale * element(&a, k * p->a.col) * element(&b, k * p->b.row);
    }
    return sum;
}

// x of the formula.
static double linear(const lls__gemm_problem *p, int64_t batch, int64_t row, int64_t col) {
    double x = p->k == 0 ? 0 : (double)p->alpha * scaled_sum(p, batch, row, col);
    if (p->c.data) x += (double)p->beta * element_at(&p->c, batch, row, col);
    return p->bias.data ? x + element_at(&p->bias, batch, 0, col) : x;
}

static double activate(lls_gemm_act act, double x) {
    switch (act) {
    case LLS_GEMM_ACT_RELU: return x < 0 ? 0 : x;
    case LLS_GEMM_ACT_SILU: return lls__silu_f64(x);
    case LLS_GEMM_ACT_GELU: return lls__gelu_f64(x);
    case LLS_GEMM_ACT_GELU_TANH: return lls__gelu_tanh_f64(x);
    default: return x;
    }
}

static double result(const lls__gemm_problem *p, int64_t batch, int64_t row, int64_t col) {
    double y = activate(p->act, linear(p, batch, row, p->gated ? 2 * col : col));
    if (p->gated) y *= linear(p, batch, row, 2 * col + 1);
    if (p->residual.data) y += element_at(&p->residual, batch, row, col);
    if (!p->scale_out.data && !p->scale_out_col.data) return y;
    double scale = (double)lls__gemm_scale_at(&p->scale_out, batch, row, 0) *
                   (double)lls__gemm_scale_at(&p->scale_out_col, batch, col, 0);
    return scale == 0 ? 0 : y / scale;
}

static int32_t i32_result(const lls__gemm_problem *p, int64_t batch, int64_t row, int64_t col) {
    uint32_t sum = p->c.data ? (uint32_t)(int32_t)element_at(&p->c, batch, row, col) : 0; // unsigned: it may wrap
    lls_tensor a = located(&p->a, batch, row, 0), b = located(&p->b, batch, 0, col);
    for (int64_t k = 0; k < p->k; k++)
        sum += (uint32_t)(int32_t)(element(&a, k * p->a.col) * element(&b, k * p->b.row));
    return (int32_t)sum;
}

static int8_t saturate_i8(double x) {
    double rounded = nearbyint(x); // to even
    return x != x ? 0 : rounded < -128 ? -128 : rounded > 127 ? 127 : (int8_t)rounded;
}

void lls__gemm_ref_row(const lls__gemm_problem *p, int64_t batch, int64_t row) {
    lls_tensor out = {.data = lls__gemm_base(&p->out, batch, lls__elem_size(p->out.dtype)), .dtype = p->out.dtype};
    for (int64_t col = 0; col < (p->gated ? p->n / 2 : p->n); col++) {
        int64_t to = lls__gemm_offset(&p->out, row, col);
        if (out.dtype == LLS_I32) ((int32_t *)out.data)[to] = i32_result(p, batch, row, col);
        else if (out.dtype == LLS_I8) ((int8_t *)out.data)[to] = saturate_i8(result(p, batch, row, col));
        else lls__set(&out, to, result(p, batch, row, col));
    }
}

lls_status lls__gemm_ref(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)ctx, (void)stream;
    lls__gemm_problem p = lls__gemm_problem_of(args);
    for (int64_t i = 0; i < p.batch; i++) {
        for (int64_t row = 0; row < p.m; row++) lls__gemm_ref_row(&p, i, row);
    }
    return LLS_OK;
}
