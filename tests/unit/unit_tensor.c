/* Tensor views: the dtype table, geometry, overlap, the checks of validators, argument structs of other versions. */
#include "core/rows.h"
#include "core/tensor.h"
#include "unit/unit.h"

static const lls_device cpu = {LLS_CPU, 0};
static float memory[4096];

static lls_tensor view(int64_t first, int32_t ndim, const int64_t *shape, const int64_t *stride) {
    lls_tensor t = lls_tensor_make(memory + first, LLS_F32, cpu, ndim, shape);
    if (stride) memcpy(t.stride, stride, (size_t)ndim * sizeof *stride);
    return t;
}

// Literal shapes and strides: SHAPE(2, 3).
#define SHAPE(...) ((int64_t[]){__VA_ARGS__})

static void dtype_table(void **state) {
    (void)state;
    static const struct {
        lls_dtype dtype;
        const char *name;
        int64_t elems, bytes;
    } rows[] = {
        {LLS_F32, "f32", 1, 4},       {LLS_F16, "f16", 1, 2},         {LLS_BF16, "bf16", 1, 2},
        {LLS_I8, "i8", 1, 1},         {LLS_U8, "u8", 1, 1},           {LLS_I32, "i32", 1, 4},
        {LLS_I64, "i64", 1, 8},       {LLS_F8_E4M3, "f8_e4m3", 1, 1}, {LLS_F8_E5M2, "f8_e5m2", 1, 1},
        {LLS_Q4_0, "q4_0", 32, 18},   {LLS_Q4_1, "q4_1", 32, 20},     {LLS_Q5_0, "q5_0", 32, 22},
        {LLS_Q5_1, "q5_1", 32, 24},   {LLS_Q8_0, "q8_0", 32, 34},     {LLS_Q4_K, "q4_k", 256, 144},
        {LLS_Q5_K, "q5_k", 256, 176}, {LLS_Q6_K, "q6_k", 256, 210},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_string_equal(lls_dtype_name(rows[i].dtype), rows[i].name);
        assert_int_equal(lls_dtype_block_elems(rows[i].dtype), rows[i].elems);
        assert_int_equal(lls_dtype_block_bytes(rows[i].dtype), rows[i].bytes);
    }
    assert_string_equal(lls_dtype_name((lls_dtype)0), "unknown");
    assert_int_equal(lls_dtype_block_elems((lls_dtype)77), 0);
    assert_int_equal(lls_dtype_block_bytes((lls_dtype)77), 0);
}

static void make_is_row_major(void **state) {
    (void)state;
    lls_tensor t = lls_tensor_make(memory, LLS_F16, cpu, 3, SHAPE(2, 3, 5));
    assert_ptr_equal(t.data, memory);
    assert_int_equal(t.stride[0], 15), assert_int_equal(t.stride[1], 5), assert_int_equal(t.stride[2], 1);
    assert_int_equal(lls_tensor_numel(&t), 30);
    assert_int_equal(lls__tensor_extent(&t), 60);
    t = lls_tensor_make(memory, LLS_F32, cpu, 0, NULL);
    assert_int_equal(lls_tensor_numel(&t), 1);
    assert_int_equal(lls_tensor_make(memory, LLS_F32, cpu, LLS_MAX_DIMS + 1, SHAPE(1, 1, 1, 1, 1, 1)).ndim, 0);
    assert_int_equal(lls_tensor_make(memory, LLS_F32, cpu, -1, NULL).ndim, 0);
}

static void extent_counts_what_a_view_reaches(void **state) {
    (void)state;
    lls_tensor t = view(0, 2, SHAPE(3, 4), SHAPE(10, 1));
    assert_int_equal(lls__tensor_extent(&t), 4 * 24); // the last row ends the view
    t = view(0, 2, SHAPE(3, 4), SHAPE(0, 1));
    assert_int_equal(lls__tensor_extent(&t), 4 * 4);
    t = view(0, 2, SHAPE(1, 4), SHAPE(999, 1)); // strides of axes of size 1 are not set
    assert_int_equal(lls__tensor_extent(&t), 4 * 4);
    t = view(0, 2, SHAPE(0, 4), NULL);
    assert_int_equal(lls__tensor_extent(&t), 0);
    t = lls_tensor_make(memory, LLS_Q4_0, cpu, 2, SHAPE(2, 64));
    assert_int_equal(lls__tensor_extent(&t), 4 * 18);
}

static void expect_overlap(const lls_tensor *a, const lls_tensor *b, bool want) {
    assert_int_equal(lls__tensor_overlap(a, b), want);
    assert_int_equal(lls__tensor_overlap(b, a), want);
}

