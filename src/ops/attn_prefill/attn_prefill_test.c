/* attn_prefill: known faults A01 to A11 and D10 through the dense and the varlen form, strides, values nobody may see,
 * errors, products. The bias has a file of its own. */
#include <math.h>

#include "ops/attn_common/attn_test.h"
#include "ops/attn_prefill/attn_bias_test.h"

static const attn_form dense = ATTN_DENSE, varlen = ATTN_VARLEN;

static void generate(th *h) {
    attn_generate(h, (attn_form[]){ATTN_DENSE, ATTN_VARLEN}, 2);
    attn_bias_generate(h);
}

/* ---- A11: strides ---- */

enum { HEADS = 16, PACKED = HEADS + 2, DIM = 64, ROWS = 37, BATCH = 2 };

// H(i) of the packed buffer [BATCH, ROWS, PACKED, DIM], addressed from a slice of `heads` heads that begins at `first`.
typedef struct slice {
    int64_t first, heads;
} slice;

static double of_packed(int64_t i, const void *user) {
    const slice *s = user;
    int64_t row = i / (s->heads * DIM), within = i % (s->heads * DIM);
    return th_hash(row * PACKED * DIM + s->first * DIM + within, NULL);
}

static lls_tensor heads_of(lls_tensor packed, int64_t first, int64_t heads) {
    packed.data = (char *)packed.data + 2 * first * packed.stride[2];
    packed.shape[2] = heads;
    return packed;
}

static lls_status call(th *h, const lls_tensor *q, const lls_tensor *k, const lls_tensor *v, const lls_tensor *out) {
    lls_attn_prefill_args a = LLS_ATTN_PREFILL_ARGS_INIT;
    a.mask.causal = true, a.q = q, a.k = k, a.v = v, a.out = out, a.variant = h->variant;
    return lls_attn_prefill(h->ctx, &a, h->stream);
}

// Views of a packed projection, of interleaved keys, of (B, H, S, D) storage and of one batch expanded give the bits of
// contiguous tensors.
static void a11(th *h, const void *param) {
    (void)param;
    const slice qs = {0, HEADS}, ks = {HEADS, 1}, vs = {HEADS + 1, 1};
    int64_t q_shape[] = {BATCH, ROWS, HEADS, DIM}, kv_shape[] = {BATCH, ROWS, 1, DIM},
            packed_shape[] = {BATCH, ROWS, PACKED, DIM};
    lls_tensor q = th_filled(h, LLS_F16, 4, q_shape, NULL, of_packed, &qs),
               k = th_filled(h, LLS_F16, 4, kv_shape, NULL, of_packed, &ks);
    lls_tensor v = th_filled(h, LLS_F16, 4, kv_shape, NULL, of_packed, &vs),
               want = th_output(h, "contiguous", LLS_F16, 4, q_shape, NULL, 2e-3);
    if (!th_ok(h, call(h, &q, &k, &v, &want))) return;

    lls_tensor packed = th_filled(h, LLS_F16, 4, packed_shape, NULL, th_hash, NULL),
               out = th_output(h, "packed", LLS_F16, 4, q_shape, NULL, 2e-3);
    lls_tensor pq = heads_of(packed, 0, HEADS), pk = heads_of(packed, HEADS, 1), pv = heads_of(packed, HEADS + 1, 1);
    if (!th_ok(h, call(h, &pq, &pk, &pv, &out))) return;
    th_expect_bits_equal(h, &out, &want);

    int64_t every_second[] = {2 * ROWS * DIM + 40, 2 * DIM, DIM, 1};
    lls_tensor sparse_k = th_filled(h, LLS_F16, 4, kv_shape, every_second, of_packed, &ks),
               sparse = th_output(h, "every second key", LLS_F16, 4, q_shape, NULL, 2e-3);
    if (!th_ok(h, call(h, &q, &sparse_k, &v, &sparse))) return;
    th_expect_bits_equal(h, &sparse, &want);

    int64_t heads_first[] = {HEADS * ROWS * DIM, DIM, ROWS * DIM, 1};
    lls_tensor tq = th_filled(h, LLS_F16, 4, q_shape, heads_first, of_packed, &qs),
               transposed = th_output(h, "heads first", LLS_F16, 4, q_shape, heads_first, 2e-3);
    if (!th_ok(h, call(h, &tq, &k, &v, &transposed))) return;
    th_expect_bits_equal(h, &transposed, &want);

    lls_tensor ek = k, ev = v, expanded = th_output(h, "expanded", LLS_F16, 4, q_shape, NULL, 2e-3);
    ek.stride[0] = ev.stride[0] = 0; // both sequences over the keys of the first
    if (!th_ok(h, call(h, &q, &ek, &ev, &expanded))) return;
    for (int64_t i = 0; i < ROWS * HEADS * DIM; i += 101) th_expect_near(h, &expanded, i, th_value(h, &want, i), 0);
}

