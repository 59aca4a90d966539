#include "harness/suites.h"

#include "dispatch/op_list.h"

#define DECLARE(op) extern const th_suite th_suite_##op;
#define ENTRY(op) &th_suite_##op,

LLS_OPS(DECLARE)

const th_suite *const th_suites[] = {LLS_OPS(ENTRY)};
const int32_t th_num_suites = sizeof th_suites / sizeof *th_suites;
