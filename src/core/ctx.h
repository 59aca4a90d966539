/* The context behind lls_ctx, and what ops may ask of it. */
#ifndef LLS_CORE_CTX_H
#define LLS_CORE_CTX_H

#include "cpu/level.h"
#include "cpu/pool.h"
#include "llmspeed/core.h"

/* Where lls_ctx_record wants calls to be noted. */
typedef struct lls__recording {
    lls_record *records; /* NULL: off */
    int32_t capacity, count;
    lls_record *call; /* of the op call that runs now, for its launches; else NULL */
} lls__recording;

struct lls_ctx {
    lls_device device;
    lls__pool *pool;      /* CPU only */
    lls__cpu_level level; /* CPU only: best level of this machine */
    void *workspace;      /* on the device, 256-byte aligned */
    size_t workspace_bytes;
    int32_t sm; /* CUDA only: compute capability x 10 */
    int32_t num_sms;
    lls__recording recording;
};

const char *lls__device_name(lls_device_type type);

/* At least `bytes` of scratch on the context's device, contents undefined, valid until the op returns (CUDA: until the
 * next op on the stream).
 * The CPU grows it; CUDA fails with LLS_ERR_WORKSPACE naming `op`, since growing would allocate during a capture. */
lls_status lls__ctx_workspace(lls_ctx *ctx, const char *op, size_t bytes, void **out);

/* Runs fn over [0, n) on the context's threads; see lls__pool_run. */
static inline void lls__parallel(lls_ctx *ctx, int64_t n, int64_t grain, lls__pool_fn fn, void *arg) {
    lls__pool_run(ctx->pool, n, grain, fn, arg);
}

#endif
