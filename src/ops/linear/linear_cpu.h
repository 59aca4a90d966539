/* Between the CPU files of linear, each compiled once a SIMD level. */
#ifndef LLS_OPS_LINEAR_CPU_H
#define LLS_OPS_LINEAR_CPU_H

#include "core/ctx.h"
#include "cpu/simd.h"
#include "llmspeed/ops.h"
#include "ops/linear/tile.h"

/* Tokens a kernel call at most: accumulators, the unpacked codes and temporaries fill the register file (32 of AVX-512,
 * 16 elsewhere). */
#if defined(__AVX512F__)
enum { MAX_TOKENS = 16 };
#else
enum { MAX_TOKENS = 4 };
#endif

/* Rows m of x are cut into token tiles of the widths for which kernels exist: 16s, then what is left in powers of two.
 * The cut depends on m alone, and each output is computed by the same operations in the same order in a tile of any
 * width, so a row's result does not depend on its batch. */
static inline int lls__token_width(int64_t tokens_left) {
    int width = MAX_TOKENS;
    while (width > tokens_left) width /= 2;
    return width;
}

/* out[tile][token][16] = rows of the weight times the activations of one token tile. `tiles` are tile_bytes apart. */
typedef void (*lls__tile_kernel)(const uint8_t *tiles, int64_t tile_bytes, int64_t k, const uint8_t *act, float *out);

/* One way of computing with one type of weight. */
typedef struct lls__tile_math {
    lls_dtype weight;
    int32_t act_elems, act_bytes; /* a token's activations take act_bytes for every act_elems of k */
    /* Tokens [m, m + width) of x into one token tile. */
    void (*prepare)(const lls_linear_args *args, int64_t m, int width, uint8_t *act);
    lls__tile_kernel kernel[6]; /* see LLS_FOR_TILES */
} lls__tile_math;

/* Every kernel of a type: one tile times 1, 2, 4, 8, 16 tokens, and two tiles times one token (two streams of memory,
 * two chains of adds). */
enum { PAIR_KERNEL = 5 };
#if defined(__AVX512F__)
#define LLS_FOR_WIDE_TILES(TILE, name, dtype) TILE(name##_8, dtype, 1, 8) TILE(name##_16, dtype, 1, 16)
#define LLS_WIDE_TILE_NAMES(name) name##_8, name##_16
#else
#define LLS_FOR_WIDE_TILES(TILE, name, dtype)
#define LLS_WIDE_TILE_NAMES(name) NULL, NULL
#endif
#define LLS_FOR_TILES(TILE, name, dtype) \
    TILE(name##_1, dtype, 1, 1)          \
    TILE(name##_2, dtype, 1, 2)          \
    TILE(name##_4, dtype, 1, 4)          \
    LLS_FOR_WIDE_TILES(TILE, name, dtype) TILE(name##_pair, dtype, 2, 1)
#define LLS_TILE_NAMES(name) \
    { name##_1, name##_2, name##_4, LLS_WIDE_TILE_NAMES(name), name##_pair }

/* int8 activations (block types), fp32 activations (any type), for this level. */
const lls__tile_math *LLS_CPU(lls__tile_math_i8)(lls_dtype weight);
const lls__tile_math *LLS_CPU(lls__tile_math_f32)(lls_dtype weight);

static inline const lls__tile_math *lls__tile_math_find(const lls__tile_math *const *all, lls_dtype weight) {
    while (*all && (*all)->weight != weight) all++;
    return *all;
}

/* Weights packed by lls_linear_pack; weights as they lie in a file. */
lls_status LLS_CPU(lls__linear_packed)(lls_ctx *ctx, const lls_linear_args *args);
lls_status LLS_CPU(lls__linear_rows)(lls_ctx *ctx, const lls_linear_args *args);

/* Kernels prefetch the weights this far ahead, past the page in which the hardware prefetcher stops. Reading past the
 * end this way is harmless. */
enum { PREFETCH = 4096, LINE = 64 };

/* Weight codes, 4 a lane: register c of 8 holds weights 4c .. 4c+3 of a group of 32 for rows [lane, lane + LLS_VF) of a
 * tile. */
LLS_INLINE void lls__load_codes(const lls_dtype dtype, const uint8_t *codes, const uint8_t *high, int lane, vi out[8]) {
    const int bits = lls__tile_code_bits(dtype);
    const vi nibble = vi_set1(0x0f0f0f0f);
    codes += lane * 4, high += lane * 4;
    if (bits == 8) {
#pragma GCC unroll 8
        for (int c = 0; c < 8; c++) memcpy(&out[c], codes + c * 64, sizeof(vi));
        return;
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        vi pair;
        memcpy(&pair, codes + c * 64, sizeof pair);
        out[c] = pair & nibble;
        out[c + 4] = pair >> 4 & nibble;
    }
    if (bits == 5) {
        vi h;
        memcpy(&h, high, sizeof h);
        const vi bit = vi_set1(0x10101010);
#pragma GCC unroll 8
        for (int c = 0; c < 8; c++) out[c] |= (c < 4 ? h << (4 - c) : h >> (c - 4)) & bit;
    }
    if (bits == 6) {
        const vi pair = vi_set1(0x30303030);
#pragma GCC unroll 8
        for (int c = 0; c < 8; c++) {
            vi h;
            memcpy(&h, high + c / 4 * 64, sizeof h);
            out[c] |= (c % 4 < 2 ? h << (4 - 2 * (c % 4)) : h >> (2 * (c % 4) - 4)) & pair;
        }
    }
}

/* Scale and min of group g for the same rows. Q6_K has two scales a group, for weights 0 .. 15 and 16 .. 31; `min` is
 * set only for types that have one. */
typedef struct lls__group_scale {
    vf scale[2], min;
} lls__group_scale;

LLS_INLINE vf lls__load_u8(const uint8_t *p) {
    typedef uint8_t bytes __attribute__((vector_size(LLS_VF)));
    bytes b;
    memcpy(&b, p, sizeof b);
    return __builtin_convertvector(__builtin_convertvector(b, vi), vf);
}

LLS_INLINE vf lls__load_i8(const uint8_t *p) {
    typedef int8_t bytes __attribute__((vector_size(LLS_VF)));
    bytes b;
    memcpy(&b, p, sizeof b);
    return __builtin_convertvector(__builtin_convertvector(b, vi), vf);
}

LLS_INLINE lls__group_scale lls__load_scale(const lls_dtype dtype, const uint8_t *scales, int64_t g, int lane) {
    const int groups = lls__block_elems(dtype) / LLS__GROUP;
    const uint8_t *record = scales + g / groups * lls__tile_scale_bytes(dtype);
    const int64_t sub = g % groups;
    lls__group_scale s = {.scale = {vf_load_f16((const uint16_t *)record + lane)}};
    if (lls__tile_has_min(dtype)) s.min = vf_load_f16((const uint16_t *)record + LLS__TILE_ROWS + lane);
    if (dtype == LLS_Q4_K || dtype == LLS_Q5_K) {
        s.scale[0] *= lls__load_u8(record + LLS__TILE_ROWS * (4 + sub) + lane);
        s.min *= -lls__load_u8(record + LLS__TILE_ROWS * (12 + sub) + lane);
    }
    if (dtype == LLS_Q6_K) {
        vf d = s.scale[0];
        s.scale[0] = d * lls__load_i8(record + LLS__TILE_ROWS * (2 + 2 * sub) + lane);
        s.scale[1] = d * lls__load_i8(record + LLS__TILE_ROWS * (3 + 2 * sub) + lane);
    }
    return s;
}

#endif
