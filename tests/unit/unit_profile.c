/* What a time means: the classification of calls, and the ceilings of this machine that it rests on. */
#include "unit/unit.h"

static void classification(void **state) {
    (void)state;
    const lls_ceilings all = {.read_bytes_per_s = 100, .f32_flops = 1000, .f16_flops = 4000, .i8_ops = 8000};
    const lls_ceilings memory = {.read_bytes_per_s = 100}, arithmetic = {.f32_flops = 1000}, none = {0};
    const struct {
        const lls_ceilings *ceilings;
        lls_math math;
        double flops, bytes, seconds;
        lls_bound bound;
        double share;
    } rows[] = {
        {&all, LLS_MATH_F32, 1000, 50, 1, LLS_BOUND_COMPUTE, 1},
        {&all, LLS_MATH_F16, 1000, 50, 1, LLS_BOUND_MEMORY, 0.5}, // the faster unit makes it a matter of memory
        {&all, LLS_MATH_I8, 4000, 20, 1, LLS_BOUND_COMPUTE, 0.5},
        {&all, LLS_MATH_F32, 500, 50, 1, LLS_BOUND_MEMORY, 0.5}, // equal terms
        {&all, LLS_MATH_F32, 0, 25, 1, LLS_BOUND_MEMORY, 0.25},  // the threshold itself
        {&all, LLS_MATH_F32, 0, 24.9, 1, LLS_BOUND_LATENCY, 0.249},
        {&all, LLS_MATH_F32, 249, 1, 1, LLS_BOUND_LATENCY, 0.249},
        {&all, LLS_MATH_F32, 0, 300, 1, LLS_BOUND_MEMORY, 3}, // a cache served it
        {&all, LLS_MATH_F32, 0, 0, 1, LLS_BOUND_LATENCY, 0},
        {&all, LLS_MATH_F32, 1000, 50, 0, LLS_BOUND_UNKNOWN, 0},
        {&all, (lls_math)0, 1e9, 50, 1, LLS_BOUND_MEMORY, 0.5},
        {&memory, LLS_MATH_F32, 1e9, 50, 1, LLS_BOUND_MEMORY, 0.5},
        {&arithmetic, LLS_MATH_F32, 500, 1e9, 1, LLS_BOUND_COMPUTE, 0.5},
        {&arithmetic, LLS_MATH_F16, 500, 1e9, 1, LLS_BOUND_UNKNOWN, 0},
        {&none, LLS_MATH_F32, 1e9, 1e9, 1, LLS_BOUND_UNKNOWN, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double share = -1;
        lls_bound bound =
            lls_classify(rows[i].ceilings, rows[i].math, rows[i].flops, rows[i].bytes, rows[i].seconds, &share);
        if (bound != rows[i].bound || share < rows[i].share - 1e-9 || share > rows[i].share + 1e-9) {
            fail_msg("row %zu: %s at %g of the floor, must be %s at %g", i, lls_bound_name(bound), share,
                     lls_bound_name(rows[i].bound), rows[i].share);
        }
    }
    assert_int_equal(lls_classify(&all, LLS_MATH_F32, 0, 50, 1, NULL), LLS_BOUND_MEMORY);
}

static void bound_names(void **state) {
    (void)state;
    assert_string_equal(lls_bound_name(LLS_BOUND_MEMORY), "memory");
    assert_string_equal(lls_bound_name(LLS_BOUND_COMPUTE), "compute");
    assert_string_equal(lls_bound_name(LLS_BOUND_LATENCY), "latency");
    assert_string_equal(lls_bound_name(LLS_BOUND_UNKNOWN), "unknown");
    assert_string_equal(lls_bound_name((lls_bound)99), "unknown");
}

static lls_ceilings measure(int32_t threads) {
    lls_ctx_options options = LLS_CTX_OPTIONS_INIT;
    options.num_threads = threads;
    lls_ctx *ctx;
    lls_ceilings c = {0};
    assert_int_equal(lls_ctx_create(&options, &ctx), LLS_OK);
    assert_int_equal(lls_measure_ceilings(ctx, &c), LLS_OK);
    lls_ctx_destroy(ctx);
    return c;
}

// No machine of this century reads or computes outside these bounds with so few threads.
static void cpu_ceilings(void **state) {
    (void)state;
    for (int32_t threads = 1; threads <= 3; threads += 2) {
        lls_ceilings c = measure(threads);
        assert_true(c.read_bytes_per_s > 1e8 && c.read_bytes_per_s < 1e13);
        assert_true(c.f32_flops > 1e7 && c.f32_flops < 1e13);
        assert_true(c.i8_ops > 1e7 && c.i8_ops < 1e14);
        assert_true(c.f16_flops == c.f32_flops);
    }
}

static void ceilings_of_nothing(void **state) {
    (void)state;
    lls_ctx *ctx;
    lls_ceilings c;
    assert_int_equal(lls_measure_ceilings(NULL, &c), LLS_ERR_ARGUMENT);
    assert_last_error("measure_ceilings: ctx is NULL");
    assert_int_equal(lls_ctx_create(NULL, &ctx), LLS_OK);
    assert_int_equal(lls_measure_ceilings(ctx, NULL), LLS_ERR_ARGUMENT);
    assert_last_error("measure_ceilings: out is NULL");
    lls_ctx_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classification),
        cmocka_unit_test(bound_names),
        cmocka_unit_test(cpu_ceilings),
        cmocka_unit_test(ceilings_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