static void a11_inner_stride(th *h, const void *param) {
    (void)param;
    int64_t shape[] = {1, 4, 1, 8}, stride[] = {64, 16, 16, 2};
    lls_tensor q = th_normal(h, LLS_F16, 4, shape, NULL, 1), k = th_normal(h, LLS_F16, 4, shape, stride, 1),
               out = th_output(h, "out", LLS_F16, 4, shape, NULL, 0);
    th_expect_error(h, call(h, &q, &k, &q, &out), LLS_ERR_STRIDE, "k.stride[3] is 2, must be 1");
    th_expect_error(h, call(h, &q, &q, &k, &out), LLS_ERR_STRIDE, "v.stride[3] is 2, must be 1");
}

/* ---- What a row must not see ---- */

// Keys from 20 on hold NaN and infinities; rows before them are unharmed.
static double poisoned_tail(const attn_problem *p, char which, int64_t b, int64_t row, int64_t head, int64_t d) {
    if (which == 'q' || row < 20) return attn_random(p, which, b, row, head, d);
    return which == 'k' ? NAN : row % 2 ? INFINITY : NAN;
}

static void hidden_values(th *h, const void *param) {
    attn_problem p = {.batch = 1,
                      .q_len = {24},
                      .kv_len = {24},
                      .num_heads = 6,
                      .num_kv_heads = 2,
                      .head_dim = 64,
                      .dtype = LLS_F16,
                      .fill = poisoned_tail,
                      .mask = ATTN_MASK(true, -1, -1),
                      .uncompared = true};
    attn_problem clean = p;
    clean.fill = NULL, clean.out_name = "clean";
    if (!th_ok(h, attn_run(h, &p, *(const attn_form *)param)) ||
        !th_ok(h, attn_run(h, &clean, *(const attn_form *)param)))
        return;
    for (int i = 0; i < 24; i++) {
        for (int head = 0; head < 6; head++) {
            double got = attn_out(h, &p, 0, i, head, 17), want = i < 20 ? attn_out(h, &clean, 0, i, head, 17) : NAN;
            if (got != want && !(isnan(got) && isnan(want)))
                th_fail(h, "row %d head %d is %g, must be %g: keys from 20 on hold NaN", i, head, got, want);
        }
    }
}

// A sequence's bits do not depend on what shares its batch.
static void alone_or_in_a_batch(th *h, const void *param) {
    (void)param;
    attn_problem batch = {.batch = 4,
                          .q_len = {70, 1, 0, 19},
                          .kv_len = {70, 300, 5, 33},
                          .num_heads = 6,
                          .num_kv_heads = 2,
                          .head_dim = 64,
                          .dtype = LLS_F32,
                          .mask = ATTN_MASK(true, -1, -1),
                          .tol = 1e-5};
    if (!th_ok(h, attn_run(h, &batch, ATTN_VARLEN))) return;
    attn_problem alone = batch;
    alone.batch = 1, alone.out_name = "alone";
    if (!th_ok(h, attn_run(h, &alone, ATTN_VARLEN))) return;
    for (int i = 0; i < 70; i += 3) {
        for (int d = 0; d < 64; d += 9) {
            double got = attn_out(h, &batch, 0, i, 5, d), want = attn_out(h, &alone, 0, i, 5, d);
            if (got != want) th_fail(h, "row %d column %d is %.9g in a batch, %.9g alone", i, d, got, want);
        }
    }
}

/* ---- Zero sizes and errors ---- */

static void zero_sizes(th *h, const void *param) {
    (void)param;
    attn_problem no_rows = {.batch = 2,
                            .q_len = {0, 0},
                            .kv_len = {4, 4},
                            .num_heads = 2,
                            .num_kv_heads = 1,
                            .head_dim = 16,
                            .dtype = LLS_F16};
    no_rows.mask = ATTN_MASK(false, -1, -1);
    attn_problem no_keys = no_rows, nobody = no_rows;
    no_keys.q_len[0] = no_keys.q_len[1] = 3, no_keys.kv_len[0] = no_keys.kv_len[1] = 0, no_keys.sinks = true;
    nobody.batch = 0;
    if (!th_ok(h, attn_run(h, &no_rows, ATTN_DENSE)) || !th_ok(h, attn_run(h, &no_keys, ATTN_DENSE)) ||
        !th_ok(h, attn_run(h, &nobody, ATTN_VARLEN)))
        return;
    attn_expect_out(h, &no_keys, 1, 2, 1, 15, 0, 0);
    attn_expect_lse(h, &no_keys, 1, 2, 0, -0.5, 0); // the sink alone
    attn_expect_lse(h, &no_keys, 1, 2, 1, -0.25, 0);
}

