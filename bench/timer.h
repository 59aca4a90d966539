/* Timing of one call on a device: samples of seconds a call. */
#ifndef BENCH_TIMER_H
#define BENCH_TIMER_H

#include "llmspeed/core.h"

double bench_now(void); /* seconds, monotonic */

/* Enqueues call number `index` of a rotation. */
typedef lls_status (*bench_launch)(int32_t index, lls_stream stream, void *user);

enum { BENCH_MAX_SAMPLES = 200 };
typedef struct bench_samples {
    double seconds[BENCH_MAX_SAMPLES]; /* a call, sorted when the timer returns */
    int32_t count;
} bench_samples;

/* Times `rotation` calls over and over for about `budget` seconds, three samples at least. */
lls_status bench_time(lls_device device, int32_t rotation, double budget, bench_launch launch, void *user,
                      bench_samples *out);
double bench_percentile(const bench_samples *samples, double percent);

/* The CUDA half: cuda_timer.c, or no_cuda_timer.c in builds without CUDA. A sample is one replay of a graph of the
 * rotation's calls. */
lls_status bench_time_cuda(int32_t device, int32_t rotation, double budget, bench_launch launch, void *user,
                           bench_samples *out);

#endif
