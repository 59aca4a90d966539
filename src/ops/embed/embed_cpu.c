/* Tokens over threads. Rows of floats are converted a vector at a time; rows of GGUF blocks are decoded block by block
 * into a buffer in L1 first. */
#include "core/ctx.h"
#include "core/tensor.h"
#include "cpu/simd.h"
#include "ops/embed/embed_kernels.h"
#include "ops/linear/blocks.h"

enum { GROUP = 16, MAX_BLOCK = 256 }; // no type changes its scale within 16 weights

// out[0, n) = row * scale
static void float_row(lls_dtype from, const void *row, float scale, lls_dtype to, void *out, int64_t n) {
    int64_t i = 0;
    for (; i + LLS_VF <= n; i += LLS_VF) vf_store(to, out, i, vf_load(from, row, i) * vf_set1(scale));
    if (i < n) vf_store_n(to, out, i, n - i, vf_load_n(from, row, i, n - i) * vf_set1(scale));
}

/* Inlined with a constant dtype and unrolled over groups, so that every shift and byte offset of blocks.h is a constant
 * and the inner loop is vector code. */
LLS_INLINE void decode_block(lls_dtype dtype, const uint8_t *block, float *weights) {
    const int elems = lls__block_elems(dtype);
#pragma GCC unroll 16
    for (int g = 0; g < elems; g += GROUP) {
        lls__block_scale s = lls__block_scale_at(dtype, block, g);
        for (int i = 0; i < GROUP; i++) weights[g + i] = s.scale * (float)lls__block_code(dtype, block, g + i) + s.min;
    }
}

LLS_INLINE void block_row(lls_dtype from, const uint8_t *row, float scale, lls_dtype to, void *out, int64_t n) {
    float weights[MAX_BLOCK];
    int64_t elems = lls__block_elems(from), size = lls__elem_size(to);
    for (int64_t i = 0; i < n; i += elems, row += lls__block_bytes(from)) {
        decode_block(from, row, weights);
        float_row(LLS_F32, weights, scale, to, (char *)out + i * size, elems);
    }
}

static void any_block_row(lls_dtype from, const uint8_t *row, float scale, lls_dtype to, void *out, int64_t n) {
    switch (from) {
    case LLS_Q4_0: block_row(LLS_Q4_0, row, scale, to, out, n); break;
    case LLS_Q4_1: block_row(LLS_Q4_1, row, scale, to, out, n); break;
    case LLS_Q5_0: block_row(LLS_Q5_0, row, scale, to, out, n); break;
    case LLS_Q5_1: block_row(LLS_Q5_1, row, scale, to, out, n); break;
    case LLS_Q4_K: block_row(LLS_Q4_K, row, scale, to, out, n); break;
    case LLS_Q5_K: block_row(LLS_Q5_K, row, scale, to, out, n); break;
    case LLS_Q6_K: block_row(LLS_Q6_K, row, scale, to, out, n); break;
    default: block_row(LLS_Q8_0, row, scale, to, out, n); break;
    }
}

static void tokens(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const lls_embed_args *a = arg;
    const lls_tensor *table = a->table;
    const int32_t *ids = a->ids->data;
    int64_t hidden = table->shape[1];
    bool is_float = lls__is_float(table->dtype);
    int64_t row_bytes = (is_float ? table->stride[0] : hidden) / lls_dtype_block_elems(table->dtype) *
                        lls_dtype_block_bytes(table->dtype);
    for (int64_t t = begin; t < end; t++) {
        const uint8_t *row = (const uint8_t *)table->data + ids[t] * row_bytes;
        void *out = lls__at(a->out, t * a->out->stride[0]);
        if (is_float) float_row(table->dtype, row, a->scale, a->out->dtype, out, hidden);
        else any_block_row(table->dtype, row, a->scale, a->out->dtype, out, hidden);
    }
}

lls_status LLS_CPU(lls__embed_cpu)(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)stream;
    const lls_embed_args *a = args;
    int64_t grain = 16384 / (a->out->shape[1] + 1) +
                    1; // below some 16k elements a thread's wake-up costs more than it saves
    lls__parallel(ctx, a->out->shape[0], grain, tokens, (void *)args);
    return LLS_OK;
}
