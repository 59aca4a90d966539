/* The smallest test runner, for programs that must run on a machine with nothing but a driver. One C file includes it.
 * Each named test is passed or failed; the last line is "N passed, N failed, N skipped". */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static int checks_passed, checks_failed, checks_skipped;
static bool test_failed;

static inline void check_failed(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static inline void check_failed(const char *file, int line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("  %s:%d: ", file, line);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
    test_failed = true;
}

/* CHECK(condition, "what went wrong: %d", value) */
#define CHECK(condition, ...)                                            \
    do {                                                                 \
        if (!(condition)) check_failed(__FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

static inline void run_test(const char *name, void (*test)(void)) {
    test_failed = false;
    test();
    printf("%-7s %s\n", test_failed ? "failed" : "passed", name);
    fflush(stdout);
    if (test_failed) checks_failed++;
    else checks_passed++;
}

static inline void skip_test(const char *name, const char *why) {
    printf("skipped %s: %s\n", name, why);
    checks_skipped++;
}

static inline int check_summary(void) {
    printf("%d passed, %d failed, %d skipped\n", checks_passed, checks_failed, checks_skipped);
    return checks_failed || checks_passed == 0;
}

#endif