// Every sequence empty: the rows of q belong to nobody and out keeps its bytes.
static void a03_all_empty(th *h, const void *param) {
    (void)param;
    int64_t shape[] = {2, 3, 64}, bounds = 4;
    int32_t zeros[4] = {0};
    lls_tensor q = th_normal(h, LLS_F16, 3, shape, NULL, 1), out = th_output(h, "out", LLS_F16, 3, shape, NULL, 0),
               cu = th_data(h, LLS_I32, 1, &bounds, zeros);
    th_allow_nan(h, &out);
    lls_attn_prefill_args a = LLS_ATTN_PREFILL_ARGS_INIT;
    a.q = &q, a.k = &q, a.v = &q, a.out = &out, a.cu_seqlens_q = &cu, a.cu_seqlens_kv = &cu, a.max_q_len = 1,
    a.variant = h->variant;
    if (th_ok(h, lls_attn_prefill(h->ctx, &a, h->stream)) && !isnan(th_value(h, &out, 70)))
        th_fail(h, "a row past the last sequence was written");
}

static void a08_negative(th *h, const void *param) {
    (void)param;
    attn_problem p = {.batch = 1,
                      .q_len = {1},
                      .kv_len = {2},
                      .num_heads = 1,
                      .num_kv_heads = 1,
                      .head_dim = 64,
                      .dtype = LLS_F32,
                      .softcap = -1};
    th_expect_error(h, attn_run(h, &p, ATTN_DENSE), LLS_ERR_ARGUMENT, "softcap is -1");
}

