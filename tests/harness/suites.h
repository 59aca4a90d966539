/* One suite an op; each lives beside its op, in src/ops/<op>/<op>_test.c. */
#ifndef TESTS_HARNESS_SUITES_H
#define TESTS_HARNESS_SUITES_H

#include "harness/harness.h"

extern const th_suite *const th_suites[];
extern const int32_t th_num_suites;

#endif
