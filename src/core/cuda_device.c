#include <cuda_runtime_api.h>
#include <stdio.h>

#include "core/device.h"
#include "core/error.h"
#include "dispatch/launch.h"
#include "dispatch/variant.h"

const char *lls__cuda_toolkit(void) {
    static char text[16];
    snprintf(text, sizeof text, "%d.%d", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    return text;
}

static lls_status failed(cudaError_t error, const char *what) {
    cudaGetLastError(); // clear it: the next call must not inherit this failure
    lls_status status = error == cudaErrorMemoryAllocation ? LLS_ERR_MEMORY : LLS_ERR_CUDA;
    return lls__fail(status, "%s: %s (%s)", what, cudaGetErrorName(error), cudaGetErrorString(error));
}

int32_t lls_cuda_device_count(void) {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    return count;
}

static lls_status check_index(int32_t index) {
    int32_t count = lls_cuda_device_count();
    if (index >= 0 && index < count) return LLS_OK;
    return lls__fail(LLS_ERR_NO_DEVICE,
                     "cuda: device index is %d, this machine has %d CUDA devices with a working driver", index, count);
}

lls_status lls_cuda_device_info(int32_t index, lls_cuda_info *out) {
    LLS_TRY(check_index(index));
    struct cudaDeviceProp properties;
    int driver = 0;
    cudaError_t error = cudaGetDeviceProperties(&properties, index);
    if (!error) error = cudaDriverGetVersion(&driver);
    if (error) return failed(error, "cuda: device properties");
    *out = (lls_cuda_info){
        .sm = properties.major * 10 + properties.minor,
        .num_sms = properties.multiProcessorCount,
        .memory_bytes = properties.totalGlobalMem,
        .l2_bytes = (size_t)properties.l2CacheSize,
    };
    snprintf(out->name, sizeof out->name, "%s", properties.name);
    snprintf(out->driver, sizeof out->driver, "CUDA %d.%d", driver / 1000, driver % 1000 / 10);
    return LLS_OK;
}

lls_status lls__cuda_multiprocessors(int32_t index, int32_t *sm, int32_t *num_sms) {
    LLS_TRY(check_index(index));
    int major, minor, count;
    cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
    if (!error) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index);
    if (!error) error = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, index);
    if (error) return failed(error, "cuda: device attributes");
    *sm = major * 10 + minor, *num_sms = count;
    return LLS_OK;
}

// Loads a kernel, so that its first launch need not.
static lls_status load(const lls__kernel *kernel) {
    struct cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel->func);
    return error ? failed(error, kernel->name) : LLS_OK;
}

static lls_status load_all(const lls__op *op) {
    for (int32_t i = 0; i < op->num_kernels; i++) LLS_TRY(load(&op->kernels[i]));
    for (int32_t i = 0; op->more_kernels && op->more_kernels[i]; i++) {
        for (const lls__kernel *kernel = op->more_kernels[i]; kernel->name; kernel++) LLS_TRY(load(kernel));
    }
    return LLS_OK;
}

lls_status lls__cuda_ctx_init(lls_ctx *ctx) {
    LLS_TRY(lls__cuda_multiprocessors(ctx->device.index, &ctx->sm, &ctx->num_sms));
    int previous;
    LLS_TRY(lls__cuda_enter(ctx, &previous));
    lls_status status = LLS_OK;
    for (int32_t i = 0; !status && i < lls__num_ops; i++) status = load_all(lls__ops[i]);
    lls__cuda_leave(previous);
    return status;
}

lls_status lls__cuda_malloc(lls_ctx *ctx, size_t bytes, void **out) {
    int previous;
    LLS_TRY(lls__cuda_enter(ctx, &previous));
    cudaError_t error = cudaMalloc(out, bytes ? bytes : 1);
    lls__cuda_leave(previous);
    if (!error) return LLS_OK;
    char what[96];
    snprintf(what, sizeof what, "cuda: allocating %zu bytes on cuda:%d", bytes, ctx->device.index);
    return failed(error, what);
}

void lls__cuda_free(lls_ctx *ctx, void *ptr) {
    int previous;
    if (lls__cuda_enter(ctx, &previous)) return;
    cudaFree(ptr);
    lls__cuda_leave(previous);
}

lls_status lls__cuda_copy(lls_ctx *ctx, void *dst, const void *src, size_t bytes, bool to_device, lls_stream stream) {
    if (bytes == 0) return LLS_OK;
    int previous;
    LLS_TRY(lls__cuda_enter(ctx, &previous));
    cudaError_t error = cudaMemcpyAsync(dst, src, bytes, to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                                        (cudaStream_t)stream);
    if (!error) error = cudaStreamSynchronize((cudaStream_t)stream);
    lls__cuda_leave(previous);
    return error ? failed(error, to_device ? "cuda: copy to the device" : "cuda: copy from the device") : LLS_OK;
}

lls_status lls__cuda_synchronize(lls_ctx *ctx, lls_stream stream) {
    int previous;
    LLS_TRY(lls__cuda_enter(ctx, &previous));
    cudaError_t error = cudaStreamSynchronize((cudaStream_t)stream);
    lls__cuda_leave(previous);
    return error ? failed(error, "cuda: synchronize") : LLS_OK;
}

bool lls__cuda_is_capturing(lls_ctx *ctx, lls_stream stream) {
    int previous;
    if (lls__cuda_enter(ctx, &previous)) return true;
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing((cudaStream_t)stream, &capture);
    if (error) cudaGetLastError(); // the default stream, while another one is captured
    lls__cuda_leave(previous);
    return error || capture != cudaStreamCaptureStatusNone;
}
