/* attn_merge: known fault D10, the merge of two halves of a softmax, strides, in place, empty states, errors. */
#include <math.h>
#include <stdio.h>

#include "harness/harness.h"

typedef struct params {
    int64_t tokens, heads, dim;
    lls_dtype dtype;
    bool in_place, strided;
} params;

static lls_attn_merge_args args_of(const th *h, const lls_tensor *a, const lls_tensor *lse_a, const lls_tensor *b,
                                   const lls_tensor *lse_b, const lls_tensor *out, const lls_tensor *lse) {
    lls_attn_merge_args m = LLS_ATTN_MERGE_ARGS_INIT;
    m.a = a, m.lse_a = lse_a, m.b = b, m.lse_b = lse_b, m.out = out, m.lse = lse, m.variant = h->variant;
    return m;
}

static lls_tensor vector(th *h, lls_dtype dtype, double value) {
    return th_constant(h, dtype, 3, (int64_t[]){1, 1, 8}, NULL, value);
}

static lls_tensor scalar(th *h, double value) {
    return th_constant(h, LLS_F32, 2, (int64_t[]){1, 1}, NULL, value);
}

// merge((x, lse_x), (y, lse_y)) of [1, 1, 8] states in f32; the names of the outputs differ from call to call.
static bool merge_values(th *h, double x, double lse_x, double y, double lse_y, double want, double want_lse) {
    lls_tensor a = vector(h, LLS_F32, x), b = vector(h, LLS_F32, y), la = scalar(h, lse_x), lb = scalar(h, lse_y);
    lls_tensor out = th_output(h, "out", LLS_F32, 3, (int64_t[]){1, 1, 8}, NULL, 1e-6),
               lse = th_output(h, "lse", LLS_F32, 2, (int64_t[]){1, 1}, NULL, 1e-6);
    lls_attn_merge_args m = args_of(h, &a, &la, &b, &lb, &out, &lse);
    if (!th_ok(h, lls_attn_merge(h->ctx, &m, h->stream))) return false;
    th_expect_near(h, &out, 5, want, want == x || want == y ? 0 : 1e-6);
    th_expect_near(h, &lse, 0, want_lse, 1e-6);
    if (signbit(th_value(h, &out, 5)) != signbit(want)) th_fail(h, "the sign of %g was lost", want);
    return true;
}

static void d10(th *h, const void *param) {
    (void)param;
    if (!merge_values(h, 0, -INFINITY, 0, -INFINITY, 0, -INFINITY)) return;
    if (!merge_values(h, NAN, -INFINITY, NAN, -INFINITY, 0, -INFINITY)) return;
    if (!merge_values(h, 0.7, 0.5, NAN, -INFINITY, (float)0.7, 0.5)) return;
    if (!merge_values(h, NAN, -INFINITY, -0.0, 0.5, -0.0, 0.5)) return;
    if (!merge_values(h, 1, 0, 3, log(3), 2.5, 1.386294361)) return;
    merge_values(h, 1, -40000, 3, -40000, 2, -40000 + log(2)); // far from zero
}

static double some_empty(int64_t i, const void *user) {
    return i % 7 == *(const int *)user ? -INFINITY : 3 * th_hash(i + *(const int *)user, NULL);
}

static void random_case(th *h, const void *param) {
    const params *p = param;
    int64_t shape[] = {p->tokens, p->heads, p->dim}, heads_first[] = {p->dim + 3, p->tokens * (p->dim + 3), 1},
            lse_shape[] = {p->tokens, p->heads};
    int64_t lse_heads_first[] = {1, p->tokens}; // as attn_prefill writes it
    const int64_t *strides = p->strided ? heads_first : NULL, *lse_strides = p->strided ? lse_heads_first : NULL;
    lls_tensor a = th_normal(h, p->dtype, 3, shape, strides, 1), b = th_normal(h, p->dtype, 3, shape, NULL, 1);
    lls_tensor la = th_filled(h, LLS_F32, 2, lse_shape, lse_strides, some_empty, &(int){2}),
               lb = th_filled(h, LLS_F32, 2, lse_shape, NULL, some_empty, &(int){4});
    lls_tensor out = a, lse = la;
    if (p->in_place) {
        th_also_output(h, "out", &a, th_tol(p->dtype));
        th_also_output(h, "lse", &la, 1e-5);
    } else {
        out = th_output(h, "out", p->dtype, 3, shape, strides, th_tol(p->dtype));
        lse = th_output(h, "lse", LLS_F32, 2, lse_shape, lse_strides, 1e-5);
    }
    lls_attn_merge_args m = args_of(h, &a, &la, &b, &lb, &out, &lse);
    th_ok(h, lls_attn_merge(h->ctx, &m, h->stream));
}

