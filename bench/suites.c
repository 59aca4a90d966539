#include "bench.h"
#include "dispatch/op_list.h"

#define DECLARE(name) extern const bench_suite bench_suite_##name;
#define ENTRY(name) &bench_suite_##name,

LLS_OPS(DECLARE)

const bench_suite *const bench_suites[] = {LLS_OPS(ENTRY)};
const int32_t bench_num_suites = sizeof bench_suites / sizeof *bench_suites;
