/* Which configuration the Hopper rungs take: pure functions of the shape and the device, in clock cycles. */
#ifndef LLS_OPS_GEMM_SM90_PLAN_H
#define LLS_OPS_GEMM_SM90_PLAN_H

#include "ops/gemm/config.h"

/* The product as the plan sees it. */
typedef struct lls__sm90_shape {
    int64_t m, n, batch; /* grouped: m of an average group, batch the groups */
    int32_t k_steps;     /* stages of 128 bytes that k takes */
    int32_t num_sms;
    int32_t out_bytes; /* of an element */
    bool grouped;
    bool promoted;    /* sums leave the tensor core every stage */
    bool plain;       /* out leaves by TMA */
    bool any_split;   /* split may be above 1 */
    bool any_cluster; /* clusters may share loads */
} lls__sm90_shape;

enum { LLS__SM90_MAX_CONFIGS = 512 };

/* NULL when a block of this shape can run the configuration, else why not. */
const char *lls__sm90_config_fault(const lls__sm90_shape *s, const lls__gemm_config *c);
/* Bytes of dynamic shared memory. */
int32_t lls__sm90_shared_bytes(const lls__gemm_config *c);
/* All configurations of these tiles [num_tiles][2] that the shape can use, the cheapest first. Returns how many. */
int32_t lls__sm90_configs(const lls__sm90_shape *s, const int32_t (*tiles)[2], int32_t num_tiles,
                          lls__gemm_config out[LLS__SM90_MAX_CONFIGS]);
/* What the model says a configuration takes. */
double lls__sm90_cycles(const lls__sm90_shape *s, const lls__gemm_config *c);

#endif
