#include "timer.h"

#include <stdlib.h>
#include <time.h>

double bench_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// A sample is as many calls as take a millisecond, so that the clock's own cost does not show.
static lls_status time_cpu(int32_t rotation, double budget, bench_launch launch, void *user, bench_samples *out) {
    int32_t next = 0, calls = 1;
    double begin = bench_now();
    for (;;) {
        double start = bench_now();
        for (int32_t i = 0; i < calls; i++, next = (next + 1) % rotation) {
            lls_status status = launch(next, NULL, user);
            if (status) return status;
        }
        double now = bench_now(), seconds = now - start;
        bool warm = now - begin > 0.25 * budget || calls > 1;
        if (seconds < 1e-3 && out->count == 0) {
            calls = seconds < 1e-5 ? calls * 8 : calls * 2;
            continue;
        }
        if (warm || seconds > budget) out->seconds[out->count++] = seconds / calls;
        if (out->count == BENCH_MAX_SAMPLES || (out->count >= 3 && now - begin > budget)) return LLS_OK;
    }
}

lls_status bench_time(lls_device device, int32_t rotation, double budget, bench_launch launch, void *user,
                      bench_samples *out) {
    *out = (bench_samples){.count = 0};
    lls_status status = device.type == LLS_CUDA ? bench_time_cuda(device.index, rotation, budget, launch, user, out)
                                                : time_cpu(rotation, budget, launch, user, out);
    qsort(out->seconds, (size_t)out->count, sizeof *out->seconds, ascending);
    return status;
}

double bench_percentile(const bench_samples *samples, double percent) {
    if (samples->count == 0) return 0;
    int32_t i = (int32_t)(percent / 100 * (samples->count - 1) + 0.5);
    return samples->seconds[i];
}
