/* Block weights times integer activations.
 *
 * x is rounded to 15-bit integers q in groups of 32 with one fp32 scale each, and q is kept as two int8 planes:
 * q = 128 high + low with high in -127 .. 127 and low in -64 .. 63. One plane alone (what int8 activations usually
 * mean) costs a small model 1e-3 to 1e-2 of its logits' energy; with two, greedy text is that of fp32, for twice the
 * multiplications, which a decode step has to spare since it waits for memory.
 *
 * A weight is scale * code + min, so a group of 32 contributes
 *     scale * dx * sum(code * q) + min * dx * sum(q),
 * or, for types whose min is -zero * scale, scale * dx * (sum(code * q) - zero * sum(q)): the bracket is an integer,
 * and its second half is where the integer accumulator starts. One instruction (vpdpbusd) multiplies 4 codes of 16 rows
 * by 4 broadcast activations; per group and token that makes 8 of them a plane beside 3 or 4 of fp32. One token reads
 * weights at memory speed; 16 tokens share each unpacked group.
 *
 * The sums of a group are exact integers below 2^28, and groups are added in the order of k: every level with FMA gives
 * the same bits. */
#include <float.h>

#include "ops/linear/linear_cpu.h"

/* ---- Activations ----
 * A token tile of T tokens, per group of 32:  i8 high[T][32];  i8 low[T][32];  f32 dx[T];  offset[T] (f32 or i32; two
 * for Q6_K). */

enum { PLANE_BITS = 7, PLANES = 2, Q_MAX = 127 << PLANE_BITS };

LLS_INLINE int offsets_per_group(const lls_dtype weight) {
    return weight == LLS_Q6_K ? 2 : 1;
}

LLS_INLINE int group_bytes(const lls_dtype weight) {
    return PLANES * LLS__GROUP + 4 + 4 * offsets_per_group(weight);
}

static inline int32_t lanes_max(vi v) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_epi32((__m512i)v);
#else
    int32_t lanes[LLS_VF], best;
    memcpy(lanes, &v, sizeof v);
    best = lanes[0];
    for (int i = 1; i < LLS_VF; i++) best = lanes[i] > best ? lanes[i] : best;
    return best;
#endif
}

static inline int32_t lanes_sum(vi v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_epi32((__m512i)v);
#else
    int32_t lanes[LLS_VF], sum = 0;
    memcpy(lanes, &v, sizeof v);
    for (int i = 0; i < LLS_VF; i++) sum += lanes[i];
    return sum;
#endif
}

/* Rounds 32 elements to q = nearest(x * Q_MAX / max|x|), in two planes; returns max|x| / Q_MAX, and the sums of q over
 * both halves in sum[2]. Groups below 2^-110 count as zero (Q_MAX / max would overflow). A group that holds infinity or
 * NaN cannot be rounded: its scale is NaN. */
LLS_INLINE float quantise_group(lls_dtype dtype, const void *x, int64_t i, int8_t *high, int8_t *low, int32_t sum[2]) {
    enum { VECTORS = LLS__GROUP / LLS_VF };
    vf v[VECTORS];
    vi bits = vi_set1(0); // as integers, the bits of |x| order like |x|, with NaN above infinity
#pragma GCC unroll 8
    for (int n = 0; n < VECTORS; n++) {
        v[n] = vf_load(dtype, x, i + n * LLS_VF);
        vi magnitude = (vi)v[n] & 0x7fffffff;
        bits = (vi)vf_select(magnitude > bits, (vf)magnitude, (vf)bits);
    }
    const float max = lls__f32_from_bits((uint32_t)lanes_max(bits));
    if (!(max > 0x1p-110f && max <= FLT_MAX)) {
        memset(high, 0, LLS__GROUP);
        memset(low, 0, LLS__GROUP);
        sum[0] = sum[1] = 0;
        return max <= FLT_MAX ? 0.0f : NAN;
    }
    const vf inverse = vf_set1((float)Q_MAX / max);
    const vf magic = vf_set1(0x1.8p23f); // adding it leaves the nearest integer in the low mantissa bits
    typedef int8_t bytes __attribute__((vector_size(LLS_VF)));
    vi half[2] = {vi_set1(0), vi_set1(0)};
#pragma GCC unroll 8
    for (int n = 0; n < VECTORS; n++) {
        vi rounded = (vi)(v[n] * inverse + magic) - (vi)magic;
        vi upper = (rounded + (1 << (PLANE_BITS - 1))) >> PLANE_BITS;
        bytes high_bytes = __builtin_convertvector(upper, bytes);
        bytes low_bytes = __builtin_convertvector(rounded - (upper << PLANE_BITS), bytes);
        memcpy(high + n * LLS_VF, &high_bytes, sizeof high_bytes);
        memcpy(low + n * LLS_VF, &low_bytes, sizeof low_bytes);
        half[n * 2 / VECTORS] += rounded;
    }
    sum[0] = lanes_sum(half[0]), sum[1] = lanes_sum(half[1]);
    return max / (float)Q_MAX;
}

