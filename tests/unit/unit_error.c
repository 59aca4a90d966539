/* Status names, and the message of the last error: formats, cuts, arguments that point into the message itself,
 * threads. */
#include <pthread.h>
#include <stdlib.h>

#include "core/error.h"
#include "unit/unit.h"

static void every_status_has_its_name(void **state) {
    (void)state;
#define ROW(status) \
    { status, #status }
    static const struct {
        lls_status status;
        const char *name;
    } rows[] = {
        ROW(LLS_OK),
        ROW(LLS_ERR_ARGUMENT),
        ROW(LLS_ERR_SHAPE),
        ROW(LLS_ERR_DTYPE),
        ROW(LLS_ERR_STRIDE),
        ROW(LLS_ERR_DEVICE),
        ROW(LLS_ERR_ALIAS),
        ROW(LLS_ERR_UNSUPPORTED),
        ROW(LLS_ERR_VARIANT),
        ROW(LLS_ERR_NO_DEVICE),
        ROW(LLS_ERR_CUDA),
        ROW(LLS_ERR_MEMORY),
        ROW(LLS_ERR_WORKSPACE),
        ROW(LLS_ERR_CONTEXT_FULL),
        ROW(LLS_ERR_IO),
        ROW(LLS_ERR_FORMAT),
        ROW(LLS_ERR_MODEL),
        ROW(LLS_ERR_ENCODING),
        ROW(LLS_ERR_INTERNAL),
        ROW(LLS_ERR_CANCELLED),
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(lls_status_name(rows[i].status), rows[i].name);
    assert_string_equal(lls_status_name((lls_status)999), "LLS_ERR_UNKNOWN");
    assert_string_equal(lls_status_name((lls_status)-1), "LLS_ERR_UNKNOWN");
}

static void fail_formats_and_returns_its_status(void **state) {
    (void)state;
    assert_int_equal(lls__fail(LLS_ERR_SHAPE, "op: x.shape[%d] is %lld", 2, 4095LL), LLS_ERR_SHAPE);
    assert_string_equal(lls_last_error(), "op: x.shape[2] is 4095");
}

static void arguments_may_point_into_the_message(void **state) {
    (void)state;
    (void)lls__fail(LLS_ERR_IO, "inner");
    (void)lls__fail(LLS_ERR_IO, "outer: %s", lls_last_error());
    assert_string_equal(lls_last_error(), "outer: inner");
    for (int i = 0; i < 200; i++)
        (void)lls__fail(LLS_ERR_IO, "%s/%s", lls_last_error(), lls_last_error()); // doubles until it is cut
    assert_int_equal(strlen(lls_last_error()), LLS__ERROR_BYTES - 1);
}

static void long_messages_are_cut(void **state) {
    (void)state;
    char text[3 * LLS__ERROR_BYTES];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    (void)lls__fail(LLS_ERR_IO, "%s", text);
    assert_int_equal(strlen(lls_last_error()), LLS__ERROR_BYTES - 1);
    (void)lls__fail(LLS_ERR_IO, "%s", "short again");
    assert_string_equal(lls_last_error(), "short again");
}

static void *other_thread(void *first) {
    strcpy(first, lls_last_error());
    (void)lls__fail(LLS_ERR_IO, "of the other thread");
    return NULL;
}

static void messages_belong_to_their_thread(void **state) {
    (void)state;
    (void)lls__fail(LLS_ERR_IO, "of this thread");
    char first[LLS__ERROR_BYTES] = "untouched";
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, other_thread, first), 0);
    pthread_join(thread, NULL);
    assert_string_equal(first, ""); // nothing has failed there yet
    assert_string_equal(lls_last_error(), "of this thread");
}

static lls_status tries(lls_status status) {
    LLS_TRY(status);
    return LLS_ERR_INTERNAL;
}

static void try_returns_the_first_failure(void **state) {
    (void)state;
    assert_int_equal(tries(LLS_ERR_ALIAS), LLS_ERR_ALIAS);
    assert_int_equal(tries(LLS_OK), LLS_ERR_INTERNAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_name),
        cmocka_unit_test(fail_formats_and_returns_its_status),
        cmocka_unit_test(arguments_may_point_into_the_message),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(messages_belong_to_their_thread),
        cmocka_unit_test(try_returns_the_first_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
