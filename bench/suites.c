/* The bench suites: one line an op, in layer order. */
#include "bench.h"

#define BENCH_SUITES(X) \
    X(embed) \
    X(rmsnorm) \
    X(layernorm) \
    X(gemm) \
    X(linear) \
    X(rope) \
    X(kv_write) \
    X(attn_prefill) \
    X(attn_decode) \
    X(attn_merge) \
    X(gated_act) \
    X(sample)

#define DECLARE(name) extern const bench_suite bench_suite_##name;
#define ENTRY(name) &bench_suite_##name,

BENCH_SUITES(DECLARE)

const bench_suite *const bench_suites[] = {BENCH_SUITES(ENTRY)};
const int32_t bench_num_suites = sizeof bench_suites / sizeof *bench_suites;