static inline void put_i32(void *p, int32_t value) {
    memcpy(p, &value, sizeof value);
}

LLS_INLINE void prepare_tokens(const lls_dtype weight, const lls_linear_args *args, int64_t m, int width,
                               uint8_t *act) {
    const lls_tensor *x = args->x;
    const int zero = lls__block_zero(weight);
    const int64_t groups = x->shape[1] / LLS__GROUP;
    for (int t = 0; t < width; t++) { // along a row of x, so that it streams; the token tile stays in L1
        for (int64_t g = 0; g < groups; g++) {
            uint8_t *group = act + g * group_bytes(weight) * width;
            float *scale = (float *)(group + PLANES * LLS__GROUP * width) + t, *offset = scale + width;
            int8_t *high = (int8_t *)group + t * LLS__GROUP, *low = high + LLS__GROUP * width;
            int32_t sum[2];
            *scale = quantise_group(x->dtype, x->data, (m + t) * x->stride[0] + g * LLS__GROUP, high, low, sum);
            if (lls__tile_has_min(weight)) {
                *offset = *scale * (float)(sum[0] + sum[1]);
            } else if (offsets_per_group(weight) == 2) {
                put_i32(offset, -zero * sum[0]);
                put_i32(offset + width, -zero * sum[1]);
            } else {
                put_i32(offset, -zero * (sum[0] + sum[1]));
            }
        }
    }
}

/* ---- Integer dot products ---- */

LLS_INLINE vi broadcast4(const int8_t *x) {
    int32_t dword;
    memcpy(&dword, x, 4);
    return vi_set1(dword);
}

/* high[t] += sum over `count` registers c of code[c] . x[t][4c .. 4c+3], for tokens t 32 bytes apart; low[t] likewise
 * from the plane `plane` bytes behind. */
#if defined(__AVX512F__)
LLS_INLINE void dot_planes(const int bits, const int count, const int tokens, const vi *code, const int8_t *x,
                           const int64_t plane, vi *high, vi *low) {
    (void)bits;
#pragma GCC unroll 8
    for (int c = 0; c < count; c++) { // the 2 * tokens chains inside hide each other's latency of 5 cycles
#pragma GCC unroll 4
        for (int t = 0; t < tokens; t++) {
            const int8_t *q = x + t * LLS__GROUP + 4 * c;
            high[t] = (vi)_mm512_dpbusd_epi32((__m512i)high[t], (__m512i)code[c], (__m512i)broadcast4(q));
            low[t] = (vi)_mm512_dpbusd_epi32((__m512i)low[t], (__m512i)code[c], (__m512i)broadcast4(q + plane));
        }
    }
}
#else
/* Without vpdpbusd, products of bytes meet in 16 bits first: two to a lane, as many registers c as fit. 4-bit codes
 * leave room for 8 such sums (8 * 2 * 15 * 127 < 2^15), 5-bit ones for 4, 6-bit ones for 2. 8-bit codes are taken as
 * signed numbers, code - 128: one sum is at most 2 * 128 * 127 < 2^15. Their zero point is then off already (see
 * `dot`). */
typedef int16_t vs __attribute__((vector_size(LLS_VF * 4)));

#if defined(__AVX2__)
// vpmaddubsw takes unsigned times signed: |w| * (x with w's sign)
LLS_INLINE vs sum_pairs(const int bits, vi code, vi x) {
    __m256i w = (__m256i)code, v = (__m256i)x;
    if (bits == 8) {
        w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
        v = _mm256_sign_epi8(v, w);
        w = _mm256_abs_epi8(w);
    }
    return (vs)_mm256_maddubs_epi16(w, v);
}