static void overlap(void **state) {
    (void)state;
    lls_tensor a = view(0, 2, SHAPE(4, 8), NULL), next = view(32, 2, SHAPE(4, 8), NULL),
               last = view(31, 1, SHAPE(5), NULL), none = view(3, 2, SHAPE(0, 8), NULL);
    expect_overlap(&a, &a, true);
    expect_overlap(&a, &next, false);
    expect_overlap(&a, &last, true);
    expect_overlap(&a, &none, false);
}

static void interleaved_slices_do_not_overlap(void **state) {
    (void)state;
    // q, k and v as slices of one row-major [6, 24] buffer: 12, 6 and 6 columns.
    lls_tensor q = view(0, 2, SHAPE(6, 12), SHAPE(24, 1)), k = view(12, 2, SHAPE(6, 6), SHAPE(24, 1)),
               v = view(18, 2, SHAPE(6, 6), SHAPE(24, 1));
    expect_overlap(&q, &k, false);
    expect_overlap(&k, &v, false);
    expect_overlap(&q, &v, false);
    lls_tensor wide = view(11, 2, SHAPE(6, 6), SHAPE(24, 1)); // one column too early
    expect_overlap(&q, &wide, true);
    lls_tensor wrapped = view(20, 2, SHAPE(5, 6), SHAPE(24, 1)); // runs over into the next row's first columns
    expect_overlap(&q, &wrapped, true);
    lls_tensor heads = view(12, 3, SHAPE(6, 2, 3), SHAPE(24, 3, 1)); // the same slice as k, split into heads
    expect_overlap(&q, &heads, false);
    expect_overlap(&k, &heads, true);
    lls_tensor even = view(0, 2, SHAPE(3, 24), SHAPE(48, 1)),
               odd = view(24, 2, SHAPE(3, 24), SHAPE(48, 1)); // every other row
    expect_overlap(&even, &odd, false);
}

static void same_view(void **state) {
    (void)state;
    lls_tensor a = view(0, 2, SHAPE(1, 8), SHAPE(8, 1)), b = view(0, 2, SHAPE(1, 8), SHAPE(99, 1));
    assert_true(lls__tensor_same_view(&a, &b)); // the stride of an axis of size 1 does not count
    b = view(1, 2, SHAPE(1, 8), SHAPE(8, 1));
    assert_false(lls__tensor_same_view(&a, &b));
    b = view(0, 1, SHAPE(8), NULL);
    assert_false(lls__tensor_same_view(&a, &b));
    b = a, b.dtype = LLS_I32;
    assert_false(lls__tensor_same_view(&a, &b));
}

