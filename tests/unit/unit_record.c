/* Recordings: which calls they hold, and what each op says it costs, against figures worked out by hand. */
#include "core/tensor.h"
#include "dispatch/variant.h"
#include "unit/unit.h"

static lls_ctx *ctx;
static const lls_device cpu = {LLS_CPU, 0};

/* Rank and sizes, or count and values. */
#define SHAPE(...)                                                            \
    (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { \
        __VA_ARGS__                                                           \
    }

/* Tensors come from one arena, zeroed before each test. */
static _Alignas(256) unsigned char memory[1 << 16];
static lls_tensor made[32];
static size_t used, num_made;

static lls_tensor *tensor(lls_dtype dtype, size_t ndim, const int64_t *shape) {
    lls_tensor *t = &made[num_made++];
    *t = lls_tensor_make(memory + used, dtype, cpu, (int32_t)ndim, shape);
    used += ((size_t)lls__tensor_extent(t) + 255) / 256 * 256;
    assert_true(used <= sizeof memory && num_made < 32);
    return t;
}

static lls_tensor *f32(size_t ndim, const int64_t *shape) {
    return tensor(LLS_F32, ndim, shape);
}

static lls_tensor *expanded(lls_tensor *t, int32_t dim, int64_t size) {
    t->shape[dim] = size, t->stride[dim] = 0;
    return t;
}

static lls_tensor *ints(size_t n, const int64_t *values) {
    lls_tensor *t = tensor(LLS_I32, 1, (const int64_t[]){(int64_t)n});
    for (size_t i = 0; i < n; i++) ((int32_t *)t->data)[i] = (int32_t)values[i];
    return t;
}

static lls_record record; // of the one call since the start

static void start(void) {
    record = (lls_record){0};
    assert_int_equal(lls_ctx_record(ctx, &record, 1), LLS_OK);
}

static int clear(void **state) {
    (void)state;
    memset(memory, 0, sizeof memory);
    used = num_made = 0;
    start();
    return 0;
}

// The call that returned `status` left the record; the next one starts.
static void expect_cost(lls_status status, double bytes, double flops, lls_math math) {
    if (status) fail_msg("%s", lls_last_error());
    assert_int_equal(lls_ctx_recorded(ctx), 1);
    if (record.bytes != bytes || record.flops != flops || record.math != math) {
        fail_msg("%s: %g bytes, %g operations of kind %d, must be %g, %g and %d", record.op, record.bytes, record.flops,
                 (int)record.math, bytes, flops, (int)math);
    }
    assert_int_equal(record.device.type, LLS_CPU);
    assert_true(record.num_kernels == 0 && !record.kernel && record.occupancy == 0);
    start();
}

static void every_op_has_a_cost(void **state) {
    (void)state;
    for (int32_t i = 0; i < lls__num_ops; i++) assert_non_null(lls__ops[i]->cost);
}

static void bytes_of_views(void **state) {
    (void)state;
    lls_tensor *t = f32(SHAPE(4, 6));
    assert_true(lls__tensor_bytes(t) == 96);
    assert_true(lls__tensor_rows_bytes(t, 3) == 72 && lls__tensor_rows_bytes(t, 9) == 96);
    assert_true(lls__tensor_bytes(NULL) == 0 && lls__tensor_rows_bytes(NULL, 3) == 0);
    t->stride[0] = 2; // rows overlap: 3 * 2 + 6 elements
    assert_true(lls__tensor_bytes(t) == 48);
    t->stride[0] = 100; // gaps are not read
    assert_true(lls__tensor_bytes(t) == 96);
    assert_true(lls__tensor_bytes(expanded(t, 0, 4)) == 24);
    assert_true(lls__tensor_bytes(expanded(t, 1, 6)) == 4);
    assert_true(lls__tensor_bytes(tensor(LLS_Q4_K, SHAPE(3, 512))) == 3 * 2 * 144);
    assert_true(lls__tensor_bytes(f32(SHAPE(0, 6))) == 0);
}

// ---- Costs ------------------------------------------------------------------------------------------

static void cost_of_embed(void **state) {
    (void)state;
    lls_embed_args a = LLS_EMBED_ARGS_INIT;
    a.table = tensor(LLS_F16, SHAPE(4, 8)), a.ids = ints(SHAPE(1, 3)), a.out = f32(SHAPE(2, 8));
    expect_cost(lls_embed(ctx, &a, NULL), 2 * 16 + 8 + 64, 0, LLS_MATH_F32);
    a.ids = ints(SHAPE(0, 1, 2, 3, 3, 3)), a.out = f32(SHAPE(6, 8)), a.scale = 2;
    expect_cost(lls_embed(ctx, &a, NULL), 4 * 16 + 24 + 192, 48, LLS_MATH_F32); // the table once
}

static void cost_of_norms(void **state) {
    (void)state;
    lls_rmsnorm_args r = LLS_RMSNORM_ARGS_INIT;
    r.x = f32(SHAPE(3, 8)), r.out = f32(SHAPE(3, 8)), r.eps = 1;
    expect_cost(lls_rmsnorm(ctx, &r, NULL), 192, 3 * 24, LLS_MATH_F32);
    r.weight = f32(SHAPE(8)), r.residual = f32(SHAPE(3, 8)), r.residual_out = f32(SHAPE(3, 8));
    expect_cost(lls_rmsnorm(ctx, &r, NULL), 4 * 96 + 32, 5 * 24, LLS_MATH_F32);
    r.x = expanded(f32(SHAPE(1, 8)), 0, 3);
    expect_cost(lls_rmsnorm(ctx, &r, NULL), 32 + 3 * 96 + 32, 5 * 24, LLS_MATH_F32);
    lls_layernorm_args l = LLS_LAYERNORM_ARGS_INIT;
    l.x = f32(SHAPE(3, 8)), l.out = f32(SHAPE(3, 8)), l.eps = 1;
    expect_cost(lls_layernorm(ctx, &l, NULL), 192, 6 * 24, LLS_MATH_F32);
    l.weight = f32(SHAPE(8)), l.bias = f32(SHAPE(8));
    expect_cost(lls_layernorm(ctx, &l, NULL), 192 + 64, 8 * 24, LLS_MATH_F32);
}

static void cost_of_gemm(void **state) {
    (void)state;
    lls_gemm_args g = LLS_GEMM_ARGS_INIT;
    g.a = f32(SHAPE(2, 3, 5)), g.b = expanded(f32(SHAPE(1, 5, 7)), 0, 2), g.out = f32(SHAPE(2, 3, 7));
    const double a = 120, b = 140, out = 168; // b, the same for the batch, is read once
    expect_cost(lls_gemm(ctx, &g, NULL), a + b + out, 2 * 2 * 3 * 7 * 5, LLS_MATH_F32);
    g.c = f32(SHAPE(2, 3, 7)); // not read with beta 0
    expect_cost(lls_gemm(ctx, &g, NULL), a + b + out, 420, LLS_MATH_F32);
    g.beta = 1;
    expect_cost(lls_gemm(ctx, &g, NULL), a + b + 2 * out, 420, LLS_MATH_F32);
    g.alpha = 0; // only scales c
    expect_cost(lls_gemm(ctx, &g, NULL), 2 * out, 0, LLS_MATH_F32);
    lls_gemm_args h = LLS_GEMM_ARGS_INIT;
    h.a = tensor(LLS_BF16, SHAPE(3, 5)), h.b = tensor(LLS_BF16, SHAPE(5, 7)), h.out = f32(SHAPE(3, 7));
    expect_cost(lls_gemm(ctx, &h, NULL), 30 + 70 + 84, 210, LLS_MATH_F16);
}

// Rows of no group are neither read nor written, and matrices of empty groups not read.
static void cost_of_gemm_grouped(void **state) {
    (void)state;
    lls_gemm_grouped_args g = LLS_GEMM_GROUPED_ARGS_INIT;
    g.a = tensor(LLS_BF16, SHAPE(10, 4)), g.b = tensor(LLS_BF16, SHAPE(3, 4, 6)), g.out = f32(SHAPE(10, 6));
    g.offsets = ints(SHAPE(1, 3, 3, 8));
    const double bytes = 7 * 8 + 2 * 48 + 7 * 24 + 16;
    expect_cost(lls_gemm_grouped(ctx, &g, NULL), bytes, 2 * 7 * 6 * 4, LLS_MATH_F16);
    g.bias = f32(SHAPE(3, 6)), g.scale_a = f32(SHAPE(10, 1)), g.scale_b = f32(SHAPE(3, 1, 6));
    expect_cost(lls_gemm_grouped(ctx, &g, NULL), bytes + 2 * 24 + 7 * 4 + 2 * 24, 336, LLS_MATH_F16);
    g.scale_a = f32(SHAPE(1)), g.scale_b = f32(SHAPE(1, 6)); // of all rows, of all groups
    expect_cost(lls_gemm_grouped(ctx, &g, NULL), bytes + 2 * 24 + 4 + 24, 336, LLS_MATH_F16);
    g.alpha = 0; // the bias alone
    expect_cost(lls_gemm_grouped(ctx, &g, NULL), 7 * 24 + 2 * 24 + 16, 0, LLS_MATH_F16);
}

static void cost_of_linear(void **state) {
    (void)state;
    lls_linear_args a = LLS_LINEAR_ARGS_INIT;
    lls_tensor *weight = tensor(LLS_Q8_0, SHAPE(16, 64)), packed;
    a.x = f32(SHAPE(3, 64)), a.weight = weight, a.out = f32(SHAPE(3, 16));
    const double bytes = 3 * 64 * 4 + 16 * 2 * 34 + 3 * 16 * 4, flops = 2 * 3 * 16 * 64;
    expect_cost(lls_linear(ctx, &a, NULL), bytes, flops, LLS_MATH_F32);
    size_t packed_bytes;
    assert_int_equal(lls_linear_packed_bytes(ctx, weight, 1, &packed_bytes), LLS_OK);
    void *buffer;
    assert_int_equal(lls_malloc(ctx, packed_bytes, &buffer), LLS_OK);
    assert_int_equal(lls_linear_pack(ctx, weight, 1, buffer, packed_bytes, &packed), LLS_OK);
    a.weight = &packed;
    expect_cost(lls_linear(ctx, &a, NULL), bytes, flops, LLS_MATH_I8);
    a.compute = LLS_COMPUTE_F32, a.bias = f32(SHAPE(16));
    expect_cost(lls_linear(ctx, &a, NULL), bytes + 64, flops, LLS_MATH_F32);
    lls_free(ctx, buffer);
    lls_linear_args h = LLS_LINEAR_ARGS_INIT;
    h.x = tensor(LLS_F16, SHAPE(3, 8)), h.weight = tensor(LLS_BF16, SHAPE(2, 8)), h.out = f32(SHAPE(3, 2));
    expect_cost(lls_linear(ctx, &h, NULL), 48 + 32 + 24, 2 * 6 * 8, LLS_MATH_F16);
}

static void cost_of_rope(void **state) {
    (void)state;
    lls_rope_args a = LLS_ROPE_ARGS_INIT;
    a.x = f32(SHAPE(2, 3, 8)), a.out = f32(SHAPE(2, 3, 8)), a.positions = ints(SHAPE(5, 7));
    expect_cost(lls_rope(ctx, &a, NULL), 2 * 192 + 8, 3 * 2 * 3 * 8, LLS_MATH_F32);
    a.x2 = f32(SHAPE(2, 1, 8)), a.out2 = f32(SHAPE(2, 1, 8)), a.rotary_dim = 4;
    expect_cost(lls_rope(ctx, &a, NULL), 2 * (192 + 64) + 8, 3 * 2 * 4 * 4, LLS_MATH_F32);
    a.cos = f32(SHAPE(10, 2)), a.sin = f32(SHAPE(10, 2)); // two rows of ten
    expect_cost(lls_rope(ctx, &a, NULL), 2 * (192 + 64) + 8 + 2 * 2 * 8, 3 * 2 * 4 * 4, LLS_MATH_F32);
}

static void cost_of_kv_write(void **state) {
    (void)state;
    lls_kv_write_args a = LLS_KV_WRITE_ARGS_INIT;
    a.k = f32(SHAPE(3, 2, 8)), a.v = f32(SHAPE(3, 2, 4)), a.slots = tensor(LLS_I64, SHAPE(3));
    a.k_cache = tensor(LLS_F16, SHAPE(2, 4, 2, 8)), a.v_cache = tensor(LLS_F16, SHAPE(2, 4, 2, 4));
    memcpy(a.slots->data, (int64_t[]){1, -1, 7}, 24); // two tokens of 24 elements, 4 bytes read and 2 written each
    expect_cost(lls_kv_write(ctx, &a, NULL), 2 * 24 * 6 + 24, 0, LLS_MATH_F32);
}

static void cost_of_prefill(void **state) {
    (void)state;
    lls_attn_prefill_args a = LLS_ATTN_PREFILL_ARGS_INIT;
    a.q = f32(SHAPE(1, 3, 4, 8)), a.k = f32(SHAPE(1, 5, 2, 8)), a.v = f32(SHAPE(1, 5, 2, 6));
    a.out = f32(SHAPE(1, 3, 4, 6));
    const double q = 3 * 4 * 8 * 4, out = 3 * 4 * 6 * 4, key = 2 * (8 + 6) * 4, pair = 2 * 4 * (8 + 6);
    expect_cost(lls_attn_prefill(ctx, &a, NULL), q + out + 5 * key, 15 * pair, LLS_MATH_F32);
    a.mask.causal = true; // 3 + 4 + 5
    expect_cost(lls_attn_prefill(ctx, &a, NULL), q + out + 5 * key, 12 * pair, LLS_MATH_F32);
    a.mask.window_left = 1; // two keys a row; the first key is out of sight for all
    expect_cost(lls_attn_prefill(ctx, &a, NULL), q + out + 4 * key, 6 * pair, LLS_MATH_F32);
    a.lse = f32(SHAPE(1, 4, 3)), a.score.sinks = f32(SHAPE(4));
    expect_cost(lls_attn_prefill(ctx, &a, NULL), q + out + 4 * key + 48 + 16, 6 * pair, LLS_MATH_F32);
    lls_tensor bias = *f32(SHAPE(1, 4, 3, 5)); // of each row two keys, and its heads
    a.bias = &bias;
    expect_cost(lls_attn_prefill(ctx, &a, NULL), q + out + 4 * key + 48 + 16 + 6 * 4 * 4, 6 * pair, LLS_MATH_F32);
    bias.stride[1] = 0;
    expect_cost(lls_attn_prefill(ctx, &a, NULL), q + out + 4 * key + 48 + 16 + 6 * 4, 6 * pair, LLS_MATH_F32);
    bias.stride[2] = 0; // the keys that somebody sees
    expect_cost(lls_attn_prefill(ctx, &a, NULL), q + out + 4 * key + 48 + 16 + 4 * 4, 6 * pair, LLS_MATH_F32);
    lls_attn_prefill_args h = LLS_ATTN_PREFILL_ARGS_INIT; // heads of the keys expanded, two sequences that share keys
    h.q = tensor(LLS_F16, SHAPE(2, 3, 4, 8)), h.out = tensor(LLS_F16, SHAPE(2, 3, 4, 8));
    h.k = h.v = expanded(expanded(tensor(LLS_F16, SHAPE(1, 5, 1, 8)), 2, 4), 0, 2);
    expect_cost(lls_attn_prefill(ctx, &h, NULL), 2 * 2 * 3 * 4 * 8 * 2 + 2 * 5 * 8 * 2, 2 * 15 * 2 * 4 * 16,
                LLS_MATH_F16);
}

static void cost_of_ragged_prefill(void **state) {
    (void)state;
    lls_attn_prefill_args a = LLS_ATTN_PREFILL_ARGS_INIT;
    a.q = f32(SHAPE(4, 4, 8)), a.k = f32(SHAPE(6, 2, 8)), a.v = f32(SHAPE(6, 2, 8)), a.out = f32(SHAPE(4, 4, 8));
    a.cu_seqlens_q = ints(SHAPE(0, 1, 1, 3)), a.cu_seqlens_kv = ints(SHAPE(0, 2, 3, 5)), a.max_q_len = 2;
    a.mask.causal = true;
    // Rows see 2, then 1 and 2 keys; the second sequence has no rows, a row and a key belong to no sequence.
    expect_cost(lls_attn_prefill(ctx, &a, NULL), 2 * 3 * 4 * 8 * 4 + 2 * 4 * 2 * 8 * 4 + 2 * 16, 5 * 2 * 4 * 16,
                LLS_MATH_F32);
}

static void cost_of_decode(void **state) {
    (void)state;
    lls_attn_decode_args a = LLS_ATTN_DECODE_ARGS_INIT;
    a.q = f32(SHAPE(3, 1, 4, 8)), a.out = f32(SHAPE(3, 1, 4, 8)), a.kv_lens = ints(SHAPE(3, 0, 5));
    a.k_cache = tensor(LLS_F16, SHAPE(3, 8, 2, 8)), a.v_cache = tensor(LLS_F16, SHAPE(3, 8, 2, 8));
    const double rows = 2 * 3 * 4 * 8 * 4, key = 2 * 2 * 8 * 2, pair = 2 * 4 * 16;
    expect_cost(lls_attn_decode(ctx, &a, NULL), rows + 8 * key + 12, 8 * pair, LLS_MATH_F32);
    a.page_table = tensor(LLS_I32, SHAPE(3, 2)); // pages of 8: one entry for each sequence that has keys
    expect_cost(lls_attn_decode(ctx, &a, NULL), rows + 8 * key + 12 + 2 * 4, 8 * pair, LLS_MATH_F32);
    a.k_cache = tensor(LLS_F16, SHAPE(1, 4, 2, 8)), a.v_cache = tensor(LLS_F16, SHAPE(1, 4, 2, 8));
    a.kv_lens = ints(SHAPE(4, 4, 3)); // 11 keys of one page of 4
    expect_cost(lls_attn_decode(ctx, &a, NULL), rows + 4 * key + 12 + 3 * 4, 11 * pair, LLS_MATH_F32);
}

static void cost_of_merge_and_act(void **state) {
    (void)state;
    lls_attn_merge_args m = LLS_ATTN_MERGE_ARGS_INIT;
    m.a = f32(SHAPE(2, 3, 4)), m.b = f32(SHAPE(2, 3, 4)), m.out = f32(SHAPE(2, 3, 4));
    m.lse_a = f32(SHAPE(2, 3)), m.lse_b = f32(SHAPE(2, 3));
    expect_cost(lls_attn_merge(ctx, &m, NULL), 3 * 96 + 2 * 24, 72, LLS_MATH_F32);
    lls_gated_act_args g = LLS_GATED_ACT_ARGS_INIT;
    g.gate = f32(SHAPE(2, 8)), g.out = f32(SHAPE(2, 8));
    expect_cost(lls_gated_act(ctx, &g, NULL), 2 * 64, 4 * 16, LLS_MATH_F32);
    g.up = f32(SHAPE(2, 8)), g.act = LLS_ACT_GELU;
    expect_cost(lls_gated_act(ctx, &g, NULL), 3 * 64, 6 * 16, LLS_MATH_F32);
    g.act = LLS_ACT_GELU_TANH;
    expect_cost(lls_gated_act(ctx, &g, NULL), 3 * 64, 10 * 16, LLS_MATH_F32);
}

static void cost_of_sample(void **state) {
    (void)state;
    lls_sample_args s = LLS_SAMPLE_ARGS_INIT;
    s.logits = tensor(LLS_F16, SHAPE(3, 10)), s.out_ids = tensor(LLS_I32, SHAPE(3));
    expect_cost(lls_sample(ctx, &s, NULL), 60 + 12, 0, LLS_MATH_F32);
    s.top_k = ints(SHAPE(2, 2, 2)), s.seed = tensor(LLS_I64, SHAPE(3)), s.out_probs = f32(SHAPE(3));
    s.history = tensor(LLS_I32, SHAPE(3, 5)), s.history_lens = ints(SHAPE(5, 0, 2));
    expect_cost(lls_sample(ctx, &s, NULL), 60 + 12 + 12 + 24 + 12 + 12 + 7 * 4, 0, LLS_MATH_F32);
}

// ---- Which calls are recorded -----------------------------------------------------------------------

static lls_status norm(lls_tensor *x, const char *variant) {
    lls_rmsnorm_args a = LLS_RMSNORM_ARGS_INIT;
    a.x = a.out = x, a.variant = variant;
    return lls_rmsnorm(ctx, &a, NULL);
}

static void calls_are_counted_and_kept_up_to_capacity(void **state) {
    (void)state;
    lls_tensor *x = f32(SHAPE(2, 8));
    lls_record records[3] = {0};
    records[2].op = "untouched";
    assert_int_equal(lls_ctx_record(ctx, records, 2), LLS_OK);
    assert_int_equal(lls_ctx_recorded(ctx), 0);
    assert_int_equal(norm(x, "ref"), LLS_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(norm(x, "cpu_portable"), LLS_OK);
    assert_int_equal(lls_ctx_recorded(ctx), 4);
    assert_string_equal(records[0].op, "rmsnorm"), assert_string_equal(records[0].variant, "ref");
    assert_string_equal(records[1].variant, "cpu_portable");
    assert_string_equal(records[2].op, "untouched");
    assert_int_equal(lls_ctx_record(ctx, records, 1), LLS_OK); // begins anew
    assert_int_equal(norm(x, "cpu_portable"), LLS_OK);
    assert_string_equal(records[0].variant, "cpu_portable");
    assert_int_equal(lls_ctx_record(ctx, NULL, 0), LLS_OK);
    assert_int_equal(norm(x, "ref"), LLS_OK); // after the end
    assert_int_equal(lls_ctx_recorded(ctx), 1);
    assert_string_equal(records[0].variant, "cpu_portable");
}

static void calls_that_did_nothing_leave_no_record(void **state) {
    (void)state;
    lls_record r = {.op = "untouched"};
    assert_int_equal(lls_ctx_record(ctx, &r, 1), LLS_OK);
    assert_int_equal(norm(f32(SHAPE(2, 8)), "no such row"), LLS_ERR_VARIANT);
    assert_int_equal(norm(NULL, NULL), LLS_ERR_ARGUMENT);
    assert_int_equal(norm(f32(SHAPE(0, 8)), NULL), LLS_OK);
    assert_int_equal(lls_ctx_recorded(ctx), 0);
    assert_string_equal(r.op, "untouched");
}

static void bad_recordings(void **state) {
    (void)state;
    lls_record r;
    assert_int_equal(lls_ctx_record(NULL, &r, 1), LLS_ERR_ARGUMENT);
    assert_last_error("ctx_record: ctx is NULL");
    assert_int_equal(lls_ctx_record(ctx, &r, -1), LLS_ERR_ARGUMENT);
    assert_last_error("ctx_record: capacity is -1, must be >= 0");
    assert_int_equal(lls_ctx_record(ctx, &r, 0), LLS_OK); // counts alone
    assert_int_equal(norm(f32(SHAPE(2, 8)), NULL), LLS_OK);
    assert_int_equal(lls_ctx_recorded(ctx), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_op_has_a_cost, clear),
        cmocka_unit_test_setup(bytes_of_views, clear),
        cmocka_unit_test_setup(cost_of_embed, clear),
        cmocka_unit_test_setup(cost_of_norms, clear),
        cmocka_unit_test_setup(cost_of_gemm, clear),
        cmocka_unit_test_setup(cost_of_gemm_grouped, clear),
        cmocka_unit_test_setup(cost_of_linear, clear),
        cmocka_unit_test_setup(cost_of_rope, clear),
        cmocka_unit_test_setup(cost_of_kv_write, clear),
        cmocka_unit_test_setup(cost_of_prefill, clear),
        cmocka_unit_test_setup(cost_of_ragged_prefill, clear),
        cmocka_unit_test_setup(cost_of_decode, clear),
        cmocka_unit_test_setup(cost_of_merge_and_act, clear),
        cmocka_unit_test_setup(cost_of_sample, clear),
        cmocka_unit_test_setup(calls_are_counted_and_kept_up_to_capacity, clear),
        cmocka_unit_test_setup(calls_that_did_nothing_leave_no_record, clear),
        cmocka_unit_test_setup(bad_recordings, clear),
    };
    if (lls_ctx_create(NULL, &ctx)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lls_ctx_destroy(ctx);
    return failed;
}
