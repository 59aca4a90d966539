/* Builds without CUDA: no context on a GPU can exist, so nothing asks for a graph. */
#include "timer.h"

lls_status bench_graph_open(bench_loop *loop) {
    (void)loop;
    return LLS_ERR_NO_DEVICE;
}

lls_status bench_graph_run(bench_loop *loop, int64_t lead, int64_t rounds, double *seconds) {
    (void)loop, (void)lead, (void)rounds, (void)seconds;
    return LLS_ERR_NO_DEVICE;
}

void bench_graph_close(bench_loop *loop) {
    (void)loop;
}
