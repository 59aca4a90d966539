/* Recording of op calls (lls_ctx_record): what dispatch, launches and cost functions need of it. */
#ifndef LLS_DISPATCH_RECORD_H
#define LLS_DISPATCH_RECORD_H

#include "dispatch/variant.h"

/* Launches the row as dispatch would, and notes the call when it succeeds. */
lls_status lls__record_call(lls_ctx *ctx, const lls__op *op, const lls__variant *v, const void *args,
                            lls_stream stream);

/* For cost functions: `bytes` of values that live on the context's device, readable by the host. That is `data` itself
 * on the CPU; on CUDA a copy in *copy, made in stream order, which the caller frees. NULL where there are none (data
 * NULL) or they cannot be read, because the stream is being captured or the copy failed. */
const void *lls__host_values(lls_ctx *ctx, const void *data, size_t bytes, lls_stream stream, void **copy);

#endif
