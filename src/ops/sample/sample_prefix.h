/* The front of a ranking without sorting it. */
#ifndef LLS_OPS_SAMPLE_PREFIX_H
#define LLS_OPS_SAMPLE_PREFIX_H

#include <stdint.h>

/* What a token's probability is proportional to: e^((logit - best) / temperature). */
typedef struct lls__sample_mass {
    float best;
    double inverse_temperature;
} lls__sample_mass;

double lls__sample_mass_of(const lls__sample_mass *mass, uint64_t key);

/* Reorders keys (all different) so that keys[0, result) is the smallest set of largest keys that weighs at least
 * `target`, and returns its size: at least 1, and n when all together weigh less. A key weighs its mass, or 1 where
 * mass is NULL. Expected time O(n). */
int64_t lls__sample_prefix(uint64_t *keys, int64_t n, double target, const lls__sample_mass *mass);

#endif
