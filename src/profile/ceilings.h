/* What lls_measure_ceilings is made of. */
#ifndef LLS_PROFILE_CEILINGS_H
#define LLS_PROFILE_CEILINGS_H

#include "core/ctx.h"

/* Of loops whose speed is the result: in a build with sanitizers, their checks would be what is measured. */
#define LLS__UNCHECKED __attribute__((no_sanitize("address", "undefined")))

/* Bytes that buffers must exceed so that the last-level cache does not serve them. */
size_t lls__cache_bytes(lls_device device);

/* Multiply-adds that stay in registers: chains_cpu.c, once a SIMD level. */
typedef struct lls__chains {
    double ops;                     /* operations a round */
    int32_t (*run)(int64_t rounds); /* its result depends on every operation */
} lls__chains;
LLS_CPU_DECLARE(lls__chains, lls__f32_chains, void);
LLS_CPU_DECLARE(lls__chains, lls__i8_chains, void);

#endif