LLS_INLINE vi sum_halves(vs v) {
    return (vi)_mm256_madd_epi16((__m256i)v, _mm256_set1_epi16(1));
}
#else
LLS_INLINE vs sum_pairs(const int bits, vi code, vi x) {
    vs w = (vs)(bits == 8 ? code ^ (int32_t)0x80808080 : code), v = (vs)x;
    return (w << 8 >> 8) * (v << 8 >> 8) + (w >> 8) * (v >> 8); // even bytes and odd bytes, sign-extended
}

LLS_INLINE vi sum_halves(vs v) {
    return ((vi)v << 16 >> 16) + ((vi)v >> 16);
}
#endif

LLS_INLINE vi dot_plane(const int bits, const int count, const vi *code, const int8_t *x) {
    const int run = bits == 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
    vi total = vi_set1(0);
#pragma GCC unroll 8
    for (int c = 0; c < count; c += run) {
        vs sum = {0};
#pragma GCC unroll 8
        for (int i = c; i < c + run; i++) sum += sum_pairs(bits, code[i], broadcast4(x + 4 * i));
        total += sum_halves(sum);
    }
    return total;
}

LLS_INLINE void dot_planes(const int bits, const int count, const int tokens, const vi *code, const int8_t *x,
                           const int64_t plane, vi *high, vi *low) {
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++) {
        high[t] += dot_plane(bits, count, code, x + t * LLS__GROUP);
        low[t] += dot_plane(bits, count, code, x + t * LLS__GROUP + plane);
    }
}
#endif

/* a[t] = start[t] + code . (128 high[t] + low[t]), where start is -zero * sum(q); signed codes need none. */
LLS_INLINE void dot(const int bits, const int count, const int tokens, const vi *code, const int8_t *x,
                    const int64_t plane, const vi *start, vi *a) {
#if defined(__AVX512F__)
    const bool signed_codes = false;
#else
    const bool signed_codes = bits == 8;
#endif
    vi high[4], low[4];
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++) high[t] = vi_set1(0), low[t] = signed_codes ? vi_set1(0) : start[t];
    dot_planes(bits, count, tokens, code, x, plane, high, low);
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++) a[t] = (high[t] << PLANE_BITS) + low[t];
}

/* ---- Tiles ---- */

LLS_INLINE void prefetch_group(const lls_dtype dtype, const uint8_t *codes, const uint8_t *high,
                               const uint8_t *scales) {
    const int code_bytes = lls__tile_code_bytes(dtype), high_bytes = lls__tile_high_bytes(dtype);
    for (int i = 0; i < code_bytes; i += LINE) __builtin_prefetch(codes + PREFETCH + i);
    for (int i = 0; i < high_bytes; i += LINE) __builtin_prefetch(high + PREFETCH + i);
    __builtin_prefetch(scales + PREFETCH);
}