static void errors(th *h, const void *param) {
    (void)param;
    int64_t shape[] = {2, 5, 6, 16}, kv_shape[] = {2, 7, 4, 16}, big[] = {1, 2, 1, 264};
    lls_tensor q = th_normal(h, LLS_F16, 4, shape, NULL, 1), k = th_normal(h, LLS_F16, 4, kv_shape, NULL, 1),
               out = th_output(h, "out", LLS_F16, 4, shape, NULL, 0);
    th_expect_error(h, call(h, &q, &k, &k, &out), LLS_ERR_SHAPE,
                    "q has 6 heads, must be a multiple of the 4 heads of k");
    kv_shape[2] = 3;
    lls_tensor k3 = th_normal(h, LLS_F16, 4, kv_shape, NULL, 1), k32 = th_normal(h, LLS_F32, 4, kv_shape, NULL, 1);
    th_expect_error(h, call(h, &q, &k32, &k32, &out), LLS_ERR_DTYPE, "k.dtype is f32, must equal q.dtype = f16");
    th_expect_error(h, call(h, &q, &k3, &k32, &out), LLS_ERR_DTYPE, "v.dtype is f32");
    kv_shape[3] = 8;
    lls_tensor k8 = th_normal(h, LLS_F16, 4, kv_shape, NULL, 1);
    th_expect_error(h, call(h, &q, &k8, &k8, &out), LLS_ERR_SHAPE, "k.shape[3] is 8, must equal q's head_dim = 16");
    th_expect_error(h, call(h, &q, &k3, &k8, &out), LLS_ERR_SHAPE,
                    "out.shape[3] is 16, must equal the head_dim of v = 8");
    th_expect_error(h, call(h, &q, &k3, &k3, &q), LLS_ERR_ALIAS, "out at");
    lls_tensor wide = th_normal(h, LLS_F16, 4, big, NULL, 1), wide_out = th_output(h, "wide", LLS_F16, 4, big, NULL, 0);
    th_expect_error(h, call(h, &wide, &wide, &wide, &wide_out), LLS_ERR_SHAPE,
                    "q.shape[3] is 264, a head must have 1 to 256 elements");

    lls_attn_prefill_args a = LLS_ATTN_PREFILL_ARGS_INIT;
    a.q = &q, a.k = &k3, a.v = &k3, a.out = &out, a.variant = h->variant;
    a.mask.window_left = -2;
    th_expect_error(h, lls_attn_prefill(h->ctx, &a, h->stream), LLS_ERR_ARGUMENT, "window_left is -2");
    a.mask.window_left = -1, a.score.scale = NAN;
    th_expect_error(h, lls_attn_prefill(h->ctx, &a, h->stream), LLS_ERR_ARGUMENT, "scale is nan");
    a.score.scale = 0, a.variant = "no_such_rung";
    th_expect_error(h, lls_attn_prefill(h->ctx, &a, h->stream), LLS_ERR_VARIANT, "no_such_rung");
    a.variant = h->variant;

    int64_t rows[] = {10, 6, 16}, bounds = 3;
    int32_t good[] = {0, 4, 10}, falling[] = {0, 12, 10}, late[] = {1, 4, 10}, far[] = {0, 4, 11};
    lls_tensor rq = th_normal(h, LLS_F16, 3, rows, NULL, 1), rout = th_output(h, "ragged", LLS_F16, 3, rows, NULL, 0);
    lls_tensor cu_good = th_data(h, LLS_I32, 1, &bounds, good), cu_falling = th_data(h, LLS_I32, 1, &bounds, falling);
    lls_tensor cu_late = th_data(h, LLS_I32, 1, &bounds, late), cu_far = th_data(h, LLS_I32, 1, &bounds, far);
    a.q = a.k = a.v = &rq, a.out = &rout;
    a.cu_seqlens_q = &cu_good;
    th_expect_error(h, lls_attn_prefill(h->ctx, &a, h->stream), LLS_ERR_ARGUMENT, "cu_seqlens_kv is NULL");
    a.cu_seqlens_kv = &cu_good;
    th_expect_error(h, lls_attn_prefill(h->ctx, &a, h->stream), LLS_ERR_ARGUMENT,
                    "max_q_len is 0, must be at least the longest q_len");
    if (h->device.type != LLS_CPU) return; // the values below are read on the CPU only
    a.max_q_len = 5;
    th_expect_error(h, lls_attn_prefill(h->ctx, &a, h->stream), LLS_ERR_ARGUMENT,
                    "max_q_len is 5, must be at least the longest q_len; sequence 1 has 6");
    a.max_q_len = 12, a.cu_seqlens_q = &cu_falling;
    th_expect_error(h, lls_attn_prefill(h->ctx, &a, h->stream), LLS_ERR_ARGUMENT,
                    "cu_seqlens_q[2] is 10, must be at least the one before it, 12");
    a.cu_seqlens_q = &cu_late;
    th_expect_error(h, lls_attn_prefill(h->ctx, &a, h->stream), LLS_ERR_ARGUMENT, "cu_seqlens_q[0] is 1, must be 0");
    a.cu_seqlens_q = &cu_good, a.cu_seqlens_kv = &cu_far;
    th_expect_error(h, lls_attn_prefill(h->ctx, &a, h->stream), LLS_ERR_ARGUMENT,
                    "cu_seqlens_kv[2] is 11, must be at most the tensor's 10 rows");
}

#define BOTH(name, run)                     \
    {name " dense", run, &dense, false}, {  \
        name " varlen", run, &varlen, false \
    }
static const th_case cases[] = {
    BOTH("A01 bottom-right causal", attn_a01),
    {"A03 empty sequences varlen", attn_a03, &varlen, false},
    {"A03 all sequences empty", a03_all_empty, NULL, false},
    BOTH("A05 head_dims", attn_a05),
    BOTH("A06 group sizes", attn_a06),
    BOTH("A07 window", attn_a07),
    BOTH("A08 softcap", attn_a08),
    {"A08 negative softcap", a08_negative, NULL, false},
    BOTH("A09 very negative logits", attn_a09),
    {"A11 strides", a11, NULL, false},
    {"A11 inner stride", a11_inner_stride, NULL, false},
    BOTH("D10 lse of equal logits", attn_lse_of_equals),
    BOTH("NaN in hidden keys", hidden_values),
    {"alone or in a batch", alone_or_in_a_batch, NULL, false},
    {"zero sizes", zero_sizes, NULL, false},
    {"errors", errors, NULL, false},
    {"bias in the score", attn_bias_in_score, NULL, false},
    {"bias as causal mask and window", attn_bias_as_mask, NULL, false},
    {"bias as ALiBi", attn_bias_as_alibi, NULL, false},
    {"bias that hides a row", attn_bias_hides_rows, NULL, false},
    {"bias of inf and NaN", attn_bias_not_finite, NULL, false},
    {"bias, zero sizes", attn_bias_zero_sizes, NULL, false},
    {"bias, errors", attn_bias_errors, NULL, false},
};

const th_suite th_suite_attn_prefill = {"attn_prefill", cases, sizeof cases / sizeof *cases, generate};
