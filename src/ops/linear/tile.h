/* The packed weight layout, one for every SIMD level. A tile is 16 rows of the weight, so that a vector register holds
 * one dword or one float a row and a matrix product needs no horizontal sums. Rows past n are zeros.
 *
 * Plain dtypes, [k][16]:  row 0 k 0, row 1 k 0, ... row 15 k 0, row 0 k 1, ...
 *
 * Block types lie in up to three planes one after the other, each in the order of k, padded to 64 bytes together:
 *   codes   a group of 32 weights a row: 4-byte pieces, [piece][16 rows][4].
 *           8 bits: 8 pieces, piece c is k = 4c .. 4c+3.
 *           Fewer bits: 4 pieces of nibbles, the low ones k = 4c .. 4c+3 and the high ones k = 16+4c .. 16+4c+3
 *           (as in GGUF's byte pairs).
 *   high    5 bits: [16 rows][4] a group; bit c of byte j is bit 4 of code 4c+j.
 *           6 bits: [2][16 rows][4] a group; bits 2c, 2c+1 of byte j in piece g are bits 4, 5 of code 16g+4c+j.
 *   scales  a record for each block of the type (32 or 256 weights), each field for 16 rows:
 *             Q4_0 Q5_0 Q8_0   f16 d
 *             Q4_1 Q5_1        f16 d, f16 min
 *             Q4_K Q5_K        f16 d, f16 dmin, u8 scale[8], u8 min[8]   (the 6-bit numbers as bytes)
 *             Q6_K             f16 d, i8 scale[16]
 * Every value of the file is kept exactly. The size is the file's, plus 2.8 % for Q4_K and 2.3 % for Q5_K, plus
 * padding. */
#ifndef LLS_OPS_LINEAR_TILE_H
#define LLS_OPS_LINEAR_TILE_H

#include "ops/linear/blocks.h"

enum { LLS__TILE_ROWS = 16, LLS__TILE_ALIGN = 64, LLS__GROUP = 32 };

LLS_BLOCK_FN bool lls__is_block_type(lls_dtype dtype) {
    return dtype >= LLS_Q4_0;
}

/* Whether the type has a min of its own: weight = scale * code + min. Otherwise weight = scale * (code - zero). */
LLS_BLOCK_FN bool lls__tile_has_min(lls_dtype dtype) {
    return lls__block_zero(dtype) == 0;
}

LLS_BLOCK_FN int lls__tile_code_bits(lls_dtype dtype) {
    switch (dtype) {
    case LLS_Q5_0:
    case LLS_Q5_1:
    case LLS_Q5_K: return 5;
    case LLS_Q6_K: return 6;
    case LLS_Q8_0: return 8;
    default: return 4;
    }
}

/* Bytes of each plane: codes and high bits for a group of 32 weights a row, scales for a block of the type. */
LLS_BLOCK_FN int lls__tile_code_bytes(lls_dtype dtype) {
    return LLS__TILE_ROWS * (lls__tile_code_bits(dtype) == 8 ? 32 : 16);
}

LLS_BLOCK_FN int lls__tile_high_bytes(lls_dtype dtype) {
    int bits = lls__tile_code_bits(dtype);
    return LLS__TILE_ROWS * (bits == 5 ? 4 : bits == 6 ? 8 : 0);
}

LLS_BLOCK_FN int lls__tile_scale_bytes(lls_dtype dtype) {
    switch (dtype) {
    case LLS_Q4_1:
    case LLS_Q5_1: return LLS__TILE_ROWS * 4;
    case LLS_Q4_K:
    case LLS_Q5_K: return LLS__TILE_ROWS * (4 + 8 + 8);
    case LLS_Q6_K: return LLS__TILE_ROWS * (2 + 16);
    default: return LLS__TILE_ROWS * 2;
    }
}

/* Where the planes of a tile begin. */
typedef struct lls__planes {
    int64_t high, scales, end;
} lls__planes;

LLS_BLOCK_FN lls__planes lls__tile_planes(lls_dtype dtype, int64_t k) {
    int64_t groups = k / LLS__GROUP;
    lls__planes p;
    p.high = groups * lls__tile_code_bytes(dtype);
    p.scales = p.high + groups * lls__tile_high_bytes(dtype);
    p.end = p.scales + k / lls__block_elems(dtype) * lls__tile_scale_bytes(dtype);
    return p;
}

/* Bytes of a tile, padding included. */
static inline int64_t lls__tile_bytes(lls_dtype dtype, int64_t k) {
    int64_t bytes = lls__is_block_type(dtype) ? lls__tile_planes(dtype, k).end
                                              : k * LLS__TILE_ROWS * lls_dtype_block_bytes(dtype);
    return (bytes + LLS__TILE_ALIGN - 1) / LLS__TILE_ALIGN * LLS__TILE_ALIGN;
}

static inline int64_t lls__tile_count(int64_t n) {
    return (n + LLS__TILE_ROWS - 1) / LLS__TILE_ROWS;
}

#endif