static void generate(th *h) {
    static const int64_t dims[] = {1, 8, 15, 64, 72, 128, 256, 520};
    static const lls_dtype dtypes[] = {LLS_F32, LLS_F16, LLS_BF16};
    for (int d = 0; d < 8; d++) {
        for (int t = 0; t < 3; t++) {
            for (int mode = 0; mode < 3; mode++) {
                params p = {.tokens = mode == 1 ? 1 : 37,
                            .heads = 1 + 2 * (d % 4),
                            .dim = dims[d],
                            .dtype = dtypes[t],
                            .in_place = mode == 1,
                            .strided = mode == 2};
                char name[96];
                snprintf(name, sizeof name, "random %lldx%lldx%lld %s%s%s", (long long)p.tokens, (long long)p.heads,
                         (long long)p.dim, lls_dtype_name(p.dtype), p.in_place ? " in place" : "",
                         p.strided ? " heads first" : "");
                th_run_case(h, name, random_case, &p);
            }
        }
    }
}

// Attention over all keys is the merge of attention over the first and the last of them.
static void halves(th *h, const void *param) {
    (void)param;
    int64_t q_shape[] = {1, 5, 4, 64}, kv_shape[] = {1, 90, 2, 64}, lse_shape[] = {1, 4, 5};
    lls_tensor q = th_normal(h, LLS_F32, 4, q_shape, NULL, 1), k = th_normal(h, LLS_F32, 4, kv_shape, NULL, 1),
               v = th_normal(h, LLS_F32, 4, kv_shape, NULL, 1);
    lls_tensor part[3], lse[3];
    const int64_t begin[] = {0, 0, 61}, end[] = {90, 61, 90};
    for (int i = 0; i < 3; i++) {
        part[i] = th_output(h, "part", LLS_F32, 4, q_shape, NULL, 1e-5),
        lse[i] = th_output(h, "part's lse", LLS_F32, 3, lse_shape, NULL, 1e-5);
        lls_tensor some_k = k, some_v = v;
        some_k.shape[1] = some_v.shape[1] = end[i] - begin[i];
        some_k.data = (float *)k.data + begin[i] * k.stride[1], some_v.data = (float *)v.data + begin[i] * v.stride[1];
        lls_attn_prefill_args a = LLS_ATTN_PREFILL_ARGS_INIT;
        a.q = &q, a.k = &some_k, a.v = &some_v, a.out = &part[i], a.lse = &lse[i];
        if (!th_ok(h, lls_attn_prefill(h->ctx, &a, h->stream))) return;
    }
    lls_tensor state[3], state_lse[3];
    for (int i = 0; i < 3; i++) {
        state[i] = part[i], state[i].ndim = 3, state_lse[i] = lse[i], state_lse[i].ndim = 2;
        for (int axis = 0; axis < 3; axis++)
            state[i].shape[axis] = part[i].shape[axis + 1], state[i].stride[axis] = part[i].stride[axis + 1];
        state_lse[i].shape[0] = 5, state_lse[i].shape[1] = 4, state_lse[i].stride[0] = 1, state_lse[i].stride[1] = 5;
    }
    lls_tensor out = th_output(h, "out", LLS_F32, 3, state[0].shape, NULL, 1e-5),
               out_lse = th_output(h, "lse", LLS_F32, 2, state_lse[0].shape, NULL, 1e-5);
    lls_attn_merge_args m = args_of(h, &state[1], &state_lse[1], &state[2], &state_lse[2], &out, &out_lse);
    if (!th_ok(h, lls_attn_merge(h->ctx, &m, h->stream))) return;
    for (int64_t i = 0; i < 5 * 4 * 64; i += 7) {
        double got = th_value(h, &out, i), want = th_value(h, &part[0], i);
        if (!(fabs(got - want) <= 1e-5 * (fabs(want) + 0.2)))
            th_fail(h, "element %lld: halves merge to %.9g, the whole is %.9g", (long long)i, got, want);
    }
    th_expect_near(h, &out_lse, 7, th_value(h, &state_lse[0], 7), 1e-5);
}

