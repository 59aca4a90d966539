/* The op list: one line an op, in the order in which a transformer layer meets them. */
#include "dispatch/variant.h"

#define LLS_OPS(X)  \
    X(embed)        \
    X(rmsnorm)      \
    X(layernorm)    \
    X(gemm)         \
    X(linear)       \
    X(rope)         \
    X(kv_write)     \
    X(attn_prefill) \
    X(attn_decode)  \
    X(attn_merge)   \
    X(gated_act)    \
    X(sample)

#define DECLARE(name) extern const lls__op lls__op_##name;
#define ENTRY(name) &lls__op_##name,

LLS_OPS(DECLARE)

const lls__op *const lls__ops[] = {LLS_OPS(ENTRY)};
const int32_t lls__num_ops = LLS_COUNT(lls__ops);
