/* Selection: the first row that runs here and accepts, pins, LLS_FORCE, refusals and their messages, the plan in the
 * log, the list of all rows.
 * The ops here are made of rows that only count; the environment is set before the library reads it. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/error.h"
#include "core/log.h"
#include "dispatch/variant.h"
#include "unit/unit.h"

static char log_path[] = "/tmp/llmspeed_unit_dispatch_XXXXXX";
static const char *launched; // the row that ran last

static lls_status first(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)ctx, (void)args, (void)stream;
    launched = "first";
    return LLS_OK;
}

static lls_status second(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)ctx, (void)args, (void)stream;
    launched = "second";
    return LLS_OK;
}

static lls_status fails(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)ctx, (void)args, (void)stream;
    return lls__fail(LLS_ERR_WORKSPACE, "row: failed");
}

// args is an int: the smallest that a row accepts.
static const char *refuses_small(const void *args) {
    return *(const int *)args < 10 ? "the size is below 10" : NULL;
}

static const char *refuses_all(const void *args) {
    (void)args;
    return "never fits";
}

#define ROW(name, device, min_sm, level, reject, launch) \
    { name, device, "f32", min_sm, level, reject, launch }
static const lls__variant rows[] = {
    ROW("on_gpu", LLS_CUDA, 90, LLS__CPU_PORTABLE, NULL, first),
    ROW("future", LLS_CPU, 0, (lls__cpu_level)(LLS__CPU_AVX512 + 1), NULL, first),
    ROW("never", LLS_CPU, 0, LLS__CPU_PORTABLE, refuses_all, first),
    ROW("large", LLS_CPU, 0, LLS__CPU_PORTABLE, refuses_small, first),
    ROW("any", LLS_CPU, 0, LLS__CPU_PORTABLE, NULL, second),
    ROW("broken", LLS_CPU, 0, LLS__CPU_PORTABLE, NULL, fails),
};
static const lls__op sample_op = {.name = "unit", .variants = rows, .num_variants = LLS_COUNT(rows)};
static const lls__op forced_op = {.name = "unit_forced", .variants = rows, .num_variants = LLS_COUNT(rows)};
static const lls__op missing_op = {.name = "unit_missing", .variants = rows, .num_variants = LLS_COUNT(rows)};
static const lls__op hopeless_op = {.name = "unit_hopeless", .variants = rows, .num_variants = 3};

static lls_status dispatch(lls_ctx *ctx, const lls__op *op, const char *pinned, int size) {
    launched = "none";
    return lls__dispatch(ctx, op, pinned, &size, NULL);
}

static void first_row_that_accepts(void **state) {
    assert_int_equal(dispatch(*state, &sample_op, NULL, 10), LLS_OK);
    assert_string_equal(launched, "first");
    assert_int_equal(dispatch(*state, &sample_op, NULL, 9), LLS_OK);
    assert_string_equal(launched, "second");
}

static void no_row_accepts(void **state) {
    assert_int_equal(dispatch(*state, &hopeless_op, NULL, 10), LLS_ERR_UNSUPPORTED);
    assert_last_error("unit_hopeless: no implementation on cpu takes these arguments");
    assert_string_equal(launched, "none");
}

static void pins(void **state) {
    assert_int_equal(dispatch(*state, &sample_op, "any", 10), LLS_OK);
    assert_string_equal(launched, "second");
    static const struct {
        const char *pin, *message;
    } refusals[] = {
        {"large", "unit: variant large is pinned but refuses: the size is below 10"},
        {"never", "pinned but refuses: never fits"},
        {"on_gpu", "pinned but refuses: runs on cuda, the context is on cpu"},
        {"future", "pinned but refuses: needs"},
        {"no_such", "unit: variant is \"no_such\", no such row"},
        {"", "unit: variant is \"\", no such row"},
        {"an", "variant is \"an\", no such row"}, // a prefix is another name
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        assert_int_equal(dispatch(*state, &sample_op, refusals[i].pin, 9), LLS_ERR_VARIANT);
        assert_last_error(refusals[i].message);
        assert_string_equal(launched, "none");
    }
}

static void a_launch_that_fails_is_not_retried(void **state) {
    assert_int_equal(dispatch(*state, &sample_op, "broken", 9), LLS_ERR_WORKSPACE);
    assert_last_error("row: failed");
}

static void force_pins_calls_that_do_not(void **state) {
    assert_int_equal(dispatch(*state, &forced_op, NULL, 10), LLS_OK);
    assert_string_equal(launched, "second");
    assert_int_equal(dispatch(*state, &forced_op, "large", 10), LLS_OK); // the call's own pin wins
    assert_string_equal(launched, "first");
    assert_int_equal(dispatch(*state, &missing_op, NULL, 10), LLS_ERR_VARIANT);
    assert_last_error("unit_missing: variant is \"nowhere\", no such row");
}

static void plan_goes_to_the_log_file(void **state) {
    assert_true(lls__log_plan_enabled());
    assert_int_equal(truncate(log_path, 0), 0);
    assert_int_equal(dispatch(*state, &sample_op, NULL, 9), LLS_OK);
    char text[4096] = {0};
    FILE *file = fopen(log_path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    static const char *const lines[] = {
        "plan: unit passes over on_gpu: runs on cuda, the context is on cpu\n",
        "plan: unit passes over never: never fits\n",
        "plan: unit passes over large: the size is below 10\n",
        "plan: unit takes any\n",
    };
    const char *at = text;
    for (int i = 0; i < 4; i++) {
        const char *found = strstr(at, lines[i]);
        if (!found) fail_msg("the plan lacks \"%s\" (in this order):\n%s", lines[i], text);
        at = found;
    }
}

static void keep_message(lls_log_level level, const char *message, void *user) {
    snprintf(user, 256, "%d %s", (int)level, message);
}

static void log_sink_can_be_replaced(void **state) {
    (void)state;
    char got[256] = "";
    lls_log_set(keep_message, got);
    lls__log(LLS_LOG_ERROR, "number %d", 7);
    assert_string_equal(got, "1 number 7");
    strcpy(got, "");
    lls__log(LLS_LOG_INFO, "below the threshold");
    assert_string_equal(got, "");
    lls_log_set(NULL, NULL);
    lls__log(LLS_LOG_ERROR, "to the file");
    assert_string_equal(got, "");
}

static void every_row_is_listed_once(void **state) {
    (void)state;
    int32_t index = 0;
    lls_variant_info info;
    for (int32_t i = 0; i < lls__num_ops; i++) {
        const lls__op *op = lls__ops[i];
        for (int32_t j = 0; j < op->num_variants; j++, index++) {
            assert_true(lls_variant_at(index, &info));
            assert_string_equal(info.op, op->name);
            assert_string_equal(info.variant, op->variants[j].name);
            assert_int_equal(info.device, op->variants[j].device);
            assert_int_equal(info.min_sm, op->variants[j].min_sm);
            assert_non_null(info.dtypes);
            bool needs_gpu = info.device == LLS_CUDA && lls_cuda_device_count() == 0;
            if (needs_gpu) assert_string_equal(info.unavailable, "no CUDA device with a working driver");
            if (info.device == LLS_CPU && op->variants[j].level == LLS__CPU_PORTABLE) assert_null(info.unavailable);
        }
        assert_string_equal(op->variants[op->num_variants - 1].name,
                            "ref"); // every op has its oracle, in the last place
    }
    assert_true(index > 0);
    assert_false(lls_variant_at(index, &info));
    assert_false(lls_variant_at(index + 1000, &info));
    assert_false(lls_variant_at(-1, &info));
}

static int make_context(void **state) {
    return lls_ctx_create(NULL, (lls_ctx **)state);
}

static int destroy_context(void **state) {
    lls_ctx_destroy(*state);
    unlink(log_path);
    return 0;
}

int main(void) {
    int fd = mkstemp(log_path);
    if (fd < 0) return perror(log_path), 1;
    close(fd);
    setenv("LLS_FORCE", "unit_forced:any,unit_missing:nowhere", 1);
    setenv("LLS_LOG", "plan", 1);
    setenv("LLS_LOG_FILE", log_path, 1);
    unsetenv("LLS_LOG_LEVEL");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_row_that_accepts),
        cmocka_unit_test(no_row_accepts),
        cmocka_unit_test(pins),
        cmocka_unit_test(a_launch_that_fails_is_not_retried),
        cmocka_unit_test(force_pins_calls_that_do_not),
        cmocka_unit_test(plan_goes_to_the_log_file),
        cmocka_unit_test(log_sink_can_be_replaced),
        cmocka_unit_test(every_row_is_listed_once),
    };
    return cmocka_run_group_tests(tests, make_context, destroy_context);
}
