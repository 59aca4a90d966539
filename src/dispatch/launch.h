/* Kernel launches from C, through cudaLaunchKernelExC. Only files built with LLS_WITH_CUDA include this. */
#ifndef LLS_DISPATCH_LAUNCH_H
#define LLS_DISPATCH_LAUNCH_H

#include "core/ctx.h"
#include "dispatch/variant.h"

typedef struct lls__grid {
    uint32_t grid[3];      /* blocks; a zero anywhere launches nothing */
    uint32_t block[3];     /* threads */
    uint32_t shared_bytes; /* dynamic shared memory; above 48 KB the kernel's limit is raised first */
    uint32_t cluster[3];   /* blocks of a cluster, along each axis; zeros: none */
    bool early;            /* may start while the kernel before it ends, which it waits for by itself (cuda/grid.cuh) */
} lls__grid;

/* Blocks along an axis for `wanted` units of work, as far as the axis goes: kernels stride over what is left. */
enum { LLS__MAX_GRID_X = INT32_MAX, LLS__MAX_GRID_YZ = 65535 };
static inline uint32_t lls__grid_axis(int64_t wanted, int64_t limit) {
    return (uint32_t)(wanted < limit ? wanted : limit);
}

/* params[i] points to the i-th kernel argument. Errors name the kernel and the launch shape and do not stick. */
lls_status lls__launch(lls_ctx *ctx, const lls__kernel *kernel, const lls__grid *shape, void **params,
                       lls_stream stream);

/* Makes the context's device current, and back: `previous` is enter's, for leave alone. */
lls_status lls__cuda_enter(const lls_ctx *ctx, int *previous);
void lls__cuda_leave(int previous);

#endif
