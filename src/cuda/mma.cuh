/* mma.sync: a warp multiplies 16 rows by 8 columns over 32 bytes of depth and adds to 16 x 8 sums, 4 a thread. The
 * registers are laid out alike for every element type (PTX ISA, "Matrix fragments for mma"): thread t, with g = t / 4,
 * holds
 *   a[0], a[1]  bytes 4 (t % 4) to + 3 of rows g and g + 8
 *   a[2], a[3]  the same, 16 bytes further along the depth
 *   b[0], b[1]  the same of column g
 *   sum         columns 2 (t % 4) and the next, of row g, then of row g + 8
 * One struct a pair of element types: their bytes, the type of the sums, whether it is f8, and the instruction. */
#pragma once

#include <stdint.h>

#define LLS_MMA(shape_and_types, constraint)                                                             \
    asm("mma.sync.aligned." shape_and_types " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "            \
        "{%0, %1, %2, %3};"                                                                              \
        : "+" constraint(sum[0]), "+" constraint(sum[1]), "+" constraint(sum[2]), "+" constraint(sum[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

struct lls__mma_f16 {
    enum { BYTES = 2, IS_F8 = 0 };
    typedef float sum_type;
    static __device__ __forceinline__ void add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        LLS_MMA("m16n8k16.row.col.f32.f16.f16.f32", "f");
    }
};

struct lls__mma_bf16 {
    enum { BYTES = 2, IS_F8 = 0 };
    typedef float sum_type;
    static __device__ __forceinline__ void add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        LLS_MMA("m16n8k16.row.col.f32.bf16.bf16.f32", "f");
    }
};

/* f32 operands, rounded to tf32 (11 bits) on the way: the instruction alone would cut the low bits off, which pulls all
 * products towards zero. */
struct lls__mma_tf32 {
    enum { BYTES = 4, IS_F8 = 0 };
    typedef float sum_type;
    static __device__ __forceinline__ uint32_t round(uint32_t f32) {
        uint32_t tf32;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(tf32) : "f"(__uint_as_float(f32)));
        return tf32;
    }
    static __device__ __forceinline__ void add(float (&sum)[4], const uint32_t (&x)[4], uint32_t x0, uint32_t x1) {
        uint32_t a[4] = {round(x[0]), round(x[1]), round(x[2]), round(x[3])}, b0 = round(x0), b1 = round(x1);
        LLS_MMA("m16n8k8.row.col.f32.tf32.tf32.f32", "f");
    }
};

/* Sums modulo 2^32. */
struct lls__mma_s8 {
    enum { BYTES = 1, IS_F8 = 0 };
    typedef int32_t sum_type;
    static __device__ __forceinline__ void add(int32_t (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        LLS_MMA("m16n8k32.row.col.s32.s8.s8.s32", "r");
    }
};

/* f8 where the instruction is missing (before sm_89) or itself made of f16 products, with more registers (sm_90, sm_100):
 * every f8 number is an f16 number. Bytes `half` and half + 2 of a word as two of f16. */
struct lls__e4m3 {
    /* Sign, exponent and fraction move to where f16 has them; its bias is 15 where e4m3's is 7: times 2^8, which is exact
     * for subnormals too. 0x7f is NaN: + 1 carries into bit 7 there alone, and that bit completes f16's exponent of all
     * ones, which the product leaves. */
    static __device__ __forceinline__ uint32_t f16(uint32_t word, int half) {
        uint32_t x = word >> 8 * half, magnitude = x & 0x007f007fu, nan = (magnitude + 0x00010001u) & 0x00800080u;
        uint32_t bits = (x & 0x00800080u) << 8 | (magnitude | nan) << 7, scaled;
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(scaled) : "r"(bits), "r"(0x5c005c00u)); // 2^8, 2^8
        return scaled;
    }
};
struct lls__e5m2 { /* the upper byte of an f16 */
    static __device__ __forceinline__ uint32_t f16(uint32_t word, int half) {
        return (half ? word : word << 8) & 0xff00ff00u;
    }
};

/* A product over 32 as two over 16, of bytes 0 and 2 of each word, then 1 and 3: another order than the instruction's, but the same
 * for a and b. */
template <typename A, typename B>
__device__ __forceinline__ void lls__mma_f8_as_f16(float (&sum)[4], const uint32_t (&x)[4], uint32_t y0, uint32_t y1) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t a[4] = {A::f16(x[0], half), A::f16(x[1], half), A::f16(x[2], half), A::f16(x[3], half)};
        lls__mma_f16::add(sum, a, B::f16(y0, half), B::f16(y1, half));
    }
}

#if __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200
#define LLS_MMA_F8(a_type, b_type) LLS_MMA("m16n8k32.row.col.f32." #a_type "." #b_type ".f32", "f")
#else
#define LLS_MMA_F8(a_type, b_type) lls__mma_f8_as_f16<lls__##a_type, lls__##b_type>(sum, a, b0, b1)
#endif

struct lls__mma_e4m3_e4m3 {
    enum { BYTES = 1, IS_F8 = 1 };
    typedef float sum_type;
    static __device__ __forceinline__ void add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        LLS_MMA_F8(e4m3, e4m3);
    }
};

struct lls__mma_e4m3_e5m2 {
    enum { BYTES = 1, IS_F8 = 1 };
    typedef float sum_type;
    static __device__ __forceinline__ void add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        LLS_MMA_F8(e4m3, e5m2);
    }
};

struct lls__mma_e5m2_e4m3 {
    enum { BYTES = 1, IS_F8 = 1 };
    typedef float sum_type;
    static __device__ __forceinline__ void add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        LLS_MMA_F8(e5m2, e4m3);
    }
};

struct lls__mma_e5m2_e5m2 {
    enum { BYTES = 1, IS_F8 = 1 };
    typedef float sum_type;
    static __device__ __forceinline__ void add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        LLS_MMA_F8(e5m2, e5m2);
    }
};
