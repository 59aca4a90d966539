#include "ops/linear/linear_cpu.h"
#include "core/error.h"
#include "ops/linear/linear_kernels.h"

lls_status LLS_CPU(lls__linear_cpu)(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)stream;
    const lls_linear_args *a = args;
    return a->weight->layout == LLS_PACKED ? LLS_CPU(lls__linear_packed)(ctx, a) : LLS_CPU(lls__linear_rows)(ctx, a);
}
