#include "dispatch/launch.h"

#include <cuda_runtime_api.h>

#include "core/error.h"

lls_status lls__cuda_enter(const lls_ctx *ctx, int *previous) {
    cudaError_t error = cudaGetDevice(previous);
    if (!error && *previous != ctx->device.index) error = cudaSetDevice(ctx->device.index);
    if (!error) return LLS_OK;
    cudaGetLastError();
    return lls__fail(LLS_ERR_CUDA, "cuda: selecting device %d: %s", ctx->device.index, cudaGetErrorString(error));
}

void lls__cuda_leave(int previous) {
    int current;
    if (cudaGetDevice(&current) == cudaSuccess && current != previous) cudaSetDevice(previous);
}

enum { DEFAULT_SHARED_LIMIT = 48 * 1024 };

lls_status lls__launch(lls_ctx *ctx, const lls__kernel *kernel, const lls__grid *shape, void **params,
                       lls_stream stream) {
    const uint32_t *g = shape->grid, *b = shape->block;
    if (g[0] == 0 || g[1] == 0 || g[2] == 0) return LLS_OK;
    int previous;
    LLS_TRY(lls__cuda_enter(ctx, &previous));
    cudaError_t error = cudaSuccess;
    if (shape->shared_bytes > DEFAULT_SHARED_LIMIT) {
        error =
            cudaFuncSetAttribute(kernel->func, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shape->shared_bytes);
    }
    cudaLaunchConfig_t config = {
        .gridDim = {g[0], g[1], g[2]},
        .blockDim = {b[0], b[1], b[2]},
        .dynamicSmemBytes = shape->shared_bytes,
        .stream = (cudaStream_t)stream,
    };
    if (!error) error = cudaLaunchKernelExC(&config, kernel->func, params);
    lls__cuda_leave(previous);
    if (!error) return LLS_OK;
    cudaGetLastError();
    return lls__fail(LLS_ERR_CUDA, "%s<<<(%u, %u, %u), (%u, %u, %u), %u bytes>>>: %s (%s)", kernel->name, g[0], g[1],
                     g[2], b[0], b[1], b[2], shape->shared_bytes, cudaGetErrorName(error), cudaGetErrorString(error));
}
