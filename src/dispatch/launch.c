#include "dispatch/launch.h"

#include <cuda_runtime_api.h>
#include <string.h>

#include "core/error.h"

enum { WAS_CURRENT = -1 };

lls_status lls__cuda_enter(const lls_ctx *ctx, int *previous) {
    cudaError_t error = cudaGetDevice(previous);
    if (!error && *previous == ctx->device.index) {
        *previous = WAS_CURRENT; // the usual case, on every launch: nothing to undo, so leave need not ask again
        return LLS_OK;
    }
    if (!error) error = cudaSetDevice(ctx->device.index);
    if (!error) return LLS_OK;
    cudaGetLastError();
    return lls__fail(LLS_ERR_CUDA, "cuda: selecting device %d: %s", ctx->device.index, cudaGetErrorString(error));
}

void lls__cuda_leave(int previous) {
    if (previous != WAS_CURRENT) cudaSetDevice(previous);
}

// Notes a launch in the record of the call that it belongs to: its shape if it is the largest so far. What the runtime
// does not tell stays 0.
static void note(const lls_ctx *ctx, const lls__kernel *kernel, const lls__grid *shape) {
    lls_record *call = ctx->recording.call;
    const uint32_t *g = shape->grid, *b = shape->block, *old = call->grid;
    uint32_t threads = b[0] * b[1] * b[2], warps = (threads + 31) / 32;
    double before = (double)old[0] * old[1] * old[2] * call->block[0] * call->block[1] * call->block[2];
    call->num_kernels++;
    if ((double)g[0] * g[1] * g[2] * threads <= before) return;
    call->kernel = kernel->name;
    memcpy(call->grid, g, sizeof call->grid);
    memcpy(call->block, b, sizeof call->block);
    struct cudaFuncAttributes attributes = {0};
    int blocks = 0, most = 0;
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel->func);
    if (!error) {
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel->func, (int)threads, shape->shared_bytes);
    }
    if (!error) error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxThreadsPerMultiProcessor, ctx->device.index);
    if (error) cudaGetLastError();
    call->registers = attributes.numRegs;
    call->shared_bytes = attributes.sharedSizeBytes + shape->shared_bytes;
    call->occupancy = most > 0 ? 32.0 * warps * blocks / most : 0;
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
    const uint32_t *cluster = shape->cluster;
    cudaLaunchAttribute attributes[2];
    unsigned num_attributes = 0;
    if (cluster[0] > 0) {
        attributes[num_attributes++] = (cudaLaunchAttribute){.id = cudaLaunchAttributeClusterDimension,
                                                             .val.clusterDim = {cluster[0], cluster[1], cluster[2]}};
    }
    if (shape->early) {
        attributes[num_attributes++] = (cudaLaunchAttribute){.id = cudaLaunchAttributeProgrammaticStreamSerialization,
                                                             .val.programmaticStreamSerializationAllowed = 1};
    }
    cudaLaunchConfig_t config = {
        .gridDim = {g[0], g[1], g[2]},
        .blockDim = {b[0], b[1], b[2]},
        .dynamicSmemBytes = shape->shared_bytes,
        .stream = (cudaStream_t)stream,
        .attrs = attributes,
        .numAttrs = num_attributes,
    };
    if (!error) error = cudaLaunchKernelExC(&config, kernel->func, params);
    if (!error && ctx->recording.call) note(ctx, kernel, shape);
    lls__cuda_leave(previous);
    if (!error) return LLS_OK;
    cudaGetLastError();
    return lls__fail(LLS_ERR_CUDA, "%s<<<(%u, %u, %u), (%u, %u, %u), %u bytes>>>: %s (%s)", kernel->name, g[0], g[1],
                     g[2], b[0], b[1], b[2], shape->shared_bytes, cudaGetErrorName(error), cudaGetErrorString(error));
}
