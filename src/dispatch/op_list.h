/* The ops, in the order in which a transformer layer meets them. The dispatch table, the test harness and the bench are
 * made from this one list. */
#ifndef LLS_DISPATCH_OP_LIST_H
#define LLS_DISPATCH_OP_LIST_H

#define LLS_OPS(X)  \
    X(embed)        \
    X(rmsnorm)      \
    X(layernorm)    \
    X(gemm)         \
    X(gemm_grouped) \
    X(linear)       \
    X(rope)         \
    X(kv_write)     \
    X(attn_prefill) \
    X(attn_decode)  \
    X(attn_merge)   \
    X(gated_act)    \
    X(sample)

#endif
