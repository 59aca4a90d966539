/* GGUF's block-quantised weight types, decoded one weight at a time and without rounding. Read by gcc and nvcc.
 *
 * Every type is  weight[k] = scale * code + min  with an unsigned integer code of 4, 5, 6 or 8 bits:
 *   Q4_0 Q5_0 Q8_0        f16 scale a block of 32;            min = -zero * scale with zero = 8, 16, 128
 *   Q4_1 Q5_1             f16 scale and f16 min a block of 32
 *   Q4_K Q5_K             256 weights a block, in groups of 32: scale = d * 6-bit integer, min = -dmin * 6-bit integer
 *   Q6_K                  256 weights a block, in groups of 16: scale = d * 8-bit integer, min = -32 * scale
 * The products have at most 24 significant bits, so fp32 holds scale, min and scale * code exactly; their sum rounds
 * once.
 * Source: the block structs of the GGUF specification (ggml-common.h). Rows are byte-aligned. */
#ifndef LLS_OPS_LINEAR_BLOCKS_H
#define LLS_OPS_LINEAR_BLOCKS_H

#include <stdint.h>

#include "llmspeed/core.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define LLS_BLOCK_FN static __host__ __device__ __forceinline__
#else
#include "cpu/half.h"
#define LLS_BLOCK_FN static inline __attribute__((always_inline, unused))
#endif

typedef struct lls__block_scale {
    float scale, min;
} lls__block_scale;

LLS_BLOCK_FN uint16_t lls__block_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

LLS_BLOCK_FN float lls__block_f16(const uint8_t *p) {
#ifdef __CUDACC__
    __half_raw raw;
    raw.x = lls__block_u16(p);
    return __half2float(raw);
#else
    return lls__f16_to_f32(lls__block_u16(p));
#endif
}

/* Weights a block, and bytes a block: lls_dtype_block_elems and _bytes, for device code too. */
LLS_BLOCK_FN int lls__block_elems(lls_dtype dtype) {
    return dtype == LLS_Q4_K || dtype == LLS_Q5_K || dtype == LLS_Q6_K ? 256 : 32;
}

LLS_BLOCK_FN int lls__block_bytes(lls_dtype dtype) {
    switch (dtype) {
    case LLS_Q4_0: return 2 + 16;
    case LLS_Q4_1: return 4 + 16;
    case LLS_Q5_0: return 2 + 4 + 16;
    case LLS_Q5_1: return 4 + 4 + 16;
    case LLS_Q8_0: return 2 + 32;
    case LLS_Q4_K: return 4 + 12 + 128;
    case LLS_Q5_K: return 4 + 12 + 32 + 128;
    case LLS_Q6_K: return 128 + 64 + 16 + 2;
    default: return 0;
    }
}

/* The code that stands for weight 0 where the type has one scale and no min of its own; 0 for types with a min. */
LLS_BLOCK_FN int lls__block_zero(lls_dtype dtype) {
    switch (dtype) {
    case LLS_Q4_0: return 8;
    case LLS_Q5_0: return 16;
    case LLS_Q6_K: return 32;
    case LLS_Q8_0: return 128;
    default: return 0;
    }
}

/* Q4_K and Q5_K: the 6-bit scale and min of group j in [0, 8). Groups 0 to 3 have bytes j and j + 4 of `packed` [12] to
 * themselves, but for the top two bits, which belong to groups 4 to 7; these keep their low nibbles in byte j + 4. */
LLS_BLOCK_FN int lls__block_k_scale(const uint8_t *packed, int j) {
    return j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
}

LLS_BLOCK_FN int lls__block_k_min(const uint8_t *packed, int j) {
    return j < 4 ? packed[j + 4] & 63 : packed[j + 4] >> 4 | packed[j] >> 6 << 4;
}

/* Code of weight i of the block at p. */
LLS_BLOCK_FN int lls__block_code(lls_dtype dtype, const uint8_t *p, int i) {
    switch (dtype) {
    case LLS_Q4_0:
    case LLS_Q4_1: // nibbles: byte j holds weights j (low) and j + 16 (high)
        return (dtype == LLS_Q4_0 ? p + 2 : p + 4)[i % 16] >> (i / 16 * 4) & 15;
    case LLS_Q5_0:
    case LLS_Q5_1: { // the same, and bit i of a 32-bit word is the fifth bit of weight i
        const uint8_t *high = dtype == LLS_Q5_0 ? p + 2 : p + 4;
        return (high[4 + i % 16] >> (i / 16 * 4) & 15) | (high[i / 8] >> i % 8 & 1) << 4;
    }
    case LLS_Q8_0: return (p + 2)[i] ^ 128;
    case LLS_Q4_K: // 32 bytes hold two groups of 32: low nibbles the first, high nibbles the second
        return (p + 16)[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
    case LLS_Q5_K: // the same, and bit g of byte i % 32 is the fifth bit in group g
        return ((p + 48)[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15) | ((p + 16)[i % 32] >> i / 32 & 1) << 4;
    case LLS_Q6_K: { // halves of 128: four groups of 32 share 64 nibble bytes and 32 bytes of upper bit pairs
        int half = i / 128, group = i / 32 % 4, lane = i % 32;
        int low = p[half * 64 + group % 2 * 32 + lane] >> (group / 2 * 4) & 15;
        return low | ((p + 128)[half * 32 + lane] >> group * 2 & 3) << 4;
    }
    default: return 0;
    }
}

/* Scale and min of weight i of the block at p. */
LLS_BLOCK_FN lls__block_scale lls__block_scale_at(lls_dtype dtype, const uint8_t *p, int i) {
    lls__block_scale s;
    switch (dtype) {
    case LLS_Q4_1:
    case LLS_Q5_1:
        s.scale = lls__block_f16(p);
        s.min = lls__block_f16(p + 2);
        return s;
    case LLS_Q4_K:
    case LLS_Q5_K:
        s.scale = lls__block_f16(p) * (float)lls__block_k_scale(p + 4, i / 32);
        s.min = -lls__block_f16(p + 2) * (float)lls__block_k_min(p + 4, i / 32);
        return s;
    case LLS_Q6_K:
        s.scale = lls__block_f16(p + 208) * (float)(int8_t)p[192 + i / 16];
        s.min = -32.0f * s.scale;
        return s;
    default:
        s.scale = lls__block_f16(p);
        s.min = -(float)lls__block_zero(dtype) * s.scale;
        return s;
    }
}

/* Weight k of a row. */
LLS_BLOCK_FN float lls__block_weight(lls_dtype dtype, const uint8_t *row, int64_t k) {
    const uint8_t *block = row + k / lls__block_elems(dtype) * lls__block_bytes(dtype);
    int i = (int)(k % lls__block_elems(dtype));
    lls__block_scale s = lls__block_scale_at(dtype, block, i);
    return s.scale * (float)lls__block_code(dtype, block, i) + s.min;
}

#endif
