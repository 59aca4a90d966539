/* GGUF blocks and plain rows into tiles (tile.h). Runs once a model load, tiles over threads. */
#include <string.h>

#include "core/ctx.h"
#include "core/error.h"
#include "core/tensor.h"
#include "llmspeed/ops.h"
#include "ops/linear/tile.h"

static const char *const op = "linear_pack";

// The codes of group g of a row into lane r of the tile.
LLS_BLOCK_FN void pack_group(lls_dtype dtype, const uint8_t *row, int64_t g, int r, uint8_t *codes, uint8_t *high) {
    int elems = lls__block_elems(dtype), bits = lls__tile_code_bits(dtype);
    const uint8_t *block = row + g * LLS__GROUP / elems * lls__block_bytes(dtype);
    int first = (int)(g * LLS__GROUP % elems);
    uint8_t code[LLS__GROUP];
    for (int i = 0; i < LLS__GROUP; i++) code[i] = (uint8_t)lls__block_code(dtype, block, first + i);

    codes += g * lls__tile_code_bytes(dtype) + r * 4;
    high += g * lls__tile_high_bytes(dtype) + r * 4;
    if (bits == 8) {
        for (int c = 0; c < 8; c++) memcpy(codes + c * 64, code + 4 * c, 4);
        return;
    }
    for (int c = 0; c < 4; c++) {
        for (int j = 0; j < 4; j++) codes[c * 64 + j] = (uint8_t)((code[4 * c + j] & 15) | code[16 + 4 * c + j] << 4);
    }
    for (int j = 0; bits == 5 && j < 4; j++) {
        int byte = 0;
        for (int c = 0; c < 8; c++) byte |= (code[4 * c + j] >> 4) << c;
        high[j] = (uint8_t)byte;
    }
    for (int j = 0; bits == 6 && j < 8; j++) {
        int piece = j / 4, byte = 0;
        for (int c = 0; c < 4; c++) byte |= (code[16 * piece + 4 * c + j % 4] >> 4) << 2 * c;
        high[piece * 64 + j % 4] = (uint8_t)byte;
    }
}

// The scale record of block b of a row into lane r.
LLS_BLOCK_FN void pack_scales(lls_dtype dtype, const uint8_t *row, int64_t b, int r, uint8_t *scales) {
    const uint8_t *block = row + b * lls__block_bytes(dtype);
    uint8_t *record = scales + b * lls__tile_scale_bytes(dtype);
    uint8_t *d = record + r * 2, *min = d + LLS__TILE_ROWS * 2; // f16 each
    switch (dtype) {
    case LLS_Q4_1:
    case LLS_Q5_1:
        memcpy(d, block, 2);
        memcpy(min, block + 2, 2);
        break;
    case LLS_Q4_K:
    case LLS_Q5_K:
        memcpy(d, block, 2);
        memcpy(min, block + 2, 2);
        for (int j = 0; j < 8; j++) {
            record[LLS__TILE_ROWS * (4 + j) + r] = (uint8_t)lls__block_k_scale(block + 4, j);
            record[LLS__TILE_ROWS * (12 + j) + r] = (uint8_t)lls__block_k_min(block + 4, j);
        }
        break;
    case LLS_Q6_K:
        memcpy(d, block + 208, 2);
        for (int j = 0; j < 16; j++) record[LLS__TILE_ROWS * (2 + j) + r] = block[192 + j];
        break;
    default: memcpy(d, block, 2); break;
    }
}

LLS_BLOCK_FN void pack_block_row(lls_dtype dtype, const uint8_t *row, int64_t k, int r, uint8_t *tile) {
    lls__planes planes = lls__tile_planes(dtype, k);
    for (int64_t g = 0; g < k / LLS__GROUP; g++) pack_group(dtype, row, g, r, tile, tile + planes.high);
    for (int64_t b = 0; b < k / lls__block_elems(dtype); b++) pack_scales(dtype, row, b, r, tile + planes.scales);
}

static void pack_row(lls_dtype dtype, const void *row, int64_t k, int r, uint8_t *tile) {
    switch (dtype) { // constants let the compiler unroll each type's bit moves
    case LLS_Q4_0: pack_block_row(LLS_Q4_0, row, k, r, tile); break;
    case LLS_Q4_1: pack_block_row(LLS_Q4_1, row, k, r, tile); break;
    case LLS_Q5_0: pack_block_row(LLS_Q5_0, row, k, r, tile); break;
    case LLS_Q5_1: pack_block_row(LLS_Q5_1, row, k, r, tile); break;
    case LLS_Q8_0: pack_block_row(LLS_Q8_0, row, k, r, tile); break;
    case LLS_Q4_K: pack_block_row(LLS_Q4_K, row, k, r, tile); break;
    case LLS_Q5_K: pack_block_row(LLS_Q5_K, row, k, r, tile); break;
    case LLS_Q6_K: pack_block_row(LLS_Q6_K, row, k, r, tile); break;
    case LLS_F32:
        for (int64_t i = 0; i < k; i++) ((uint32_t *)tile)[i * LLS__TILE_ROWS + r] = ((const uint32_t *)row)[i];
        break;
    default:
        for (int64_t i = 0; i < k; i++) ((uint16_t *)tile)[i * LLS__TILE_ROWS + r] = ((const uint16_t *)row)[i];
        break;
    }
}

typedef struct job {
    const lls_tensor *weights;
    lls_dtype dtype;
    int64_t k, tile_bytes;
    int32_t num_weights;
    uint8_t *out;
} job;

