/* lls_measure_ceilings on a GPU: bandwidth from copies between two events, arithmetic from the architecture. */
#include <cuda_runtime_api.h>

#include "core/device.h"
#include "core/error.h"
#include "dispatch/launch.h"

/* Multiply-adds a clock of one multiprocessor, without sparsity. Sources, NVIDIA's white papers: "A100 Tensor Core GPU
 * Architecture" (2020), "Ampere GA102 GPU Architecture" (2021), "Ada GPU Architecture" (2022), "H100 Tensor Core GPU
 * Architecture" (2022), "RTX Blackwell GPU Architecture" (2025). */
static const struct rates {
    int32_t sm, f32, f16, i8, tf32, f8;
} rates[] = {
    {80, 64, 1024, 2048, 512, 0},      {86, 128, 512, 1024, 256, 0},     {89, 128, 512, 1024, 256, 1024},
    {90, 128, 2048, 4096, 1024, 4096}, {120, 128, 512, 1024, 256, 1024},
};

static lls_status check(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return LLS_OK;
    cudaGetLastError(); // clear it: the next call must not inherit this failure
    return lls__fail(error == cudaErrorMemoryAllocation ? LLS_ERR_MEMORY : LLS_ERR_CUDA,
                     "measure_ceilings: %s: %s (%s)", what, cudaGetErrorName(error), cudaGetErrorString(error));
}

static lls_status arithmetic(const lls_ctx *ctx, lls_ceilings *out) {
    int khz = 0;
    LLS_TRY(check(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, ctx->device.index), "clock rate"));
    double clocks = 1e3 * khz * ctx->num_sms;
    for (int32_t i = 0; i < LLS_COUNT(rates); i++) {
        if (rates[i].sm != ctx->sm) continue;
        out->f32_flops = 2 * clocks * rates[i].f32;
        out->f16_flops = 2 * clocks * rates[i].f16;
        out->i8_ops = 2 * clocks * rates[i].i8;
        out->tf32_flops = 2 * clocks * rates[i].tf32;
        out->f8_flops = 2 * clocks * rates[i].f8;
    }
    return LLS_OK;
}

typedef struct copying {
    cudaStream_t stream;
    cudaEvent_t start, stop;
    char *memory; // two buffers of `bytes`
    size_t bytes;
} copying;

// The largest buffers from 1 GB down that there is memory for, far above any L2 cache.
static lls_status take_memory(copying *c) {
    const size_t most = (size_t)1 << 30, least = (size_t)1 << 28;
    cudaError_t error = cudaErrorMemoryAllocation;
    for (c->bytes = most; error == cudaErrorMemoryAllocation && c->bytes >= least; c->bytes /= 2) {
        error = cudaMalloc((void **)&c->memory, 2 * c->bytes);
        if (!error) return LLS_OK;
        cudaGetLastError();
    }
    return check(error, "memory");
}

static lls_status open_copying(copying *c) {
    LLS_TRY(check(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "stream"));
    LLS_TRY(check(cudaEventCreate(&c->start), "event"));
    LLS_TRY(check(cudaEventCreate(&c->stop), "event"));
    LLS_TRY(take_memory(c));
    return check(cudaMemsetAsync(c->memory, 0, 2 * c->bytes, c->stream), "memset");
}

static void close_copying(copying *c) {
    if (c->memory) cudaFree(c->memory);
    if (c->start) cudaEventDestroy(c->start);
    if (c->stop) cudaEventDestroy(c->stop);
    if (c->stream) cudaStreamDestroy(c->stream);
}

static lls_status copy_pass(const copying *c, double *seconds) {
    float ms;
    LLS_TRY(check(cudaEventRecord(c->start, c->stream), "event"));
    LLS_TRY(
        check(cudaMemcpyAsync(c->memory + c->bytes, c->memory, c->bytes, cudaMemcpyDeviceToDevice, c->stream), "copy"));
    LLS_TRY(check(cudaEventRecord(c->stop, c->stream), "event"));
    LLS_TRY(check(cudaEventSynchronize(c->stop), "copy"));
    LLS_TRY(check(cudaEventElapsedTime(&ms, c->start, c->stop), "elapsed time"));
    *seconds = 1e-3 * (double)ms;
    return LLS_OK;
}

static lls_status memory(lls_ceilings *out) {
    enum { PASSES = 8 };
    copying c = {0};
    double seconds;
    lls_status status = open_copying(&c);
    for (int pass = 0; pass < PASSES && !status; pass++) {
        status = copy_pass(&c, &seconds);
        double rate = status ? 0 : 2 * (double)c.bytes / seconds;
        if (rate > out->read_bytes_per_s) out->read_bytes_per_s = rate;
    }
    close_copying(&c);
    return status;
}

lls_status lls__cuda_ceilings(lls_ctx *ctx, lls_ceilings *out) {
    int previous;
    LLS_TRY(lls__cuda_enter(ctx, &previous));
    lls_status status = arithmetic(ctx, out);
    if (!status) status = memory(out);
    lls__cuda_leave(previous);
    return status;
}
