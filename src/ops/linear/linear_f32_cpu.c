/* Weights of any type times fp32 activations. Block weights become floats in registers: scale * code + min, which is
 * the file's value with one rounding (none for types without a min of their own). Each output is one chain of fused
 * multiply-adds in the order of k. */
#include "ops/linear/linear_cpu.h"

/* ---- Activations. A token tile of T tokens: f32 [k][T]. ---- */

static void prepare(const lls_linear_args *args, int64_t m, int width, uint8_t *act) {
    const lls_tensor *x = args->x;
    for (int t = 0; t < width; t++) {
        float *out = (float *)act + t;
        int64_t row = (m + t) * x->stride[0], k = x->shape[1];
        for (int64_t i = 0; i < k; i += LLS_VF) {
            int64_t n = k - i < LLS_VF ? k - i : LLS_VF;
            vf v = n == LLS_VF ? vf_load(x->dtype, x->data, row + i) : vf_load_n(x->dtype, x->data, row + i, n);
            for (int64_t j = 0; j < n; j++) out[(i + j) * width] = v[j];
        }
    }
}

/* ---- Tiles ---- */

/* acc[t] += w * x[t] */
LLS_INLINE void multiply(const int tokens, vf w, const float *x, vf *acc) {
#pragma GCC unroll 16
    for (int t = 0; t < tokens; t++) acc[t] = vf_fma(w, vf_set1(x[t]), acc[t]);
}

LLS_INLINE void group_f32(const lls_dtype dtype, const int tokens, const uint8_t *tile, const lls__planes *planes,
                          int64_t g, int lane, const float *x, vf *acc) {
    const uint8_t *codes = tile + g * lls__tile_code_bytes(dtype),
                  *high = tile + planes->high + g * lls__tile_high_bytes(dtype);
    vi code[8];
    lls__load_codes(dtype, codes, high, lane, code);
    for (int i = 0; i < lls__tile_code_bytes(dtype); i += LINE) __builtin_prefetch(codes + PREFETCH + i);
    lls__group_scale s = lls__load_scale(dtype, tile + planes->scales, g, lane);
    for (int c = 0; c < 8; c++) {
        const vf scale = dtype == LLS_Q6_K && c >= 4 ? s.scale[1] : s.scale[0];
        const vf min = lls__tile_has_min(dtype) ? s.min : scale * vf_set1(-(float)lls__block_zero(dtype));
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            vf w = vf_fma(__builtin_convertvector(code[c] >> 8 * j & 255, vf), scale, min);
            multiply(tokens, w, x + (4 * c + j) * tokens, acc);
        }
    }
}

LLS_INLINE void tile_f32(const lls_dtype dtype, const int tiles, const int tokens, const uint8_t *base,
                         int64_t tile_bytes, int64_t k, const uint8_t *act, float *out) {
    const float *x = (const float *)act;
    for (int lane = 0; lane < LLS__TILE_ROWS; lane += LLS_VF) {
        vf acc[2][MAX_TOKENS];
#pragma GCC unroll 16
        for (int i = 0; i < tiles * tokens; i++) acc[i / tokens][i % tokens] = vf_set1(0);
        if (lls__is_block_type(dtype)) {
            const lls__planes planes = lls__tile_planes(dtype, k);
            for (int64_t g = 0; g < k / LLS__GROUP; g++) {
#pragma GCC unroll 2
                for (int i = 0; i < tiles; i++) {
                    group_f32(dtype, tokens, base + i * tile_bytes, &planes, g, lane, x + g * LLS__GROUP * tokens,
                              acc[i]);
                }
            }
        } else {
            for (int64_t i = 0; i < k; i++) {
#pragma GCC unroll 2
                for (int n = 0; n < tiles; n++) {
                    const uint8_t *tile = base + n * tile_bytes;
                    __builtin_prefetch(tile + i * LLS__TILE_ROWS * (dtype == LLS_F32 ? 4 : 2) + PREFETCH);
                    multiply(tokens, vf_load(dtype, tile, i * LLS__TILE_ROWS + lane), x + i * tokens, acc[n]);
                }
            }
        }
#pragma GCC unroll 16
        for (int i = 0; i < tiles * tokens; i++) {
            vf_store_f32(out + i * LLS__TILE_ROWS + lane, acc[i / tokens][i % tokens]);
        }
    }
}

#define TILE(name, dtype, tiles, tokens)                                                                   \
    static void name(const uint8_t *base, int64_t tile_bytes, int64_t k, const uint8_t *act, float *out) { \
        tile_f32(dtype, tiles, tokens, base, tile_bytes, k, act, out);                                     \
    }
#define MATH(name, dtype)                \
    LLS_FOR_TILES(TILE, name, dtype)     \
    static const lls__tile_math name = { \
        .weight = dtype, .act_elems = 1, .act_bytes = 4, .prepare = prepare, .kernel = LLS_TILE_NAMES(name)};

MATH(f32, LLS_F32)
MATH(f16, LLS_F16)
MATH(bf16, LLS_BF16)
MATH(q4_0, LLS_Q4_0)
MATH(q4_1, LLS_Q4_1)
MATH(q5_0, LLS_Q5_0)
MATH(q5_1, LLS_Q5_1)
MATH(q8_0, LLS_Q8_0)
MATH(q4_k, LLS_Q4_K)
MATH(q5_k, LLS_Q5_K)
MATH(q6_k, LLS_Q6_K)

const lls__tile_math *LLS_CPU(lls__tile_math_f32)(lls_dtype weight) {
    static const lls__tile_math *const all[] = {&f32,  &f16,  &bf16, &q4_0, &q4_1, &q5_0,
                                                &q5_1, &q8_0, &q4_k, &q5_k, &q6_k, NULL};
    return lls__tile_math_find(all, weight);
}