// Row n of the stack of weights; NULL past the last.
static const void *stacked_row(const job *j, int64_t n) {
    for (int32_t i = 0; i < j->num_weights; i++) {
        const lls_tensor *w = &j->weights[i];
        if (n < w->shape[0]) {
            int64_t elems = n * (w->shape[0] > 1 ? w->stride[0] : 0);
            return (const uint8_t *)w->data + elems / lls_dtype_block_elems(j->dtype) * lls_dtype_block_bytes(j->dtype);
        }
        n -= w->shape[0];
    }
    return NULL;
}

static void pack_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    for (int64_t t = begin; t < end; t++) {
        uint8_t *tile = j->out + t * j->tile_bytes;
        memset(tile, 0, (size_t)j->tile_bytes);
        for (int r = 0; r < LLS__TILE_ROWS; r++) {
            const void *row = stacked_row(j, t * LLS__TILE_ROWS + r);
            if (row) pack_row(j->dtype, row, j->k, r, tile);
        }
    }
}

// Checks the weights; their stacked shape into n and k.
static lls_status check_weights(const lls_ctx *ctx, const lls_tensor *weights, int32_t num_weights, int64_t *n,
                                int64_t *k) {
    if (!ctx) return lls__fail(LLS_ERR_ARGUMENT, "%s: ctx is NULL", op);
    if (ctx->device.type != LLS_CPU) {
        return lls__fail(LLS_ERR_DEVICE, "%s: the context is on %s, must be on the CPU", op,
                         lls__device_name(ctx->device.type));
    }
    if (!weights || num_weights < 1) {
        return lls__fail(LLS_ERR_ARGUMENT, "%s: num_weights is %d, must be >= 1", op, weights ? num_weights : 0);
    }
    *n = 0;
    for (int32_t i = 0; i < num_weights; i++) {
        const lls_tensor *w = &weights[i];
        LLS_TRY(lls__check_tensor(ctx, op, "weights[i]", w, 2, 2, LLS__FLOATS | LLS__BLOCKS));
        LLS_TRY(lls__check_inner_contiguous(op, "weights[i]", w));
        LLS_TRY(lls__check_same_dtype(op, "weights[i]", w, "weights[0]", &weights[0]));
        LLS_TRY(lls__check_dim(op, "weights[i]", w, 1, weights[0].shape[1], "weights[0].shape[1]"));
        if (w->shape[0] > INT32_MAX - *n) {
            return lls__fail(LLS_ERR_SHAPE, "%s: the weights have more than 2^31 - 1 rows", op);
        }
        *n += w->shape[0];
    }
    *k = weights[0].shape[1];
    if (*k > INT32_MAX) {
        return lls__fail(LLS_ERR_SHAPE, "%s: weights[0].shape[1] is %lld, must be below 2^31", op, (long long)*k);
    }
    return LLS_OK;
}

lls_status lls_linear_packed_bytes(lls_ctx *ctx, const lls_tensor *weights, int32_t num_weights, size_t *bytes) {
    int64_t n, k;
    if (!bytes) return lls__fail(LLS_ERR_ARGUMENT, "%s: bytes is NULL", op);
    LLS_TRY(check_weights(ctx, weights, num_weights, &n, &k));
    int64_t total;
    if (__builtin_mul_overflow(lls__tile_count(n), lls__tile_bytes(weights[0].dtype, k), &total)) {
        return lls__fail(LLS_ERR_SHAPE, "%s: the packed weight would exceed 2^63 bytes", op);
    }
    *bytes = (size_t)total;
    return LLS_OK;
}

lls_status lls_linear_pack(lls_ctx *ctx, const lls_tensor *weights, int32_t num_weights, void *buffer, size_t bytes,
                           lls_tensor *out) {
    int64_t n, k;
    size_t need;
    LLS_TRY(lls_linear_packed_bytes(ctx, weights, num_weights, &need));
    LLS_TRY(check_weights(ctx, weights, num_weights, &n, &k));
    if (!out) return lls__fail(LLS_ERR_ARGUMENT, "%s: out is NULL", op);
    if (bytes < need) {
        return lls__fail(LLS_ERR_ARGUMENT, "%s: bytes is %zu, must be at least %zu (lls_linear_packed_bytes)", op,
                         bytes, need);
    }
    if (need && (!buffer || (uintptr_t)buffer % LLS__TILE_ALIGN)) {
        return lls__fail(LLS_ERR_STRIDE, "%s: buffer is %p, must be aligned to %d bytes", op, buffer, LLS__TILE_ALIGN);
    }
    for (int32_t i = 0; i < num_weights; i++) {
        const char *begin = weights[i].data, *end = begin + lls__tensor_extent(&weights[i]);
        if (begin < (char *)buffer + need && (char *)buffer < end) {
            return lls__fail(LLS_ERR_ALIAS, "%s: buffer at %p overlaps weights[%d] at %p, must be disjoint", op, buffer,
                             i, weights[i].data);
        }
    }
    job j = {.weights = weights,
             .dtype = weights[0].dtype,
             .k = k,
             .tile_bytes = lls__tile_bytes(weights[0].dtype, k),
             .num_weights = num_weights,
             .out = buffer};
    if (need) lls__parallel(ctx, lls__tile_count(n), 1, pack_tiles, &j);
    lls_tensor packed = lls_tensor_make(buffer, j.dtype, ctx->device, 2, (int64_t[]){n, k});
    packed.layout = LLS_PACKED;
    *out = packed;
    return LLS_OK;
}