LLS_INLINE void tile_i8(const lls_dtype dtype, const int tiles, const int tokens, const uint8_t *base,
                        int64_t tile_bytes, int64_t k, const uint8_t *act, float *out) {
    const lls__planes planes = lls__tile_planes(dtype, k);
    const int64_t plane = (int64_t)LLS__GROUP * tokens;
    const int together = tokens < 4 ? tokens : 4, bits = lls__tile_code_bits(dtype);
    const int code_bytes = lls__tile_code_bytes(dtype), high_bytes = lls__tile_high_bytes(dtype);
    const int scale_bytes = lls__tile_scale_bytes(dtype) / (lls__block_elems(dtype) / LLS__GROUP);
    for (int lane = 0; lane < LLS__TILE_ROWS; lane += LLS_VF) {
        vf acc[2][MAX_TOKENS];
#pragma GCC unroll 16
        for (int i = 0; i < tiles * tokens; i++) acc[i / tokens][i % tokens] = vf_set1(0);
        for (int64_t g = 0; g < k / LLS__GROUP; g++) {
            const int8_t *q = (const int8_t *)act + g * group_bytes(dtype) * tokens;
            const float *dx = (const float *)(q + PLANES * LLS__GROUP * tokens), *offset = dx + tokens;
#pragma GCC unroll 2
            for (int i = 0; i < tiles; i++) {
                const uint8_t *codes = base + i * tile_bytes + g * code_bytes;
                const uint8_t *high = base + i * tile_bytes + planes.high + g * high_bytes;
                const uint8_t *scales = base + i * tile_bytes + planes.scales;
                prefetch_group(dtype, codes, high, scales + g * scale_bytes);
                vi code[8];
                lls__load_codes(dtype, codes, high, lane, code);
                const lls__group_scale s = lls__load_scale(dtype, scales, g, lane);
#pragma GCC unroll 4
                for (int t0 = 0; t0 < tokens; t0 += together) {
                    vi start[2][4], a[2][4];
#pragma GCC unroll 4
                    for (int t = 0; t < together; t++) {
                        const int8_t *first = (const int8_t *)(offset + t0 + t);
                        start[0][t] = lls__tile_has_min(dtype) ? vi_set1(0) : broadcast4(first);
                        if (dtype == LLS_Q6_K) start[1][t] = broadcast4(first + 4 * tokens);
                    }
                    const int8_t *x = q + t0 * LLS__GROUP;
                    if (dtype == LLS_Q6_K) {
                        dot(bits, 4, together, code, x, plane, start[0], a[0]);
                        dot(bits, 4, together, code + 4, x + 16, plane, start[1], a[1]);
                    } else {
                        dot(bits, 8, together, code, x, plane, start[0], a[0]);
                    }
#pragma GCC unroll 4
                    for (int t = 0; t < together; t++) {
                        vf sum = __builtin_convertvector(a[0][t], vf) * s.scale[0];
                        if (dtype == LLS_Q6_K) sum = vf_fma(__builtin_convertvector(a[1][t], vf), s.scale[1], sum);
                        vf *y = &acc[i][t0 + t];
                        *y = vf_fma(sum, vf_set1(dx[t0 + t]), *y);
                        if (lls__tile_has_min(dtype)) *y = vf_fma(s.min, vf_set1(offset[t0 + t]), *y);
                    }
                }
            }
        }
#pragma GCC unroll 16
        for (int i = 0; i < tiles * tokens; i++) {
            vf_store_f32(out + i * LLS__TILE_ROWS + lane, acc[i / tokens][i % tokens]);
        }
    }
}

/* One function for each block type, number of tiles and number of tokens: all loops over registers have constant
 * bounds. */
#define TILE(name, dtype, tiles, tokens)                                                                   \
    static void name(const uint8_t *base, int64_t tile_bytes, int64_t k, const uint8_t *act, float *out) { \
        tile_i8(dtype, tiles, tokens, base, tile_bytes, k, act, out);                                      \
    }
#define MATH(name, dtype)                                                                                \
    LLS_FOR_TILES(TILE, name, dtype)                                                                     \
    static void name##_prepare(const lls_linear_args *args, int64_t m, int width, uint8_t *act) {        \
        prepare_tokens(dtype, args, m, width, act);                                                      \
    }                                                                                                    \
    static const lls__tile_math name = {.weight = dtype,                                                 \
                                        .act_elems = LLS__GROUP,                                         \
                                        .act_bytes = PLANES * LLS__GROUP + (dtype == LLS_Q6_K ? 12 : 8), \
                                        .prepare = name##_prepare,                                       \
                                        .kernel = LLS_TILE_NAMES(name)};

MATH(q4_0, LLS_Q4_0)
MATH(q4_1, LLS_Q4_1)
MATH(q5_0, LLS_Q5_0)
MATH(q5_1, LLS_Q5_1)
MATH(q8_0, LLS_Q8_0)
MATH(q4_k, LLS_Q4_K)
MATH(q5_k, LLS_Q5_K)
MATH(q6_k, LLS_Q6_K)

const lls__tile_math *LLS_CPU(lls__tile_math_i8)(lls_dtype weight) {
    static const lls__tile_math *const all[] = {&q4_0, &q4_1, &q5_0, &q5_1, &q8_0, &q4_k, &q5_k, &q6_k, NULL};
    return lls__tile_math_find(all, weight);
}
