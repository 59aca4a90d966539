#include "llmspeed/core.h"

const char *lls_bound_name(lls_bound bound) {
    switch (bound) {
    case LLS_BOUND_UNKNOWN: break;
    case LLS_BOUND_MEMORY: return "memory";
    case LLS_BOUND_COMPUTE: return "compute";
    case LLS_BOUND_LATENCY: return "latency";
    }
    return "unknown";
}

static double rate_of(const lls_ceilings *c, lls_math math) {
    switch (math) {
    case LLS_MATH_F32: return c->f32_flops;
    case LLS_MATH_F16: return c->f16_flops;
    case LLS_MATH_I8: return c->i8_ops;
    case LLS_MATH_TF32: return c->tf32_flops;
    case LLS_MATH_F8: return c->f8_flops;
    }
    return 0;
}

// Seconds for `work` at `rate`; 0 for a rate that nobody knows.
static double seconds_for(double work, double rate) {
    return rate > 0 && work > 0 ? work / rate : 0;
}

lls_bound lls_classify(const lls_ceilings *ceilings, lls_math math, double flops, double bytes, double seconds,
                       double *floor_share) {
    const double busy = 0.25; // below it, neither memory nor arithmetic is what the time goes to
    double rate = rate_of(ceilings, math), bandwidth = ceilings->read_bytes_per_s;
    double memory = seconds_for(bytes, bandwidth), compute = seconds_for(flops, rate);
    double share = seconds > 0 ? (memory > compute ? memory : compute) / seconds : 0;
    if (floor_share) *floor_share = share;
    if (!(seconds > 0) || !(bandwidth > 0 || rate > 0)) return LLS_BOUND_UNKNOWN;
    if (share < busy) return LLS_BOUND_LATENCY;
    return compute > memory ? LLS_BOUND_COMPUTE : LLS_BOUND_MEMORY;
}
