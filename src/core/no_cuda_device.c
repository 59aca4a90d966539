#include "core/device.h"
#include "core/error.h"

static lls_status no_cuda(void) {
    return lls__fail(LLS_ERR_NO_DEVICE, "this library was built without CUDA");
}

const char *lls__cuda_toolkit(void) {
    return "none";
}

int32_t lls_cuda_device_count(void) {
    return 0;
}

lls_status lls_cuda_device_info(int32_t index, lls_cuda_info *out) {
    (void)index, (void)out;
    return no_cuda();
}

lls_status lls__cuda_multiprocessors(int32_t index, int32_t *sm, int32_t *num_sms) {
    (void)index, (void)sm, (void)num_sms;
    return no_cuda();
}

lls_status lls__cuda_ctx_init(lls_ctx *ctx) {
    (void)ctx;
    return no_cuda();
}

lls_status lls__cuda_malloc(lls_ctx *ctx, size_t bytes, void **out) {
    (void)ctx, (void)bytes, (void)out;
    return no_cuda();
}

void lls__cuda_free(lls_ctx *ctx, void *ptr) {
    (void)ctx, (void)ptr;
}

lls_status lls__cuda_copy(lls_ctx *ctx, void *dst, const void *src, size_t bytes, bool to_device, lls_stream stream) {
    (void)ctx, (void)dst, (void)src, (void)bytes, (void)to_device, (void)stream;
    return no_cuda();
}

lls_status lls__cuda_synchronize(lls_ctx *ctx, lls_stream stream) {
    (void)ctx, (void)stream;
    return no_cuda();
}

bool lls__cuda_is_capturing(lls_ctx *ctx, lls_stream stream) {
    (void)ctx, (void)stream;
    return false;
}

lls_status lls__cuda_ceilings(lls_ctx *ctx, lls_ceilings *out) {
    (void)ctx, (void)out;
    return no_cuda();
}
