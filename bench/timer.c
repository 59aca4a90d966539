#include "timer.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "core/error.h"

double bench_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void rest(double seconds) {
    struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
    nanosleep(&time, NULL);
}

// ---- Loops ------------------------------------------------------------------------------------------

lls_status bench_loop_open(bench_loop *loop, lls_device device, int32_t calls, int32_t rotation, bench_launch launch,
                           void *user) {
    *loop = (bench_loop){.device = device, .calls = calls, .rotation = rotation, .launch = launch, .user = user};
    return device.type == LLS_CUDA ? bench_graph_open(loop) : LLS_OK;
}

static lls_status run_cpu(bench_loop *loop, int64_t rounds) {
    for (int64_t i = 0; i < rounds * loop->calls; i++) {
        lls_status status = loop->launch(loop->next, NULL, loop->user);
        if (status) return status;
        loop->next = (loop->next + 1) % loop->rotation;
    }
    return LLS_OK;
}

lls_status bench_loop_run(bench_loop *loop, int64_t lead, int64_t rounds, double *seconds) {
    if (loop->device.type == LLS_CUDA) return bench_graph_run(loop, lead, rounds, seconds);
    lls_status status = run_cpu(loop, lead);
    double start = bench_now();
    if (!status) status = run_cpu(loop, rounds);
    *seconds = (bench_now() - start) / ((double)rounds * loop->calls);
    return status;
}

void bench_loop_close(bench_loop *loop) {
    if (loop->device.type == LLS_CUDA) bench_graph_close(loop);
}

// ---- Races ------------------------------------------------------------------------------------------

/* How long a loop is. On the CPU so long that the clock's own cost does not show. On CUDA so short that a burst, which is
 * two loops, stays under 10 ms: power is regulated over some tens of milliseconds.
 * The rest on the CPU, where there is another racer: its threads spin for up to half a millisecond after a call (ours:
 * cpu/pool.c, OpenBLAS's: peers/openblas.c), on the cores that the next racer needs. */
typedef struct pace {
    double loop;           // seconds
    int32_t max_calls;     // a graph's nodes cost time to make
    double rest, max_rest; // after a burst: in units of its length, and in seconds
} pace;

static pace pace_of(lls_device device) {
    return device.type == LLS_CUDA ? (pace){4e-3, 256, 6, 0.1} : (pace){1e-3, 1 << 20, 5, 0.01};
}

// Seconds a call: the best of a few runs where they are short, since one may be held up.
static lls_status probe(bench_loop *loop, double *best) {
    *best = INFINITY;
    double seconds, begin = bench_now();
    for (int i = 0; i < 3 && (i == 0 || bench_now() - begin < 0.02); i++) {
        LLS_TRY(bench_loop_run(loop, 0, 1, &seconds));
        *best = fmin(*best, seconds);
    }
    return LLS_OK;
}

// Calls a loop, so that the slowest racer's takes as long as it should; opens the loops with that number.
static lls_status open_loops(lls_device device, int32_t rotation, bench_racer *racers, int32_t count) {
    pace p = pace_of(device);
    int32_t calls = 1;
    for (int guess = 0; guess < 4; guess++) { // the first call of many is longer than the rest
        double slowest = 0;
        for (int32_t i = 0; i < count; i++) {
            bench_racer *r = &racers[i];
            double seconds;
            bench_loop_close(&r->loop);
            LLS_TRY(bench_loop_open(&r->loop, device, calls, rotation, r->launch, r->user));
            LLS_TRY(probe(&r->loop, &seconds));
            slowest = fmax(slowest, seconds);
        }
        double fit = fmin(p.max_calls, p.loop / fmax(slowest, 1e-9));
        if (fit < 1.5 * calls) break;
        calls = (int32_t)fit;
    }
    return LLS_OK;
}

static lls_status burst(bench_racer *r, bool lead) {
    pace p = pace_of(r->loop.device);
    double seconds, start = bench_now();
    bool is_long = r->count > 0 && r->samples[r->count - 1] * r->loop.calls > 1.25 * p.loop; // one call is too much
    LLS_TRY(bench_loop_run(&r->loop, lead && !is_long, 1, &seconds));
    r->samples[r->count++] = seconds;
    if (lead) rest(fmin(p.max_rest, p.rest * (bench_now() - start)));
    return LLS_OK;
}

static lls_status sample(bench_racer *racers, int32_t count, double seconds) {
    enum { MIN_SAMPLES = 3 };
    const bench_loop *loop = &racers[0].loop;
    bool cuda = loop->device.type == LLS_CUDA;
    double unused, begin = bench_now();
    // On the CPU clocks take their time to rise.
    while (!cuda && bench_now() - begin < 0.25 * seconds * count) {
        for (int32_t i = 0; i < count; i++) LLS_TRY(bench_loop_run(&racers[i].loop, 0, 1, &unused));
    }
    begin = bench_now();
    while (racers[0].count < BENCH_MAX_SAMPLES &&
           (racers[0].count < MIN_SAMPLES || bench_now() - begin < seconds * count)) {
        for (int32_t i = 0; i < count; i++) LLS_TRY(burst(&racers[i], cuda || count > 1));
    }
    return LLS_OK;
}

// There and back again, so that a machine that grows warmer favours nobody.
static lls_status sustain(bench_racer *racers, int32_t count, double seconds) {
    const double settle = 0.1; // before the clock counts: the racer before left its own temperature and clocks
    for (int32_t turn = 0; turn < 2 * count; turn++) {
        bench_racer *r = &racers[turn < count ? turn : 2 * count - 1 - turn];
        double one, round = r->samples[0] * r->loop.calls;
        LLS_TRY(bench_loop_run(&r->loop, (int64_t)ceil(settle / round), (int64_t)ceil(0.5 * seconds / round), &one));
        r->sustained += 0.5 * one;
    }
    return LLS_OK;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

lls_status bench_race(lls_device device, int32_t rotation, double seconds, double sustained, bench_racer *racers,
                      int32_t count) {
    lls_status status = open_loops(device, rotation, racers, count);
    if (!status) status = sample(racers, count, seconds);
    if (!status && sustained > 0) status = sustain(racers, count, sustained);
    for (int32_t i = 0; i < count; i++) {
        bench_loop_close(&racers[i].loop);
        qsort(racers[i].samples, (size_t)racers[i].count, sizeof *racers[i].samples, ascending);
    }
    return status;
}

double bench_percentile(const bench_racer *racer, double percent) {
    if (racer->count == 0) return 0;
    int32_t i = (int32_t)(percent / 100 * (racer->count - 1) + 0.5);
    return racer->samples[i];
}
