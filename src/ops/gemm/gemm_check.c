/* Validation of gemm and gemm_grouped, which is the same but for where matrices begin. The definitions are in ops.h. */
#include "core/error.h"
#include "core/tensor.h"
#include "ops/gemm/gemm_kernels.h"

/* What is being checked. grouped: b, bias and scale_b alone have the leading axis. */
typedef struct gemm_call {
    const lls_ctx *ctx;
    const char *op;
    lls_gemm_args g;
    bool grouped;
} gemm_call;

/* The tensors as they are to be checked: where pointers say where the matrices lie, a view that nothing is known about but
 * its shape within a matrix. */
typedef struct operands {
    lls_tensor a, b, c, out;
} operands;

static lls_tensor located(const lls_tensor *t, const void *pointers) {
    lls_tensor view = *t;
    if (!pointers || view.ndim != 3) return view;
    view.data = (void *)(uintptr_t)16; // aligned, not NULL, never read
    lls_tensor matrix = view;
    matrix.shape[0] = 1;
    view.stride[0] = lls__tensor_extent(&matrix); // at least its elements
    return view;
}

static lls_status check_pointers(const char *op, const char *name, const lls_tensor *t, const void *pointers) {
    if (!pointers || !t || t->ndim == 3) return LLS_OK;
    return lls__fail(LLS_ERR_SHAPE, "%s: %s.ndim is %d, must be 3 with %s_pointers", op, name, t->ndim, name);
}

static lls__dtypes outputs_of(lls_dtype input) {
    return LLS__FLOATS | LLS__F8S | LLS__DTYPE(LLS_I8) | (input == LLS_I8 ? LLS__DTYPE(LLS_I32) : 0);
}

static lls_status check_inputs(const gemm_call *call) {
    const lls_gemm_args *g = &call->g;
    const char *op = call->op;
    static const lls__dtypes inputs = LLS__FLOATS | LLS__F8S | LLS__DTYPE(LLS_I8);
    LLS_TRY(lls__check_tensor(call->ctx, op, "a", g->a, 2, call->grouped ? 2 : 3, inputs));
    int32_t ndim = g->a->ndim, b_ndim = call->grouped ? 3 : ndim;
    LLS_TRY(lls__check_tensor(call->ctx, op, "b", g->b, b_ndim, b_ndim, inputs));
    bool both_f8 = (LLS__DTYPE(g->a->dtype) & LLS__F8S) && (LLS__DTYPE(g->b->dtype) & LLS__F8S);
    if (!both_f8) LLS_TRY(lls__check_same_dtype(op, "b", g->b, "a", g->a));
    LLS_TRY(lls__check_dim(op, "b", g->b, b_ndim - 2, g->a->shape[ndim - 1], "k, the last axis of a"));
    return ndim == 3 ? lls__check_dim(op, "b", g->b, 0, g->a->shape[0], "a.shape[0]") : LLS_OK;
}

static lls_status check_output(const gemm_call *call) {
    const lls_gemm_args *g = &call->g;
    const char *op = call->op;
    int32_t ndim = g->a->ndim, b_ndim = g->b->ndim;
    int64_t n = g->b->shape[b_ndim - 1];
    LLS_TRY(lls__check_tensor(call->ctx, op, "out", g->out, ndim, ndim, outputs_of(g->a->dtype)));
    LLS_TRY(lls__check_dim(op, "out", g->out, ndim - 2, g->a->shape[ndim - 2], "m, the rows of a"));
    if (g->gated && n % 2)
        return lls__fail(LLS_ERR_SHAPE, "%s: b.shape[%d] is %lld, must be even when gated", op, b_ndim - 1,
                         (long long)n);
    LLS_TRY(g->gated ? lls__check_dim(op, "out", g->out, ndim - 1, n / 2, "half the columns of b")
                     : lls__check_dim(op, "out", g->out, ndim - 1, n, "n, the columns of b"));
    if (ndim == 3) LLS_TRY(lls__check_dim(op, "out", g->out, 0, g->a->shape[0], "a.shape[0]"));
    LLS_TRY(lls__check_no_self_overlap(op, "out", g->out));
    if (g->out_pointers) return LLS_OK;
    if (!g->a_pointers) LLS_TRY(lls__check_disjoint(op, "out", g->out, "a", g->a));
    return g->b_pointers ? LLS_OK : lls__check_disjoint(op, "out", g->out, "b", g->b);
}

