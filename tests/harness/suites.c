#include "harness/suites.h"

#define TH_SUITES(X) \
    X(embed)         \
    X(rmsnorm)       \
    X(layernorm)     \
    X(gemm)          \
    X(linear)        \
    X(rope)          \
    X(kv_write)      \
    X(attn_prefill)  \
    X(attn_decode)   \
    X(attn_merge)    \
    X(gated_act)     \
    X(sample)

#define DECLARE(op) extern const th_suite th_suite_##op;
#define ENTRY(op) &th_suite_##op,

TH_SUITES(DECLARE)

const th_suite *const th_suites[] = {TH_SUITES(ENTRY)};
const int32_t th_num_suites = sizeof th_suites / sizeof *th_suites;
