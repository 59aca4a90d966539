/* Contexts: options and their errors, threads, the workspace, memory. */
#include <sched.h>
#include <stdlib.h>

#include "core/ctx.h"
#include "unit/unit.h"

static lls_status create(lls_ctx_options options, lls_ctx **out) {
    *out = (lls_ctx *)options.struct_size; // not NULL: a failed call must set it
    return lls_ctx_create(&options, out);
}

static void defaults(void **state) {
    (void)state;
    lls_ctx *ctx;
    assert_int_equal(lls_ctx_create(NULL, &ctx), LLS_OK);
    assert_int_equal(lls_ctx_device(ctx).type, LLS_CPU);
    assert_int_equal(lls_ctx_device(ctx).index, 0);
    cpu_set_t cores;
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    assert_int_equal(lls_ctx_num_threads(ctx), CPU_COUNT(&cores));
    lls_ctx_destroy(ctx);
    lls_ctx_destroy(NULL);
}

static void bad_options(void **state) {
    (void)state;
    static const struct {
        lls_device device;
        int32_t threads;
        lls_status status;
        const char *message;
    } rows[] = {
        {{(lls_device_type)7, 0}, 0, LLS_ERR_ARGUMENT, "device.type is 7, must be LLS_CPU or LLS_CUDA"},
        {{LLS_CPU, 1}, 0, LLS_ERR_NO_DEVICE, "device is cpu:1, must be cpu:0"},
        {{LLS_CPU, -1}, 0, LLS_ERR_NO_DEVICE, "device is cpu:-1, must be cpu:0"},
        {{LLS_CPU, 0}, -1, LLS_ERR_ARGUMENT, "num_threads is -1, must be 0 to 1024"},
        {{LLS_CPU, 0}, 1025, LLS_ERR_ARGUMENT, "num_threads is 1025, must be 0 to 1024"},
        {{LLS_CUDA, 1000}, 0, LLS_ERR_NO_DEVICE, ""},
        {{LLS_CUDA, -1}, 0, LLS_ERR_NO_DEVICE, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lls_ctx_options options = LLS_CTX_OPTIONS_INIT;
        options.device = rows[i].device, options.num_threads = rows[i].threads;
        lls_ctx *ctx;
        assert_int_equal(create(options, &ctx), rows[i].status);
        assert_last_error(rows[i].message);
        assert_null(ctx);
    }
    assert_int_equal(lls_ctx_create(NULL, NULL), LLS_ERR_ARGUMENT);
    lls_ctx *ctx;
    lls_ctx_options impossible = LLS_CTX_OPTIONS_INIT;
    impossible.workspace_bytes = SIZE_MAX / 2;
    assert_int_equal(create(impossible, &ctx), LLS_ERR_MEMORY);
    assert_null(ctx);
}

static void threads_as_asked(void **state) {
    (void)state;
    for (int32_t threads = 1; threads <= 8; threads++) {
        lls_ctx_options options = LLS_CTX_OPTIONS_INIT;
        options.num_threads = threads;
        lls_ctx *ctx;
        assert_int_equal(create(options, &ctx), LLS_OK);
        assert_int_equal(lls_ctx_num_threads(ctx), threads);
        lls_ctx_destroy(ctx);
    }
}

static void workspace_grows(void **state) {
    (void)state;
    lls_ctx_options options = LLS_CTX_OPTIONS_INIT;
    options.num_threads = 1, options.workspace_bytes = 1000;
    lls_ctx *ctx;
    assert_int_equal(create(options, &ctx), LLS_OK);
    assert_true(ctx->workspace_bytes >= 1000);
    void *before = ctx->workspace, *p;
    assert_int_equal((uintptr_t)before % 256, 0);
    assert_int_equal(lls_ctx_reserve(ctx, 10), LLS_OK); // never shrinks, never moves without need
    assert_ptr_equal(ctx->workspace, before);
    assert_int_equal(lls__ctx_workspace(ctx, "op", 1000, &p), LLS_OK);
    assert_ptr_equal(p, before);
    assert_int_equal(lls__ctx_workspace(ctx, "op", 1 << 20, &p), LLS_OK);
    assert_int_equal((uintptr_t)p % 256, 0);
    memset(p, 1, 1 << 20);
    size_t bytes = ctx->workspace_bytes;
    assert_int_equal(lls_ctx_reserve(ctx, SIZE_MAX / 2), LLS_ERR_MEMORY);
    assert_ptr_equal(ctx->workspace, p); // a failure leaves what was there
    assert_int_equal(ctx->workspace_bytes, bytes);
    lls_ctx_destroy(ctx);
}

static void memory(void **state) {
    (void)state;
    lls_ctx *ctx;
    assert_int_equal(lls_ctx_create(NULL, &ctx), LLS_OK);
    void *none, *some, *too_much = &none;
    assert_int_equal(lls_malloc(ctx, 0, &none), LLS_OK);
    assert_non_null(none);
    assert_int_equal(lls_malloc(ctx, 100, &some), LLS_OK);
    assert_int_equal((uintptr_t)some % 256, 0);
    char text[] = "hello", back[sizeof text];
    assert_int_equal(lls_upload(ctx, some, text, sizeof text, NULL), LLS_OK);
    assert_int_equal(lls_download(ctx, back, some, sizeof text, NULL), LLS_OK);
    assert_string_equal(back, text);
    assert_int_equal(lls_upload(ctx, some, NULL, 0, NULL), LLS_OK);
    assert_int_equal(lls_synchronize(ctx, NULL), LLS_OK);
    assert_int_equal(lls_malloc(ctx, SIZE_MAX - 8, &too_much), LLS_ERR_MEMORY); // rounding up must not wrap
    assert_last_error("no memory for");
    lls_free(ctx, none), lls_free(ctx, some), lls_free(ctx, NULL);
    lls_ctx_destroy(ctx);
}

static void build_facts(void **state) {
    (void)state;
    lls_build_info build = lls_build();
    assert_string_equal(build.version, LLS_VERSION_STRING);
    assert_non_null(build.compiler), assert_non_null(build.cuda), assert_non_null(build.cpu_name);
    assert_string_equal(build.cpu_level, lls__cpu_level_name(lls__cpu_level_detect()));
    lls_cuda_info info;
    assert_int_equal(lls_cuda_device_info(lls_cuda_device_count(), &info), LLS_ERR_NO_DEVICE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),        cmocka_unit_test(bad_options), cmocka_unit_test(threads_as_asked),
        cmocka_unit_test(workspace_grows), cmocka_unit_test(memory),      cmocka_unit_test(build_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