// c or residual: out's shape and dtype, or any float dtype where out has none.
static lls_status check_addend(const gemm_call *call, const char *name, const lls_tensor *t, bool anywhere) {
    const lls_gemm_args *g = &call->g;
    const char *op = call->op;
    LLS_TRY(lls__check_tensor(call->ctx, op, name, t, 2, 3, LLS__FLOATS | LLS__DTYPE(LLS_I32)));
    if (lls__is_float(g->out->dtype) || g->out->dtype == LLS_I32) {
        LLS_TRY(lls__check_same_dtype(op, name, t, "out", g->out));
    } else if (!lls__is_float(t->dtype)) {
        return lls__fail(LLS_ERR_DTYPE, "%s: %s.dtype is %s, must be f32, f16 or bf16", op, name,
                         lls_dtype_name(t->dtype));
    }
    LLS_TRY(lls__check_same_shape(op, name, t, "out", g->out));
    return anywhere || g->out_pointers ? LLS_OK : lls__check_in_place_or_disjoint(op, "out", g->out, name, t);
}

static lls_status check_c(const gemm_call *call) {
    const lls_gemm_args *g = &call->g;
    const char *op = call->op;
    if (g->beta != 0 && g->gated)
        return lls__fail(LLS_ERR_ARGUMENT, "%s: beta is %g, must be 0 when gated", op, (double)g->beta);
    if (!g->c && g->beta == 0) return LLS_OK;
    if (!g->c)
        return lls__fail(LLS_ERR_ARGUMENT, "%s: c is NULL, must be a tensor since beta is %g", op, (double)g->beta);
    return check_addend(call, "c", g->c, g->c_pointers != NULL);
}

// Integer products stay integers: there is nothing to scale them by, and nothing to add but c.
static lls_status check_i32(const gemm_call *call) {
    const lls_gemm_args *g = &call->g;
    const char *op = call->op;
    if (g->alpha != 1)
        return lls__fail(LLS_ERR_ARGUMENT, "%s: alpha is %g, must be 1 for out i32", op, (double)g->alpha);
    if (g->beta != 0 && g->beta != 1)
        return lls__fail(LLS_ERR_ARGUMENT, "%s: beta is %g, must be 0 or 1 for out i32", op, (double)g->beta);
    const char *extra = g->bias       ? "bias"
                        : g->act      ? "act"
                        : g->gated    ? "gated"
                        : g->residual ? "residual"
                        : g->scale_a  ? "scale_a"
                        : g->scale_b  ? "scale_b"
                                      : NULL;
    return extra ? lls__fail(LLS_ERR_ARGUMENT, "%s: %s is set, must not be for out i32", op, extra) : LLS_OK;
}

static lls_status check_vector_addends(const gemm_call *call) {
    const lls_gemm_args *g = &call->g;
    const char *op = call->op;
    if (g->act < LLS_GEMM_ACT_NONE || g->act > LLS_GEMM_ACT_GELU_TANH)
        return lls__fail(LLS_ERR_ARGUMENT, "%s: act is %d, must be one of lls_gemm_act", op, (int)g->act);
    const uint32_t known = LLS_GEMM_TF32 | LLS_GEMM_BATCH_INVARIANT | LLS_GEMM_FAST_ACCUM;
    if (g->flags & ~known)
        return lls__fail(LLS_ERR_ARGUMENT, "%s: flags are 0x%x, must be of lls_gemm_flags (0x%x)", op, g->flags, known);
    if (!g->bias) return LLS_OK;
    int32_t ndim = call->grouped ? 2 : 1;
    LLS_TRY(lls__check_tensor(call->ctx, op, "bias", g->bias, ndim, ndim, LLS__FLOATS));
    if (call->grouped) LLS_TRY(lls__check_dim(op, "bias", g->bias, 0, g->b->shape[0], "b.shape[0]"));
    LLS_TRY(lls__check_dim(op, "bias", g->bias, ndim - 1, g->b->shape[g->b->ndim - 1], "n, the columns of b"));
    return g->out_pointers ? LLS_OK : lls__check_disjoint(op, "out", g->out, "bias", g->bias);
}

static int64_t blocks_of(int64_t n) {
    return (n + LLS__GEMM_BLOCK - 1) / LLS__GEMM_BLOCK;
}