static void zero_sizes(th *h, const void *param) {
    (void)param;
    int64_t shape[] = {0, 4, 8};
    lls_tensor a = th_normal(h, LLS_F16, 3, shape, NULL, 1), lse = th_normal(h, LLS_F32, 2, shape, NULL, 1),
               out = th_output(h, "out", LLS_F16, 3, shape, NULL, 0);
    lls_attn_merge_args m = args_of(h, &a, &lse, &a, &lse, &out, NULL);
    if (th_ok(h, lls_attn_merge(h->ctx, &m, h->stream))) random_case(h, &(params){3, 2, 8, LLS_F16, false, false});
}

static void errors(th *h, const void *param) {
    (void)param;
    int64_t shape[] = {3, 4, 8}, other[] = {3, 4, 16};
    lls_tensor a = th_normal(h, LLS_F16, 3, shape, NULL, 1), wide = th_normal(h, LLS_F16, 3, other, NULL, 1),
               a32 = th_normal(h, LLS_F32, 3, shape, NULL, 1);
    lls_tensor lse = th_normal(h, LLS_F32, 2, shape, NULL, 1),
               swapped = th_normal(h, LLS_F32, 2, (int64_t[]){4, 3}, NULL, 1);
    lls_tensor out = th_output(h, "out", LLS_F16, 3, shape, NULL, 0), shifted = a;
    lls_attn_merge_args m = args_of(h, &a, &lse, &wide, &lse, &out, NULL);
    th_expect_error(h, lls_attn_merge(h->ctx, &m, h->stream), LLS_ERR_SHAPE,
                    "b.shape[2] is 16, must equal a.shape[2] = 8");
    m = args_of(h, &a, &lse, &a32, &lse, &out, NULL);
    th_expect_error(h, lls_attn_merge(h->ctx, &m, h->stream), LLS_ERR_DTYPE,
                    "b.dtype is f32, must equal a.dtype = f16");
    m = args_of(h, &a, &lse, &a, &swapped, &out, NULL);
    th_expect_error(h, lls_attn_merge(h->ctx, &m, h->stream), LLS_ERR_SHAPE,
                    "lse_b.shape[0] is 4, must equal a.shape[0] = 3");
    m = args_of(h, &a, NULL, &a, &lse, &out, NULL);
    th_expect_error(h, lls_attn_merge(h->ctx, &m, h->stream), LLS_ERR_ARGUMENT, "lse_a is NULL");
    shifted.data = (char *)a.data + 2;
    m = args_of(h, &a, &lse, &a, &lse, &shifted, NULL);
    th_expect_error(h, lls_attn_merge(h->ctx, &m, h->stream), LLS_ERR_ALIAS, "partly overlaps");
    m = args_of(h, &a, &lse, &a, &lse, &out, NULL);
    m.variant = "no_such_rung";
    th_expect_error(h, lls_attn_merge(h->ctx, &m, h->stream), LLS_ERR_VARIANT, "no_such_rung");
}

static const th_case cases[] = {
    {"D10 empty states, base of the lse", d10, NULL, false},
    {"halves of the keys", halves, NULL, false},
    {"zero sizes", zero_sizes, NULL, false},
    {"errors", errors, NULL, false},
};

const th_suite th_suite_attn_merge = {"attn_merge", cases, sizeof cases / sizeof *cases, generate};
