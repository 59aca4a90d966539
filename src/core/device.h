/* The CUDA half of the core. cuda_device.c implements it with the runtime; no_cuda_device.c where the build has no
 * toolkit.
 * Neither needs a driver to be present until a CUDA context is created. */
#ifndef LLS_CORE_DEVICE_H
#define LLS_CORE_DEVICE_H

#include "core/ctx.h"

/* "13.0", or "none". */
const char *lls__cuda_toolkit(void);
/* Fills device facts and loads every kernel, so that nothing is loaded lazily inside a graph capture. */
lls_status lls__cuda_ctx_init(lls_ctx *ctx);
lls_status lls__cuda_malloc(lls_ctx *ctx, size_t bytes, void **out);
void lls__cuda_free(lls_ctx *ctx, void *ptr);
lls_status lls__cuda_copy(lls_ctx *ctx, void *dst, const void *src, size_t bytes, bool to_device, lls_stream stream);
lls_status lls__cuda_synchronize(lls_ctx *ctx, lls_stream stream);

#endif