// Of a scale [1] or [rows, cols]: whether it has one of the `num` shapes.
static bool has_shape(const lls_tensor *t, int32_t num, const int64_t (*shapes)[2]) {
    if (t->ndim == 1) return t->shape[0] == 1;
    const int64_t *shape = t->shape + (t->ndim - 2);
    for (int32_t i = 0; i < num; i++) {
        if (shape[0] == shapes[i][0] && shape[1] == shapes[i][1]) return true;
    }
    return false;
}

// leading: the axis that the scale may have before its matrix, e.g. "out.shape[0]", and its size; NULL: none.
static lls_status check_scale(const gemm_call *call, const char *name, const lls_tensor *t, const char *leading,
                              int64_t size, int32_t num, const int64_t (*shapes)[2]) {
    if (!t) return LLS_OK;
    const lls_gemm_args *g = &call->g;
    const char *op = call->op;
    LLS_TRY(lls__check_tensor(call->ctx, op, name, t, 1, leading ? 3 : 2, LLS__DTYPE(LLS_F32)));
    if (t->ndim == 3) LLS_TRY(lls__check_dim(op, name, t, 0, size, leading));
    if (!has_shape(t, num, shapes)) {
        const int64_t *shape = t->ndim > 1 ? t->shape + (t->ndim - 2) : t->shape;
        const int64_t *last = shapes[num - 1];
        return t->ndim == 1 ? lls__fail(LLS_ERR_SHAPE, "%s: %s has %lld elements, must be 1, or a matrix", op, name,
                                        (long long)shape[0])
                            : lls__fail(LLS_ERR_SHAPE, "%s: %s is %lld x %lld, must be 1, %lld x %lld or %lld x %lld",
                                        op, name, (long long)shape[0], (long long)shape[1], (long long)shapes[1][0],
                                        (long long)shapes[1][1], (long long)last[0], (long long)last[1]);
    }
    return g->out_pointers ? LLS_OK : lls__check_disjoint(op, "out", g->out, name, t);
}

static lls_status check_scales(const gemm_call *call) {
    const lls_gemm_args *g = &call->g;
    const char *op = call->op;
    int32_t ndim = g->a->ndim;
    int64_t m = g->a->shape[ndim - 2], n = g->b->shape[g->b->ndim - 1], k = g->a->shape[ndim - 1];
    int32_t num = LLS__DTYPE(g->a->dtype) & LLS__F8S ? 3 : 2; // with the block scales, or without
    const int64_t a[][2] = {{1, 1}, {m, 1}, {m, blocks_of(k)}}, b[][2] = {{1, 1}, {1, n}, {blocks_of(k), blocks_of(n)}},
                  out[][2] = {{1, 1}, {m, 1}, {1, g->out->shape[ndim - 1]}};
    const char *batch = ndim == 3 ? "out.shape[0]" : NULL;
    int64_t size = g->out->shape[0], groups = g->b->shape[0];
    LLS_TRY(check_scale(call, "scale_a", g->scale_a, batch, size, num, a));
    LLS_TRY(call->grouped ? check_scale(call, "scale_b", g->scale_b, "b.shape[0]", groups, num, b)
                          : check_scale(call, "scale_b", g->scale_b, batch, size, num, b));
    if (g->scale_out && (lls__is_float(g->out->dtype) || g->out->dtype == LLS_I32))
        return lls__fail(LLS_ERR_ARGUMENT, "%s: scale_out is set, must not be for out %s", op,
                         lls_dtype_name(g->out->dtype));
    return check_scale(call, "scale_out", g->scale_out, batch, size, 3, out);
}

static lls_status check_all(const gemm_call *call) {
    LLS_TRY(check_inputs(call));
    LLS_TRY(check_output(call));
    LLS_TRY(check_c(call));
    LLS_TRY(check_vector_addends(call));
    if (call->g.residual) LLS_TRY(check_addend(call, "residual", call->g.residual, false));
    LLS_TRY(check_scales(call));
    return call->g.out->dtype == LLS_I32 ? check_i32(call) : LLS_OK;
}

