#include "dispatch/record.h"

#include <stdlib.h>

#include "core/device.h"
#include "core/error.h"

lls_status lls_ctx_record(lls_ctx *ctx, lls_record *records, int32_t capacity) {
    if (!ctx) return lls__fail(LLS_ERR_ARGUMENT, "ctx_record: ctx is NULL");
    if (capacity < 0) return lls__fail(LLS_ERR_ARGUMENT, "ctx_record: capacity is %d, must be >= 0", capacity);
    ctx->recording.records = records;
    if (records) ctx->recording.capacity = capacity, ctx->recording.count = 0;
    return LLS_OK;
}

int32_t lls_ctx_recorded(const lls_ctx *ctx) {
    return ctx->recording.count;
}

lls_status lls__record_call(lls_ctx *ctx, const lls__op *op, const lls__variant *v, const void *args,
                            lls_stream stream) {
    lls__recording *recording = &ctx->recording;
    lls_record call = {.op = op->name, .variant = v->name, .device = ctx->device};
    recording->call = &call;
    lls_status status = v->launch(ctx, args, stream);
    recording->call = NULL;
    if (status) return status;
    if (recording->count < recording->capacity) {
        lls__cost cost = {0};
        if (op->cost) op->cost(ctx, args, stream, &cost);
        call.bytes = cost.bytes, call.flops = cost.flops, call.math = cost.math;
        recording->records[recording->count] = call;
    }
    if (recording->count < INT32_MAX) recording->count++;
    return LLS_OK;
}

const void *lls__host_values(lls_ctx *ctx, const void *data, size_t bytes, lls_stream stream, void **copy) {
    *copy = NULL;
    if (ctx->device.type == LLS_CPU || !data) return data;
    if (lls__cuda_is_capturing(ctx, stream)) return NULL;
    *copy = malloc(bytes);
    if (*copy && lls_download(ctx, *copy, data, bytes, stream)) {
        free(*copy);
        *copy = NULL;
    }
    return *copy;
}
