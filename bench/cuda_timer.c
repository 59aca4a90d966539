/* What the bench needs of the CUDA runtime: a graph of calls, events around its replays. */
#include <cuda_runtime_api.h>

#include "core/error.h"
#include "timer.h"

static lls_status check(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return LLS_OK;
    cudaGetLastError(); // clear it: the next call must not inherit this failure
    return lls__fail(error == cudaErrorMemoryAllocation ? LLS_ERR_MEMORY : LLS_ERR_CUDA, "bench: %s: %s (%s)", what,
                     cudaGetErrorName(error), cudaGetErrorString(error));
}

typedef struct stopwatch {
    cudaStream_t stream;
    cudaEvent_t start, stop;
} stopwatch;

static lls_status open_stopwatch(int32_t device, stopwatch *w) {
    LLS_TRY(check(cudaSetDevice(device), "device"));
    LLS_TRY(check(cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking), "stream"));
    LLS_TRY(check(cudaEventCreate(&w->start), "event"));
    return check(cudaEventCreate(&w->stop), "event");
}

static void close_stopwatch(stopwatch *w) {
    if (w->start) cudaEventDestroy(w->start);
    if (w->stop) cudaEventDestroy(w->stop);
    if (w->stream) cudaStreamDestroy(w->stream);
}

static lls_status read_stopwatch(stopwatch *w, double *seconds) {
    float ms;
    LLS_TRY(check(cudaEventSynchronize(w->stop), "replay"));
    LLS_TRY(check(cudaEventElapsedTime(&ms, w->start, w->stop), "elapsed time"));
    *seconds = 1e-3 * (double)ms;
    return LLS_OK;
}

static lls_status capture(stopwatch *w, int32_t calls, int32_t rotation, bench_launch launch, void *user,
                          cudaGraphExec_t *out) {
    cudaGraph_t graph = NULL;
    LLS_TRY(check(cudaStreamBeginCapture(w->stream, cudaStreamCaptureModeThreadLocal), "begin capture"));
    lls_status status = LLS_OK;
    for (int32_t i = 0; i < calls && !status; i++) status = launch(i % rotation, w->stream, user);
    lls_status ended = check(cudaStreamEndCapture(w->stream, &graph), "end capture");
    if (!status) status = ended;
    if (!status) status = check(cudaGraphInstantiate(out, graph, 0), "instantiate");
    if (graph) cudaGraphDestroy(graph);
    return status;
}

static lls_status replay(stopwatch *w, cudaGraphExec_t graph, double *seconds) {
    LLS_TRY(check(cudaEventRecord(w->start, w->stream), "event"));
    LLS_TRY(check(cudaGraphLaunch(graph, w->stream), "launch"));
    LLS_TRY(check(cudaEventRecord(w->stop, w->stream), "event"));
    return read_stopwatch(w, seconds);
}

// One call outside a graph, to learn whether it is a matter of microseconds or of seconds.
static lls_status probe(stopwatch *w, bench_launch launch, void *user, double *seconds) {
    LLS_TRY(check(cudaEventRecord(w->start, w->stream), "event"));
    LLS_TRY(launch(0, w->stream, user));
    LLS_TRY(check(cudaEventRecord(w->stop, w->stream), "event"));
    return read_stopwatch(w, seconds);
}

lls_status bench_time_cuda(int32_t device, int32_t rotation, double budget, bench_launch launch, void *user,
                           bench_samples *out) {
    enum { MIN_CALLS = 16 };
    const double short_call = 1e-4; // seconds; a replay of several hides its own start
    stopwatch w = {0};
    cudaGraphExec_t graph = NULL;
    double seconds = 0, begin = bench_now();
    lls_status status = open_stopwatch(device, &w);
    if (!status) status = probe(&w, launch, user, &seconds);
    int32_t rounds = seconds < short_call ? (MIN_CALLS + rotation - 1) / rotation : 1, calls = rounds * rotation;
    if (!status) status = capture(&w, calls, rotation, launch, user, &graph);
    // The first replays let clocks rise and do not count.
    for (int i = 0; i < 2 && !status && bench_now() - begin < budget; i++) status = replay(&w, graph, &seconds);
    begin = bench_now();
    while (!status && out->count < BENCH_MAX_SAMPLES && (out->count < 3 || bench_now() - begin < budget)) {
        status = replay(&w, graph, &seconds);
        if (!status) out->seconds[out->count++] = seconds / calls;
    }
    if (graph) cudaGraphExecDestroy(graph);
    close_stopwatch(&w);
    return status;
}
