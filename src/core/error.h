/* The one way to fail: set this thread's message and return the status. */
#ifndef LLS_CORE_ERROR_H
#define LLS_CORE_ERROR_H

#include "llmspeed/core.h"

/* Formats the thread-local message of lls_last_error() and returns `status`, so that a check reads
 *     return lls__fail(LLS_ERR_SHAPE, "rmsnorm: x.ndim is %d, must be 2", x->ndim);
 * Messages longer than LLS__ERROR_BYTES are cut. Arguments may point into the previous message. */
#define LLS__ERROR_BYTES 1024
lls_status lls__fail(lls_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, with `status` visible as the value: the compiler then knows that a callee which returned LLS_OK did set its
 * outputs, and -Wmaybe-uninitialized stays quiet. */
#define lls__fail(status, ...) ((void)lls__fail((status), __VA_ARGS__), (status))

/* Returns early when a call fails. */
#define LLS_TRY(call)                        \
    do {                                     \
        lls_status lls_try_status_ = (call); \
        if (lls_try_status_ != LLS_OK) {     \
            return lls_try_status_;          \
        }                                    \
    } while (0)

#endif
