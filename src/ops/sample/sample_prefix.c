/* Hoare's quickselect on weights: only the side of the pivot in which the set ends is looked at again. */
#include "ops/sample/sample_prefix.h"

#include <float.h>
#include <math.h>

#include "ops/sample/sample_kernels.h"

double lls__sample_mass_of(const lls__sample_mass *mass, uint64_t key) {
    return exp(((double)lls__sample_key_logit(key) - (double)mass->best) * mass->inverse_temperature);
}

static void swap(uint64_t *a, uint64_t *b) {
    uint64_t t = *a;
    *a = *b, *b = t;
}

static void move_median_to_end(uint64_t *first, uint64_t *middle, uint64_t *last) {
    if (*first < *middle) swap(first, middle); // first >= middle
    if (*last > *first) swap(first, last);     // first is the largest
    if (*middle > *last) swap(middle, last);
}

int64_t lls__sample_prefix(uint64_t *keys, int64_t n, double target, const lls__sample_mass *mass) {
    int64_t begin = 0, end = n;          // keys[0, begin) belong to the set; keys from `end` on do not
    double weight = 0;                   // of keys[0, begin)
    if (!(target > 0)) target = DBL_MIN; // at least the best one, whose mass is 1
    while (begin < end && weight < target) {
        move_median_to_end(&keys[begin], &keys[begin + (end - begin) / 2], &keys[end - 1]);
        uint64_t pivot = keys[end - 1];
        int64_t split = begin; // keys[begin, split) rank above the pivot
        double above = 0;
        for (int64_t i = begin; i < end - 1; i++) {
            if (keys[i] < pivot) continue;
            above += mass ? lls__sample_mass_of(mass, keys[i]) : 1;
            swap(&keys[i], &keys[split++]);
        }
        if (weight + above >= target) {
            end = split;
            continue;
        }
        swap(&keys[split], &keys[end - 1]);
        weight += above + (mass ? lls__sample_mass_of(mass, pivot) : 1);
        begin = split + 1;
    }
    return begin > 0 ? begin : 1;
}
