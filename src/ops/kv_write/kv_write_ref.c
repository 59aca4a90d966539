/* The oracle: one element at a time, by the definition of a slot. */
#include "core/element.h"
#include "ops/kv_write/kv_write_kernels.h"

static void write_token(const lls_tensor *rows, const lls_tensor *cache, int64_t t, int64_t slot) {
    int64_t page = slot / cache->shape[1], in_page = slot % cache->shape[1];
    for (int64_t head = 0; head < rows->shape[1]; head++) {
        int64_t from = t * rows->stride[0] + head * rows->stride[1];
        int64_t to = page * cache->stride[0] + in_page * cache->stride[1] + head * cache->stride[2];
        for (int64_t i = 0; i < rows->shape[2]; i++) lls__set(cache, to + i, lls__get(rows, from + i));
    }
}

lls_status lls__kv_write_ref(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)ctx, (void)stream;
    const lls_kv_write_args *a = args;
    const int64_t *slots = a->slots->data;
    for (int64_t t = 0; t < a->slots->shape[0]; t++) {
        if (slots[t] < 0) continue;
        write_token(a->k, a->k_cache, t, slots[t]);
        write_token(a->v, a->v_cache, t, slots[t]);
    }
    return LLS_OK;
}
