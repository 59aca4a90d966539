/* Timing: ours and its peers in turn, in loops of equally many calls. */
#ifndef BENCH_TIMER_H
#define BENCH_TIMER_H

#include "llmspeed/core.h"

double bench_now(void); /* seconds, monotonic */

/* Enqueues call number `index` of a rotation. */
typedef lls_status (*bench_launch)(int32_t index, lls_stream stream, void *user);

/* ---- Loops ----------------------------------------------------------------------------------- */

/* `calls` calls that rotate through the copies and can be run again and again: a graph on CUDA, plain calls on the
 * CPU. */
typedef struct bench_loop {
    lls_device device;
    int32_t calls, rotation;
    bench_launch launch;
    void *user;
    int32_t next; /* CPU: the copy whose turn it is */
    void *graph;  /* CUDA */
} bench_loop;

/* Close it also after a failure. */
lls_status bench_loop_open(bench_loop *loop, lls_device device, int32_t calls, int32_t rotation, bench_launch launch,
                           void *user);
/* Runs the loop `lead` times and then `rounds` times, back to back, and waits for the end: seconds a call of the
 * latter. The lead hides how a start looks: clocks that rise, launches that the host has yet to make. */
lls_status bench_loop_run(bench_loop *loop, int64_t lead, int64_t rounds, double *seconds);
void bench_loop_close(bench_loop *loop);

/* The CUDA half: cuda_loop.c, or no_cuda_loop.c in builds without CUDA. */
lls_status bench_graph_open(bench_loop *loop);
lls_status bench_graph_run(bench_loop *loop, int64_t lead, int64_t rounds, double *seconds);
void bench_graph_close(bench_loop *loop);

/* ---- Races ----------------------------------------------------------------------------------- */

enum { BENCH_MAX_SAMPLES = 200, BENCH_MAX_RACERS = 5 };

typedef struct bench_racer {
    bench_launch launch;
    void *user;
    bench_loop loop;
    double samples[BENCH_MAX_SAMPLES]; /* seconds a call, sorted when the race is over */
    int32_t count;
    double sustained; /* seconds a call; 0 when not asked for */
} bench_racer;

/* Times `count` racers in turn for about `seconds` of samples and `sustained` seconds (0: none) each. All loops have
 * equally many calls.
 * A sample is a burst: on CUDA a loop of under 10 ms after a rest of several times that, so that the power limit stays
 * out of it. Sustained is the time a call when the limit does apply: loop after loop without a rest. */
lls_status bench_race(lls_device device, int32_t rotation, double seconds, double sustained, bench_racer *racers,
                      int32_t count);
double bench_percentile(const bench_racer *racer, double percent);

#endif
