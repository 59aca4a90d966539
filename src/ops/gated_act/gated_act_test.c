/* gated_act: accuracy into the tails, extremes, G02 (zero sizes), fused halves, in place, errors. */
#include <math.h>
#include <stdio.h>

#include "harness/harness.h"

typedef enum where { APART, OVER_GATE, OVER_UP } where;

typedef struct params {
    int64_t rows, n;
    lls_dtype dtype;
    lls_act act;
    bool gated, strided;
    where out;
} params;

static const char *const act_names[] = {"silu", "gelu", "gelu_tanh"};

static lls_gated_act_args base_args(const th *h, const lls_tensor *gate, const lls_tensor *up, const lls_tensor *out,
                                    lls_act act) {
    lls_gated_act_args args = LLS_GATED_ACT_ARGS_INIT;
    args.gate = gate, args.up = up, args.out = out, args.act = act, args.variant = h->variant;
    return args;
}

static void random_case(th *h, const void *param) {
    const params *p = param;
    int64_t shape[] = {p->rows, p->n}, stride[] = {p->n + 3, 1};
    const int64_t *strides = p->strided ? stride : NULL;
    lls_tensor gate = th_normal(h, p->dtype, 2, shape, strides, 3.0f),
               up = th_normal(h, p->dtype, 2, shape, NULL, 1.0f), out;
    if (p->out == APART) {
        out = th_output(h, "out", p->dtype, 2, shape, strides, th_tol(p->dtype));
    } else {
        out = p->out == OVER_GATE ? gate : up;
        th_also_output(h, "out", &out, th_tol(p->dtype));
    }
    lls_gated_act_args args = base_args(h, &gate, p->gated ? &up : NULL, &out, p->act);
    th_ok(h, lls_gated_act(h->ctx, &args, h->stream));
}

static void generate(th *h) {
    static const int64_t widths[] = {1, 3, 15, 16, 17, 64, 255, 257, 1536, 4096, 4099};
    static const lls_dtype dtypes[] = {LLS_F32, LLS_F16, LLS_BF16};
    for (int d = 0; d < 3; d++) {
        for (int act = LLS_ACT_SILU; act <= LLS_ACT_GELU_TANH; act++) {
            for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
                for (int mode = 0; mode < 4; mode++) {
                    params p = {.rows = i % 2 ? 3 : 17,
                                .n = widths[i],
                                .dtype = dtypes[d],
                                .act = (lls_act)act,
                                .gated = mode != 1,
                                .strided = mode % 2,
                                .out = mode == 2   ? OVER_GATE
                                       : mode == 3 ? OVER_UP
                                                   : APART};
                    char name[96];
                    snprintf(name, sizeof name, "random %lldx%lld %s %s%s%s", (long long)p.rows, (long long)p.n,
                             lls_dtype_name(p.dtype), act_names[act], p.gated ? " gated" : "",
                             p.out == OVER_GATE ? " over gate"
                             : p.out == OVER_UP ? " over up"
                                                : "");
                    th_run_case(h, name, random_case, &p);
                }
            }
        }
    }
}

/* -12 to 12: past it the lower tails of both GELUs leave the range of fp32. */
static double ramp(int64_t i, const void *user) {
    (void)user;
    return ((double)i - 480) / 40;
}