static void self_overlap(void **state) {
    (void)state;
    static const struct {
        int64_t shape[3], stride[3];
        bool distinct;
    } rows[] = {
        {{2, 3, 4}, {12, 4, 1}, true},  {{2, 3, 4}, {4, 8, 1}, true},  {{2, 3, 4}, {1, 2, 6}, true},
        {{2, 3, 4}, {12, 3, 1}, false}, {{2, 3, 4}, {0, 4, 1}, false}, {{2, 3, 4}, {12, 4, 0}, false},
        {{1, 3, 4}, {0, 4, 1}, true},   {{2, 1, 4}, {3, 9, 1}, false}, {{0, 3, 4}, {0, 0, 0}, true},
        {{2, 3, 4}, {11, 4, 1}, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lls_tensor t = view(0, 3, rows[i].shape, rows[i].stride);
        assert_int_equal(lls__check_no_self_overlap("op", "out", &t), rows[i].distinct ? LLS_OK : LLS_ERR_STRIDE);
    }
    lls_tensor t = view(0, 2, SHAPE(4, 6), SHAPE(5, 1));
    lls__check_no_self_overlap("op", "out", &t);
    assert_last_error("op: out.stride[0] is 5, below the 6 elements");
}

static void flatten_rows(void **state) {
    (void)state;
    lls_tensor flat, t = view(0, 4, SHAPE(2, 3, 4, 5), NULL);
    assert_true(lls__tensor_flatten_rows(&t, &flat));
    assert_int_equal(flat.ndim, 2);
    assert_int_equal(flat.shape[0], 24), assert_int_equal(flat.shape[1], 5);
    assert_int_equal(flat.stride[0], 5), assert_int_equal(flat.stride[1], 1);
    t = view(0, 3, SHAPE(2, 3, 5), SHAPE(30, 10, 1)); // rows are padded, evenly
    assert_true(lls__tensor_flatten_rows(&t, &flat));
    assert_int_equal(flat.shape[0], 6), assert_int_equal(flat.stride[0], 10);
    t = view(0, 3, SHAPE(2, 3, 5), SHAPE(31, 10, 1));
    assert_false(lls__tensor_flatten_rows(&t, &flat));
    t = view(0, 3, SHAPE(3, 2, 5), SHAPE(5, 15, 1)); // transposed
    assert_false(lls__tensor_flatten_rows(&t, &flat));
    t = view(0, 3, SHAPE(2, 1, 5), SHAPE(7, 999, 1)); // an axis of size 1 does not matter
    assert_true(lls__tensor_flatten_rows(&t, &flat));
    assert_int_equal(flat.shape[0], 2), assert_int_equal(flat.stride[0], 7);
    t = view(0, 1, SHAPE(5), NULL);
    assert_true(lls__tensor_flatten_rows(&t, &flat));
    assert_int_equal(flat.shape[0], 1);
}

static void row_offsets(void **state) {
    (void)state;
    lls_tensor t = view(0, 4, SHAPE(2, 3, 4, 5), SHAPE(1000, 7, 100, 1));
    lls__rows rows = lls__rows_of(&t);
    assert_int_equal(lls__rows_count(&rows), 24);
    int64_t r = 0;
    for (int64_t i = 0; i < 2; i++) {
        for (int64_t j = 0; j < 3; j++) {
            for (int64_t k = 0; k < 4; k++) assert_int_equal(lls__row_offset(&rows, r++), 1000 * i + 7 * j + 100 * k);
        }
    }
    t = view(0, 1, SHAPE(5), NULL);
    rows = lls__rows_of(&t);
    assert_int_equal(lls__rows_count(&rows), 1);
    assert_int_equal(lls__row_offset(&rows, 0), 0);
}

static void check_tensor(void **state) {
    lls_ctx *ctx = *state;
    lls_tensor good = view(0, 2, SHAPE(2, 3), NULL), bad;
    assert_int_equal(lls__check_tensor(ctx, "op", "x", &good, 1, 3, LLS__FLOATS), LLS_OK);
#define EXPECT(status, message)                                                           \
    assert_int_equal(lls__check_tensor(ctx, "op", "x", &bad, 1, 3, LLS__FLOATS), status); \
    assert_last_error(message)
    bad = good, bad.dtype = LLS_I32;
    EXPECT(LLS_ERR_DTYPE, "op: x.dtype is i32 (12), must be one of f32, f16, bf16");
    bad = good, bad.dtype = (lls_dtype)63;
    EXPECT(LLS_ERR_DTYPE, "x.dtype is unknown (63)");
    bad = good, bad.dtype = (lls_dtype)(64 + LLS_F32); // a shift by 65 must not count as a shift by 1
    EXPECT(LLS_ERR_DTYPE, "x.dtype is unknown (65)");
    bad = good, bad.device.type = LLS_CUDA;
    EXPECT(LLS_ERR_DEVICE, "x is on cuda:0, must be on the context's device cpu:0");
    bad = good, bad.layout = LLS_PACKED;
    EXPECT(LLS_ERR_STRIDE, "x has layout 1");
    bad = good, bad.ndim = 4;
    EXPECT(LLS_ERR_SHAPE, "x.ndim is 4, must be 1 to 3");
    bad = good, bad.ndim = 0;
    EXPECT(LLS_ERR_SHAPE, "x.ndim is 0");
    bad = good, bad.shape[1] = -3;
    EXPECT(LLS_ERR_SHAPE, "x.shape[1] is -3, must be >= 0");
    bad = good, bad.stride[0] = -3;
    EXPECT(LLS_ERR_STRIDE, "x.stride[0] is -3, must be >= 0");
    bad = good, bad.shape[0] = bad.shape[1] = INT64_C(1) << 40;
    EXPECT(LLS_ERR_SHAPE, "spans more than 2^59 elements");
    bad = good, bad.stride[0] = INT64_MAX;
    EXPECT(LLS_ERR_SHAPE, "spans more than 2^59 elements");
    bad = good, bad.data = NULL;
    EXPECT(LLS_ERR_ARGUMENT, "x.data is NULL, must point to 6 elements");
    bad = good, bad.data = (char *)memory + 2;
    EXPECT(LLS_ERR_STRIDE, "must be aligned to 4 bytes");
#undef EXPECT
    bad = good, bad.data = NULL, bad.shape[0] = 0; // nothing to point to
    assert_int_equal(lls__check_tensor(ctx, "op", "x", &bad, 1, 3, LLS__FLOATS), LLS_OK);
    assert_int_equal(lls__check_tensor(ctx, "op", "x", NULL, 1, 3, LLS__FLOATS), LLS_ERR_ARGUMENT);
    assert_last_error("x is NULL");
    assert_int_equal(lls__check_tensor(NULL, "op", "x", &good, 1, 3, LLS__FLOATS), LLS_ERR_ARGUMENT);
    assert_last_error("ctx is NULL");
    bad = lls_tensor_make((char *)memory + 1, LLS_Q4_0, cpu, 2, SHAPE(2, 64)); // blocks are byte-aligned
    assert_int_equal(lls__check_tensor(ctx, "op", "w", &bad, 2, 2, LLS__BLOCKS), LLS_OK);
    bad.shape[1] = bad.stride[0] = 33;
    assert_int_equal(lls__check_tensor(ctx, "op", "w", &bad, 2, 2, LLS__BLOCKS), LLS_ERR_SHAPE);
    assert_last_error("w.shape[1] is 33, must be a multiple of q4_0's block of 32");
    bad.shape[1] = 64, bad.stride[0] = 96;
    assert_int_equal(lls__check_tensor(ctx, "op", "w", &bad, 2, 2, LLS__BLOCKS), LLS_ERR_STRIDE);
    assert_last_error("block-quantised rows must be contiguous");
}

static void relations_between_tensors(void **state) {
    lls_ctx *ctx = *state;
    lls_tensor a = view(0, 2, SHAPE(4, 8), NULL), b = view(8, 2, SHAPE(4, 8), NULL),
               strided = view(0, 2, SHAPE(4, 8), SHAPE(16, 2)), vector = view(0, 1, SHAPE(8), NULL);
    assert_int_equal(lls__check_in_place_or_disjoint("op", "out", &a, "x", &a), LLS_OK);
    assert_int_equal(lls__check_in_place_or_disjoint("op", "out", &a, "x", &b), LLS_ERR_ALIAS);
    assert_int_equal(lls__check_disjoint("op", "out", &a, "x", &a), LLS_ERR_ALIAS);
    assert_int_equal(lls__check_inner_contiguous("op", "x", &strided), LLS_ERR_STRIDE);
    assert_last_error("x.stride[1] is 2, must be 1");
    assert_int_equal(lls__check_vector(ctx, "op", "w", &vector, 8, "n", LLS__FLOATS), LLS_OK);
    assert_int_equal(lls__check_vector(ctx, "op", "w", &vector, 9, "n", LLS__FLOATS), LLS_ERR_SHAPE);
    assert_last_error("w.shape[0] is 8, must equal n = 9");
    assert_int_equal(lls__check_vector(ctx, "op", "w", &a, 8, "n", LLS__FLOATS), LLS_ERR_SHAPE);
}

typedef struct newer_args {
    size_t struct_size;
    int64_t known, unknown;
} newer_args;
typedef struct library_args {
    size_t struct_size;
    int64_t known;
} library_args;

static void argument_structs_of_other_versions(void **state) {
    (void)state;
    library_args mine;
    size_t older = sizeof older;
    memset(&mine, 0x5a, sizeof mine);
    assert_int_equal(lls__copy_args("op", &mine, sizeof mine, &older), LLS_OK);
    assert_int_equal(mine.known, 0); // an older caller's missing fields are the defaults
    newer_args newer = {.struct_size = sizeof newer, .known = 7};
    assert_int_equal(lls__copy_args("op", &mine, sizeof mine, &newer), LLS_OK);
    assert_int_equal(mine.known, 7);
    newer.unknown = 1;
    assert_int_equal(lls__copy_args("op", &mine, sizeof mine, &newer), LLS_ERR_ARGUMENT);
    assert_last_error("the caller was built for a newer version");
    newer.struct_size = 0;
    assert_int_equal(lls__copy_args("op", &mine, sizeof mine, &newer), LLS_ERR_ARGUMENT);
    assert_last_error("args.struct_size is 0, must be 16");
    assert_int_equal(lls__copy_args("op", &mine, sizeof mine, NULL), LLS_ERR_ARGUMENT);
    assert_last_error("args is NULL");
}

static int make_context(void **state) {
    return lls_ctx_create(NULL, (lls_ctx **)state);
}

static int destroy_context(void **state) {
    lls_ctx_destroy(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtype_table),
        cmocka_unit_test(make_is_row_major),
        cmocka_unit_test(extent_counts_what_a_view_reaches),
        cmocka_unit_test(overlap),
        cmocka_unit_test(interleaved_slices_do_not_overlap),
        cmocka_unit_test(same_view),
        cmocka_unit_test(self_overlap),
        cmocka_unit_test(flatten_rows),
        cmocka_unit_test(row_offsets),
        cmocka_unit_test(check_tensor),
        cmocka_unit_test(relations_between_tensors),
        cmocka_unit_test(argument_structs_of_other_versions),
    };
    return cmocka_run_group_tests(tests, make_context, destroy_context);
}
