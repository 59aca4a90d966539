/* The CUDA half of the core. cuda_device.c and profile/cuda_ceilings.c implement it with the runtime; no_cuda_device.c
 * where the build has no toolkit.
 * Neither needs a driver to be present until a CUDA context is created. */
#ifndef LLS_CORE_DEVICE_H
#define LLS_CORE_DEVICE_H

#include "core/ctx.h"

/* "13.0", or "none". */
const char *lls__cuda_toolkit(void);
/* Compute capability x 10, and multiprocessors. Microseconds, where lls_cuda_device_info takes milliseconds. */
lls_status lls__cuda_multiprocessors(int32_t index, int32_t *sm, int32_t *num_sms);
/* Fills device facts and loads every kernel, so that nothing is loaded lazily inside a graph capture. */
lls_status lls__cuda_ctx_init(lls_ctx *ctx);
lls_status lls__cuda_malloc(lls_ctx *ctx, size_t bytes, void **out);
void lls__cuda_free(lls_ctx *ctx, void *ptr);
lls_status lls__cuda_copy(lls_ctx *ctx, void *dst, const void *src, size_t bytes, bool to_device, lls_stream stream);
lls_status lls__cuda_synchronize(lls_ctx *ctx, lls_stream stream);
/* Whether the stream is being captured into a graph, or a capture elsewhere forbids using it. */
bool lls__cuda_is_capturing(lls_ctx *ctx, lls_stream stream);
/* The CUDA side of lls_measure_ceilings. */
lls_status lls__cuda_ceilings(lls_ctx *ctx, lls_ceilings *out);

#endif
