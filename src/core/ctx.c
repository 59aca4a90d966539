#include "core/ctx.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/device.h"
#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/variant.h"

enum { ALIGNMENT = 256, HUGE_PAGE = 2 << 20, MAX_THREADS = 1024 };

const char *lls__device_name(lls_device_type type) {
    return type == LLS_CPU ? "cpu" : type == LLS_CUDA ? "cuda" : "unknown";
}

static int usable_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

// Large blocks begin on a huge page, so that who streams through one can ask for such pages (engine/model/weights.c).
static void *host_alloc(size_t bytes) {
    size_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
    size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    return rounded < bytes ? NULL : aligned_alloc(alignment, rounded ? rounded : alignment);
}

lls_status lls_ctx_create(const lls_ctx_options *options, lls_ctx **out) {
    if (!out) return lls__fail(LLS_ERR_ARGUMENT, "ctx_create: out is NULL");
    *out = NULL;
    lls_ctx_options opt = LLS_CTX_OPTIONS_INIT;
    if (options) LLS_TRY(lls__copy_args("ctx_create", &opt, sizeof opt, options));
    if (opt.device.type == 0) opt.device.type = LLS_CPU;
    if (opt.device.type != LLS_CPU && opt.device.type != LLS_CUDA) {
        return lls__fail(LLS_ERR_ARGUMENT, "ctx_create: device.type is %d, must be LLS_CPU or LLS_CUDA",
                         (int)opt.device.type);
    }
    if (opt.num_threads < 0 || opt.num_threads > MAX_THREADS) {
        return lls__fail(LLS_ERR_ARGUMENT, "ctx_create: num_threads is %d, must be 0 to %d", opt.num_threads,
                         MAX_THREADS);
    }
    if (opt.device.type == LLS_CPU && opt.device.index != 0) {
        return lls__fail(LLS_ERR_NO_DEVICE, "ctx_create: device is cpu:%d, must be cpu:0", opt.device.index);
    }
    lls_ctx *ctx = calloc(1, sizeof *ctx);
    if (!ctx) return lls__fail(LLS_ERR_MEMORY, "ctx_create: no memory for the context");
    ctx->device = opt.device;
    lls_status status;
    if (opt.device.type == LLS_CPU) {
        ctx->level = lls__cpu_level_detect();
        status = lls__pool_create(opt.num_threads ? opt.num_threads : usable_cores(), &ctx->pool);
    } else {
        status = lls__cuda_ctx_init(ctx);
    }
    if (!status) status = lls_ctx_reserve(ctx, opt.workspace_bytes);
    if (status) {
        lls_ctx_destroy(ctx);
        return status;
    }
    *out = ctx;
    return LLS_OK;
}

void lls_ctx_destroy(lls_ctx *ctx) {
    if (!ctx) return;
    if (ctx->workspace) lls_free(ctx, ctx->workspace);
    lls__pool_destroy(ctx->pool);
    free(ctx);
}

lls_device lls_ctx_device(const lls_ctx *ctx) {
    return ctx->device;
}

int32_t lls_ctx_num_threads(const lls_ctx *ctx) {
    return ctx->pool ? lls__pool_threads(ctx->pool) : 1;
}

lls_status lls_ctx_reserve(lls_ctx *ctx, size_t bytes) {
    if (bytes <= ctx->workspace_bytes) return LLS_OK;
    void *grown;
    LLS_TRY(lls_malloc(ctx, bytes, &grown));
    if (ctx->workspace) lls_free(ctx, ctx->workspace); // on CUDA cudaFree waits for the device
    ctx->workspace = grown;
    ctx->workspace_bytes = bytes;
    return LLS_OK;
}

lls_status lls__ctx_workspace(lls_ctx *ctx, const char *op, size_t bytes, void **out) {
    if (bytes > ctx->workspace_bytes) {
        if (ctx->device.type == LLS_CUDA) {
            return lls__fail(LLS_ERR_WORKSPACE,
                             "%s: the context's workspace has %zu bytes, this call needs %zu: lls_ctx_reserve", op,
                             ctx->workspace_bytes, bytes);
        }
        LLS_TRY(lls_ctx_reserve(ctx, bytes + bytes / 2));
    }
    *out = ctx->workspace;
    return LLS_OK;
}

lls_status lls_malloc(lls_ctx *ctx, size_t bytes, void **out) {
    if (ctx->device.type == LLS_CUDA) return lls__cuda_malloc(ctx, bytes, out);
    *out = host_alloc(bytes);
    return *out ? LLS_OK : lls__fail(LLS_ERR_MEMORY, "malloc: no memory for %zu bytes", bytes);
}

void lls_free(lls_ctx *ctx, void *ptr) {
    if (ctx->device.type == LLS_CUDA) lls__cuda_free(ctx, ptr);
    else free(ptr);
}

lls_status lls_upload(lls_ctx *ctx, void *dst, const void *host_src, size_t bytes, lls_stream stream) {
    if (ctx->device.type == LLS_CUDA) return lls__cuda_copy(ctx, dst, host_src, bytes, true, stream);
    if (bytes) memcpy(dst, host_src, bytes);
    return LLS_OK;
}

lls_status lls_download(lls_ctx *ctx, void *host_dst, const void *src, size_t bytes, lls_stream stream) {
    if (ctx->device.type == LLS_CUDA) return lls__cuda_copy(ctx, host_dst, src, bytes, false, stream);
    if (bytes) memcpy(host_dst, src, bytes);
    return LLS_OK;
}

lls_status lls_synchronize(lls_ctx *ctx, lls_stream stream) {
    return ctx->device.type == LLS_CUDA ? lls__cuda_synchronize(ctx, stream) : LLS_OK;
}

lls_build_info lls_build(void) {
    return (lls_build_info){
        .version = LLS_VERSION_STRING,
        .compiler = __VERSION__,
        .cuda = lls__cuda_toolkit(),
        .cpu_level = lls__cpu_level_name(lls__cpu_level_detect()),
        .cpu_name = lls__cpu_brand(),
    };
}