lls_status lls__gemm_check(const lls_ctx *ctx, const lls_gemm_args *args) {
    gemm_call call = {.ctx = ctx, .op = "gemm", .g = *args};
    LLS_TRY(check_pointers(call.op, "a", args->a, args->a_pointers));
    LLS_TRY(check_pointers(call.op, "b", args->b, args->b_pointers));
    LLS_TRY(check_pointers(call.op, "c", args->c, args->c_pointers));
    LLS_TRY(check_pointers(call.op, "out", args->out, args->out_pointers));
    lls_gemm_args *g = &call.g;
    operands views;
    if (g->a) views.a = located(g->a, g->a_pointers), g->a = &views.a;
    if (g->b) views.b = located(g->b, g->b_pointers), g->b = &views.b;
    if (g->c) views.c = located(g->c, g->c_pointers), g->c = &views.c;
    if (g->out) views.out = located(g->out, g->out_pointers), g->out = &views.out;
    return check_all(&call);
}

lls_status lls__gemm_check_grouped(const lls_ctx *ctx, const lls_gemm_args *args) {
    return check_all(&(gemm_call){.ctx = ctx, .op = "gemm_grouped", .g = *args, .grouped = true});
}

// ---- The validated arguments as plain data ------------------------------------------------------------

static lls__gemm_matrix matrix_of(const lls_tensor *t, const void *const *pointers) {
    int32_t row = t->ndim - 2, col = t->ndim - 1;
    return (lls__gemm_matrix){
        .data = pointers ? (void *)(uintptr_t)pointers : t->data,
        .pointers = pointers,
        .dtype = t->dtype,
        .batch = t->ndim == 3 && t->shape[0] > 1 ? t->stride[0] : 0,
        .row = t->shape[row] > 1 ? t->stride[row] : 1,
        .col = t->shape[col] > 1 ? t->stride[col] : 1,
    };
}

// `line` is the axis, of the last two, along which the tensor's lines are counted; `lines` how many there are.
static lls__gemm_scale scale_of(const lls_tensor *t, int32_t line, int64_t lines) {
    lls__gemm_scale s = {.data = t->data, .line_size = 1};
    if (t->ndim == 1) return s;
    int32_t line_axis = t->ndim - 2 + line, k_axis = t->ndim - 1 - line;
    if (t->ndim == 3 && t->shape[0] > 1) s.batch = t->stride[0];
    if (t->shape[line_axis] > 1) s.line = t->stride[line_axis];
    if (t->shape[k_axis] > 1) s.k = t->stride[k_axis];
    s.blocks = t->shape[k_axis] > 1;
    if (t->shape[line_axis] > 1 && t->shape[line_axis] < lines) s.line_size = LLS__GEMM_BLOCK;
    return s;
}

lls__gemm_problem lls__gemm_problem_of(const lls_gemm_args *args) {
    const lls_tensor *a = args->a, *b = args->b, *out = args->out, *bias = args->bias;
    int32_t row = a->ndim - 2, col = a->ndim - 1;
    lls__gemm_problem p = {
        .a = matrix_of(a, args->a_pointers),
        .b = matrix_of(b, args->b_pointers),
        .out = matrix_of(out, (const void *const *)args->out_pointers),
        .batch = b->ndim == 3 ? b->shape[0] : 1,
        .m = out->shape[row],
        .n = b->shape[b->ndim - 1],
        .k = a->shape[col],
        .alpha = args->alpha,
        .beta = args->beta,
        .act = args->act,
        .gated = args->gated,
        .flags = args->flags,
    };
    if (p.beta != 0) p.c = matrix_of(args->c, args->c_pointers);
    if (args->residual) p.residual = matrix_of(args->residual, NULL);
    if (bias) {
        int64_t batch = bias->ndim == 2 && bias->shape[0] > 1 ? bias->stride[0] : 0;
        p.bias = (lls__gemm_matrix){
            .data = bias->data, .dtype = bias->dtype, .batch = batch, .col = bias->stride[bias->ndim - 1]};
    }
    if (args->scale_out) {
        bool by_col = args->scale_out->ndim > 1 && args->scale_out->shape[args->scale_out->ndim - 1] > 1;
        if (by_col) p.scale_out_col = scale_of(args->scale_out, 1, out->shape[col]);
        else p.scale_out = scale_of(args->scale_out, 0, p.m);
    }
    if (p.alpha == 0 || p.k == 0) {
        p.alpha = 0, p.k = 0;
        return p;
    }
    if (args->scale_a) p.scale_a = scale_of(args->scale_a, 0, p.m);
    if (args->scale_b) p.scale_b = scale_of(args->scale_b, 1, p.n);
    return p;
}
