#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"

static _Thread_local char message[LLS__ERROR_BYTES];

const char *lls_last_error(void) {
    return message;
}

lls_status(lls__fail)(lls_status status, const char *format, ...) {
    char text[LLS__ERROR_BYTES]; // not `message`: an argument may point into it
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(message, text, sizeof message);
    lls__log(LLS_LOG_DEBUG, "%s: %s", lls_status_name(status), message);
    return status;
}

const char *lls_status_name(lls_status status) {
    switch (status) {
    case LLS_OK: return "LLS_OK";
    case LLS_ERR_ARGUMENT: return "LLS_ERR_ARGUMENT";
    case LLS_ERR_SHAPE: return "LLS_ERR_SHAPE";
    case LLS_ERR_DTYPE: return "LLS_ERR_DTYPE";
    case LLS_ERR_STRIDE: return "LLS_ERR_STRIDE";
    case LLS_ERR_DEVICE: return "LLS_ERR_DEVICE";
    case LLS_ERR_ALIAS: return "LLS_ERR_ALIAS";
    case LLS_ERR_UNSUPPORTED: return "LLS_ERR_UNSUPPORTED";
    case LLS_ERR_VARIANT: return "LLS_ERR_VARIANT";
    case LLS_ERR_NO_DEVICE: return "LLS_ERR_NO_DEVICE";
    case LLS_ERR_CUDA: return "LLS_ERR_CUDA";
    case LLS_ERR_MEMORY: return "LLS_ERR_MEMORY";
    case LLS_ERR_WORKSPACE: return "LLS_ERR_WORKSPACE";
    case LLS_ERR_CONTEXT_FULL: return "LLS_ERR_CONTEXT_FULL";
    case LLS_ERR_IO: return "LLS_ERR_IO";
    case LLS_ERR_FORMAT: return "LLS_ERR_FORMAT";
    case LLS_ERR_MODEL: return "LLS_ERR_MODEL";
    case LLS_ERR_ENCODING: return "LLS_ERR_ENCODING";
    case LLS_ERR_INTERNAL: return "LLS_ERR_INTERNAL";
    case LLS_ERR_CANCELLED: return "LLS_ERR_CANCELLED";
    }
    return "LLS_ERR_UNKNOWN";
}
