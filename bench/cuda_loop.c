/* What the bench needs of the CUDA runtime: a graph of calls, events around its replays. */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "core/error.h"
#include "timer.h"

static lls_status check(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return LLS_OK;
    cudaGetLastError(); // clear it: the next call must not inherit this failure
    return lls__fail(error == cudaErrorMemoryAllocation ? LLS_ERR_MEMORY : LLS_ERR_CUDA, "bench: %s: %s (%s)", what,
                     cudaGetErrorName(error), cudaGetErrorString(error));
}

typedef struct graph {
    cudaStream_t stream;
    cudaEvent_t start, stop;
    cudaGraphExec_t exec;
} graph;

static lls_status capture(const bench_loop *loop, graph *g) {
    cudaGraph_t captured = NULL;
    LLS_TRY(check(cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal), "begin capture"));
    lls_status status = LLS_OK;
    for (int32_t i = 0; i < loop->calls && !status; i++) {
        status = loop->launch(i % loop->rotation, g->stream, loop->user);
    }
    cudaError_t ended = cudaStreamEndCapture(g->stream, &captured);
    if (!status) status = check(ended, "end capture");
    if (!status) status = check(cudaGraphInstantiate(&g->exec, captured, 0), "instantiate");
    if (captured) cudaGraphDestroy(captured);
    cudaGetLastError(); // of a capture that a failed call broke off
    return status;
}

lls_status bench_graph_open(bench_loop *loop) {
    graph *g = loop->graph = calloc(1, sizeof *g);
    if (!g) return lls__fail(LLS_ERR_MEMORY, "bench: no memory for a graph");
    LLS_TRY(check(cudaSetDevice(loop->device.index), "device"));
    LLS_TRY(check(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking), "stream"));
    LLS_TRY(check(cudaEventCreate(&g->start), "event"));
    LLS_TRY(check(cudaEventCreate(&g->stop), "event"));
    LLS_TRY(capture(loop, g));
    return check(cudaGraphUpload(g->exec, g->stream), "upload");
}

static lls_status replay(const graph *g, int64_t rounds) {
    for (int64_t i = 0; i < rounds; i++) LLS_TRY(check(cudaGraphLaunch(g->exec, g->stream), "launch"));
    return LLS_OK;
}

lls_status bench_graph_run(bench_loop *loop, int64_t lead, int64_t rounds, double *seconds) {
    const graph *g = loop->graph;
    float ms;
    LLS_TRY(replay(g, lead));
    LLS_TRY(check(cudaEventRecord(g->start, g->stream), "event"));
    LLS_TRY(replay(g, rounds));
    LLS_TRY(check(cudaEventRecord(g->stop, g->stream), "event"));
    LLS_TRY(check(cudaEventSynchronize(g->stop), "replay"));
    LLS_TRY(check(cudaEventElapsedTime(&ms, g->start, g->stop), "elapsed time"));
    *seconds = 1e-3 * (double)ms / ((double)rounds * loop->calls);
    return LLS_OK;
}

void bench_graph_close(bench_loop *loop) {
    graph *g = loop->graph;
    if (!g) return;
    if (g->exec) cudaGraphExecDestroy(g->exec);
    if (g->start) cudaEventDestroy(g->start);
    if (g->stop) cudaEventDestroy(g->stop);
    if (g->stream) cudaStreamDestroy(g->stream);
    free(g);
    loop->graph = NULL;
}