static double activation(lls_act act, double x) {
    if (act == LLS_ACT_SILU) return x / (1 + exp(-x));
    if (act == LLS_ACT_GELU) return x * erfc(-x / sqrt(2)) / 2;
    return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// The lower tail to a relative 1e-5 or so, element by element: 1 + erf or 1 + tanh in fp32 would have no correct digit
// left at -6.
static void tails(th *h, const void *param) {
    lls_act act = *(const lls_act *)param;
    int64_t shape[] = {1, 961};
    lls_tensor gate = th_filled(h, LLS_F32, 2, shape, NULL, ramp, NULL),
               out = th_output(h, "out", LLS_F32, 2, shape, NULL, 1e-5);
    lls_gated_act_args args = base_args(h, &gate, NULL, &out, act);
    if (!th_ok(h, lls_gated_act(h->ctx, &args, h->stream))) return;
    for (int64_t i = 0; i < shape[1]; i++) {
        double want = activation(act, th_value(h, &gate, i));
        if (act == LLS_ACT_GELU_TANH && fabs(want) < (th_is_reference(h) ? 1e-9 : 1e-35))
            continue; // the oracle's 1 + tanh cancels too, if in double
        // An exponent of 80 carries an error of 80 * 2^-24 for each of the roundings that made it: one or two in x^2 /
        // 2, four in u.
        th_expect_near(h, &out, i, want, act == LLS_ACT_SILU ? 1e-6 : act == LLS_ACT_GELU ? 1e-5 : 2e-5);
    }
}

static double extreme(int64_t i, const void *user) {
    (void)user;
    static const double values[] = {-1e4,     1e4,  -88.8, 88.8,   -104, -3.4e38, 3.4e38, -INFINITY,
                                    INFINITY, -0.0, 1e-30, -1e-30, -1e3, 60,      -60,    20};
    return values[i];
}

// Large |x| gives x or 0, -inf gives 0, inf gives inf: no inf * 0 and no inf / inf on the way.
static void extremes(th *h, const void *param) {
    lls_act act = *(const lls_act *)param;
    int64_t shape[] = {1, 16};
    lls_tensor gate = th_filled(h, LLS_F32, 2, shape, NULL, extreme, NULL),
               out = th_output(h, "out", LLS_F32, 2, shape, NULL, 1e-5);
    lls_gated_act_args args = base_args(h, &gate, NULL, &out, act);
    if (!th_ok(h, lls_gated_act(h->ctx, &args, h->stream))) return;
    for (int64_t i = 0; i < shape[1]; i++) {
        double x = extreme(i, NULL), y = th_value(h, &out, i);
        if (x >= 20 && y != (double)(float)x) th_fail(h, "%s(%g) is %g, must be the argument", act_names[act], x, y);
        if (x <= -60 && !(y <= 0 && y > -1e-24)) th_fail(h, "%s(%g) is %g, must vanish", act_names[act], x, y);
        if (fabs(x) <= 1e-30) th_expect_near(h, &out, i, x / 2, 1e-6);
    }
}

static double every_seventh_nan(int64_t i, const void *user) {
    (void)user;
    return i % 7 == 0 ? NAN : 1;
}

static void nan_stays(th *h, const void *param) {
    lls_act act = *(const lls_act *)param;
    int64_t shape[] = {1, 40};
    lls_tensor gate = th_filled(h, LLS_BF16, 2, shape, NULL, every_seventh_nan, NULL),
               out = th_output(h, "out", LLS_BF16, 2, shape, NULL, 1e-2);
    th_allow_nan(h, &out);
    lls_gated_act_args args = base_args(h, &gate, NULL, &out, act);
    if (!th_ok(h, lls_gated_act(h->ctx, &args, h->stream))) return;
    for (int64_t i = 0; i < shape[1]; i++) {
        if (!isnan(th_value(h, &out, i)) != (i % 7 != 0))
            th_fail(h, "element %lld: NaN did not stay where it was", (long long)i);
    }
}

// Literal values: 1 is inside the body of each approximation, -1 in its tail.
static void literals(th *h, const void *param) {
    (void)param;
    float x[] = {1, -1, 0, 2};
    static const double want[3][4] = {
        {0.7310585786, -0.2689414214, 0, 1.7615941560},
        {0.8413447461, -0.1586552539, 0, 1.9544997361},
        {0.8411919906, -0.1588080094, 0, 1.9545976974},
    };
    lls_tensor gate = th_data(h, LLS_F32, 2, (int64_t[]){1, 4}, x),
               up = th_constant(h, LLS_F32, 2, (int64_t[]){1, 4}, NULL, -2);
    for (int act = LLS_ACT_SILU; act <= LLS_ACT_GELU_TANH; act++) {
        lls_tensor out = th_output(h, act_names[act], LLS_F32, 2, (int64_t[]){1, 4}, NULL, 1e-6);
        lls_gated_act_args args = base_args(h, &gate, &up, &out, (lls_act)act);
        if (!th_ok(h, lls_gated_act(h->ctx, &args, h->stream))) return;
        for (int i = 0; i < 4; i++) th_expect_near(h, &out, i, -2 * want[act][i], 1e-6);
    }
}

// Gate and up as the two halves of one projection; the result into the gate's half.
static void fused_halves(th *h, const void *param) {
    (void)param;
    lls_tensor both = th_normal(h, LLS_F16, 2, (int64_t[]){5, 2 * 72}, NULL, 2);
    lls_tensor gate = both, up = both;
    gate.shape[1] = up.shape[1] = 72;
    up.data = (char *)both.data + 72 * 2;
    lls_tensor apart = th_output(h, "apart", LLS_F16, 2, (int64_t[]){5, 72}, NULL, 2e-3);
    lls_gated_act_args args = base_args(h, &gate, &up, &apart, LLS_ACT_SILU);
    if (!th_ok(h, lls_gated_act(h->ctx, &args, h->stream))) return;
    th_also_output(h, "in place", &gate, 2e-3);
    args.out = &gate;
    if (!th_ok(h, lls_gated_act(h->ctx, &args, h->stream))) return;
    th_expect_bits_equal(h, &apart, &gate);
}

static void many_rows(th *h, const void *param) { // more rows than a grid's y axis has blocks
    (void)param;
    int64_t shape[] = {65536 + 3, 2};
    lls_tensor gate = th_normal(h, LLS_BF16, 2, shape, NULL, 1),
               out = th_output(h, "out", LLS_BF16, 2, shape, NULL, 1e-2);
    lls_gated_act_args args = base_args(h, &gate, NULL, &out, LLS_ACT_SILU);
    th_ok(h, lls_gated_act(h->ctx, &args, h->stream));
}

static void zero_sizes(th *h, const void *param) {
    (void)param;
    int64_t shapes[][2] = {{0, 8}, {8, 0}, {1, 8}}; // the last: a call afterwards works
    for (int i = 0; i < 3; i++) {
        lls_tensor gate = th_normal(h, LLS_F16, 2, shapes[i], NULL, 1),
                   up = th_normal(h, LLS_F16, 2, shapes[i], NULL, 1);
        lls_tensor out = th_output(h, "out", LLS_F16, 2, shapes[i], NULL, 2e-3);
        lls_gated_act_args args = base_args(h, &gate, &up, &out, LLS_ACT_SILU);
        if (!th_ok(h, lls_gated_act(h->ctx, &args, h->stream))) return;
    }
}

static void errors(th *h, const void *param) {
    (void)param;
    int64_t shape[] = {2, 8}, wide[] = {2, 9};
    lls_tensor gate = th_normal(h, LLS_F16, 2, shape, NULL, 1), up = th_normal(h, LLS_F16, 2, wide, NULL, 1),
               up32 = th_normal(h, LLS_F32, 2, shape, NULL, 1);
    lls_tensor out = th_output(h, "out", LLS_F16, 2, shape, NULL, 0);
    lls_gated_act_args args = base_args(h, &gate, &up, &out, LLS_ACT_SILU);
    th_expect_error(h, lls_gated_act(h->ctx, &args, h->stream), LLS_ERR_SHAPE,
                    "up.shape[1] is 9, must equal gate.shape[1] = 8");
    args = base_args(h, &gate, &up32, &out, LLS_ACT_SILU);
    th_expect_error(h, lls_gated_act(h->ctx, &args, h->stream), LLS_ERR_DTYPE,
                    "up.dtype is f32, must equal gate.dtype = f16");
    args = base_args(h, &gate, NULL, &out, (lls_act)3);
    th_expect_error(h, lls_gated_act(h->ctx, &args, h->stream), LLS_ERR_ARGUMENT, "act is 3");
    args = base_args(h, &gate, NULL, NULL, LLS_ACT_SILU);
    th_expect_error(h, lls_gated_act(h->ctx, &args, h->stream), LLS_ERR_ARGUMENT, "out is NULL");
    lls_tensor columns = gate;
    columns.shape[1] = 2, columns.stride[1] = 2;
    args = base_args(h, &columns, NULL, &out, LLS_ACT_SILU);
    th_expect_error(h, lls_gated_act(h->ctx, &args, h->stream), LLS_ERR_STRIDE, "gate.stride[1] is 2, must be 1");
    lls_tensor expanded = out;
    expanded.stride[0] = 0;
    args = base_args(h, &gate, NULL, &expanded, LLS_ACT_SILU);
    th_expect_error(h, lls_gated_act(h->ctx, &args, h->stream), LLS_ERR_STRIDE, "out.stride[0] is 0");
    lls_tensor shifted = gate;
    shifted.data = (char *)gate.data + 2;
    shifted.shape[0] = 1;
    lls_tensor first = gate;
    first.shape[0] = 1;
    args = base_args(h, &first, NULL, &shifted, LLS_ACT_SILU);
    th_expect_error(h, lls_gated_act(h->ctx, &args, h->stream), LLS_ERR_ALIAS, "partly overlaps");
}

#define EACH_ACT(name, run)                                                \
    {name " silu", run, &(const lls_act){LLS_ACT_SILU}, false},            \
        {name " gelu", run, &(const lls_act){LLS_ACT_GELU}, false}, {      \
        name " gelu_tanh", run, &(const lls_act){LLS_ACT_GELU_TANH}, false \
    }
static const th_case cases[] = {
    {"random 3x20 f16 silu gated", random_case, &(const params){3, 20, LLS_F16, LLS_ACT_SILU, true, true, APART},
     false},
    EACH_ACT("tails", tails),
    EACH_ACT("extremes", extremes),
    EACH_ACT("NaN stays", nan_stays),
    {"literal values", literals, NULL, false},
    {"fused halves", fused_halves, NULL, false},
    {"rows past the grid", many_rows, NULL, false},
    {"G02 zero sizes", zero_sizes, NULL, false},
    {"errors", errors, NULL, false},
};

const th_suite th_suite_gated_act = {"gated_act", cases, sizeof cases / sizeof *cases, generate};
