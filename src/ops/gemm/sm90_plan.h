/* Which configuration the Hopper rungs take: pure functions of the shape and the device, in clock cycles. */
#ifndef LLS_OPS_GEMM_SM90_PLAN_H
#define LLS_OPS_GEMM_SM90_PLAN_H

#include "ops/gemm/config.h"

/* The product as the plan sees it, one way around. Zero it before it is filled: it is compared as bytes. */
typedef struct lls__sm90_shape {
    int64_t m, n, batch; /* grouped: m of an average group, batch the groups. Swapped: of out^T. */
    int32_t k_steps;     /* stages of 128 bytes that k takes */
    int32_t num_sms;
    int32_t out_bytes;        /* of an element */
    int32_t a_lines, b_lines; /* lines of 128 bytes of L2 that a stage's row of a, or column of b, touches: 1 or 2 */
    int32_t a_granule, b_granule; /* rows of a, columns of b that the blocks of a cluster cut at */
    int32_t swap;
    int32_t only_n; /* tiles of this many columns alone; 0: any */
    bool grouped;
    bool promoted;    /* sums leave the tensor core every stage */
    bool plain;       /* out leaves by TMA */
    bool any_split;   /* split may be above 1 */
    bool any_cluster; /* clusters may share loads */
    const int32_t (*tiles)[2];
    int32_t num_tiles;
} lls__sm90_shape;

enum { LLS__SM90_MAX_CONFIGS = 768 };

/* NULL when a block of this shape can run the configuration, else why not. */
const char *lls__sm90_config_fault(const lls__sm90_shape *s, const lls__gemm_config *c);
/* Bytes of dynamic shared memory. */
int32_t lls__sm90_shared_bytes(const lls__gemm_config *c, bool grouped);
/* Clusters that run at a time. */
int32_t lls__sm90_slots(const lls__sm90_shape *s, const lls__gemm_config *c);
/* All configurations that a product seen in these ways can use, the cheapest first. Returns how many. */
int32_t lls__sm90_configs(const lls__sm90_shape *ways, int32_t num_ways, lls__gemm_config out[LLS__SM90_MAX_CONFIGS]);
/* The cheapest alone; false when there is none. */
bool lls__sm90_best(const lls__sm90_shape *ways, int32_t num_ways, lls__gemm_config *out);
/* What the model says a configuration takes. */
double lls__sm90_cycles(const lls__sm90_shape *s, const lls__gemm_config *c);

#endif
