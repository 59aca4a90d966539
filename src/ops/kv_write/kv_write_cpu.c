/* Tokens over threads. A head's row is copied as bytes where the cache has the dtype of the rows, else converted a
 * vector at a time. */
#include <string.h>

#include "core/ctx.h"
#include "core/tensor.h"
#include "cpu/simd.h"
#include "ops/kv_write/kv_write_kernels.h"

static void convert(lls_dtype from, const void *row, lls_dtype to, void *out, int64_t n) {
    int64_t i = 0;
    for (; i + LLS_VF <= n; i += LLS_VF) vf_store(to, out, i, vf_load(from, row, i));
    if (i < n) vf_store_n(to, out, i, n - i, vf_load_n(from, row, i, n - i));
}

static void write_token(const lls_tensor *rows, const lls_tensor *cache, int64_t t, int64_t slot) {
    int64_t page = slot / cache->shape[1], in_page = slot % cache->shape[1], width = rows->shape[2];
    for (int64_t head = 0; head < rows->shape[1]; head++) {
        const void *from = lls__at(rows, t * rows->stride[0] + head * rows->stride[1]);
        void *to = lls__at(cache, page * cache->stride[0] + in_page * cache->stride[1] + head * cache->stride[2]);
        if (rows->dtype == cache->dtype) memcpy(to, from, (size_t)(width * lls__elem_size(rows->dtype)));
        else convert(rows->dtype, from, cache->dtype, to, width);
    }
}

static void tokens(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const lls_kv_write_args *a = arg;
    const int64_t *slots = a->slots->data;
    for (int64_t t = begin; t < end; t++) {
        if (slots[t] < 0) continue;
        write_token(a->k, a->k_cache, t, slots[t]);
        write_token(a->v, a->v_cache, t, slots[t]);
    }
}

lls_status LLS_CPU(lls__kv_write_cpu)(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)stream;
    const lls_kv_write_args *a = args;
    int64_t token_elems = a->k->shape[1] * (a->k->shape[2] + a->v->shape[2]);
    int64_t grain = 16384 / (token_elems + 1) +
                    1; // below some 16k elements a thread's wake-up costs more than it saves
    lls__parallel(ctx, a->slots->shape[0], grain, tokens, (void *)args);
    return LLS_OK;
}
