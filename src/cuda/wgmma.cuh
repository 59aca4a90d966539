/* Warpgroup matrix multiply-add (sm_90a): 128 threads multiply a [64, k] by b [k, N], both in shared memory, into fp32 or
 * int32 sums that stay in registers. Asynchronous: lls__wgmma_fence before the first, then commit and wait.
 *
 * Accumulators d[N / 2] of thread t: with warp w = t / 32, lane l = t % 32, element d[4 j + 2 h + e] is row 16 w + l / 4 + 8 h,
 * column 8 j + 2 (l % 4) + e.
 *
 * The operands lie in shared memory as TMA's 128-byte swizzle leaves them, each piece aligned to 1024 bytes:
 *   K-major: rows of 128 bytes along k, so 8 rows are 1024 bytes; an instruction takes 32 bytes of k.
 *   MN-major (16-bit types alone): pieces [k of the stage][64 elements along m or n], one k every 128 bytes. */
#pragma once

#include <stdint.h>

/* The body of a kernel that needs sm_90a. In a build for other devices the kernel is there but empty: nobody launches it. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define LLS_SM90A_BODY(...)
#else
#define LLS_SM90A_BODY(...) __VA_ARGS__
#endif

__device__ __forceinline__ void lls__wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void lls__wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until at most `pending` committed groups are under way. */
template <int pending> __device__ __forceinline__ void lls__wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/* Describes an operand that begins at this shared-memory address, of 18 bits: without the block's rank in its cluster, which
 * an address has above them. `piece_bytes`: from one piece of 64 along m or n to the next, for MN-major operands; else 0. */
__device__ __forceinline__ uint64_t lls__wgmma_operand(uint32_t address, uint32_t piece_bytes) {
    const uint32_t swizzle_128 = 1u << 30, eight_rows = 1024 >> 4;
    return (uint64_t)(swizzle_128 | eight_rows) << 32 | (piece_bytes >> 4 << 16) | address >> 4;
}

/* Types of a and b; the sums are int32 for i8, else fp32. */
enum lls__wgmma_type {
    LLS__WGMMA_BF16,
    LLS__WGMMA_F16,
    LLS__WGMMA_TF32,
    LLS__WGMMA_E4M3_E4M3,
    LLS__WGMMA_E4M3_E5M2,
    LLS__WGMMA_E5M2_E4M3,
    LLS__WGMMA_E5M2_E5M2
};
enum { LLS__K_MAJOR = 0, LLS__MN_MAJOR = 1 };

// The instruction names each of its accumulators, in its text and in its operand list: hence the macros. Width w names w / 2
// of them, 8 more than the width before.
#define LLS_WGMMA_TEXT_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define LLS_WGMMA_TEXT_32 LLS_WGMMA_TEXT_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define LLS_WGMMA_TEXT_48 LLS_WGMMA_TEXT_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define LLS_WGMMA_TEXT_64 LLS_WGMMA_TEXT_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define LLS_WGMMA_TEXT_80 LLS_WGMMA_TEXT_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define LLS_WGMMA_TEXT_96 LLS_WGMMA_TEXT_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define LLS_WGMMA_TEXT_112 LLS_WGMMA_TEXT_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define LLS_WGMMA_TEXT_128 LLS_WGMMA_TEXT_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define LLS_WGMMA_TEXT_144 LLS_WGMMA_TEXT_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define LLS_WGMMA_TEXT_160 LLS_WGMMA_TEXT_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define LLS_WGMMA_TEXT_176 LLS_WGMMA_TEXT_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define LLS_WGMMA_TEXT_192 LLS_WGMMA_TEXT_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define LLS_WGMMA_TEXT_208 LLS_WGMMA_TEXT_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define LLS_WGMMA_TEXT_224 LLS_WGMMA_TEXT_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define LLS_WGMMA_TEXT_240 LLS_WGMMA_TEXT_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define LLS_WGMMA_TEXT_256 LLS_WGMMA_TEXT_240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define LLS_WGMMA_8(c, i) \
    c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3]), c(d[i + 4]), c(d[i + 5]), c(d[i + 6]), c(d[i + 7])
#define LLS_WGMMA_SUMS_16(c) LLS_WGMMA_8(c, 0)
#define LLS_WGMMA_SUMS_32(c) LLS_WGMMA_SUMS_16(c), LLS_WGMMA_8(c, 8)
#define LLS_WGMMA_SUMS_48(c) LLS_WGMMA_SUMS_32(c), LLS_WGMMA_8(c, 16)
#define LLS_WGMMA_SUMS_64(c) LLS_WGMMA_SUMS_48(c), LLS_WGMMA_8(c, 24)
#define LLS_WGMMA_SUMS_80(c) LLS_WGMMA_SUMS_64(c), LLS_WGMMA_8(c, 32)
#define LLS_WGMMA_SUMS_96(c) LLS_WGMMA_SUMS_80(c), LLS_WGMMA_8(c, 40)
#define LLS_WGMMA_SUMS_112(c) LLS_WGMMA_SUMS_96(c), LLS_WGMMA_8(c, 48)
#define LLS_WGMMA_SUMS_128(c) LLS_WGMMA_SUMS_112(c), LLS_WGMMA_8(c, 56)
#define LLS_WGMMA_SUMS_144(c) LLS_WGMMA_SUMS_128(c), LLS_WGMMA_8(c, 64)
#define LLS_WGMMA_SUMS_160(c) LLS_WGMMA_SUMS_144(c), LLS_WGMMA_8(c, 72)
#define LLS_WGMMA_SUMS_176(c) LLS_WGMMA_SUMS_160(c), LLS_WGMMA_8(c, 80)
#define LLS_WGMMA_SUMS_192(c) LLS_WGMMA_SUMS_176(c), LLS_WGMMA_8(c, 88)
#define LLS_WGMMA_SUMS_208(c) LLS_WGMMA_SUMS_192(c), LLS_WGMMA_8(c, 96)
#define LLS_WGMMA_SUMS_224(c) LLS_WGMMA_SUMS_208(c), LLS_WGMMA_8(c, 104)
#define LLS_WGMMA_SUMS_240(c) LLS_WGMMA_SUMS_224(c), LLS_WGMMA_8(c, 112)
#define LLS_WGMMA_SUMS_256(c) LLS_WGMMA_SUMS_240(c), LLS_WGMMA_8(c, 120)
// x, y, z: the numbers of the operands that follow the sums.
#define LLS_WGMMA(width, x, y, z, c, types, tail)                                                            \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #z ", 0; wgmma.mma_async.sync.aligned.m64n" #width types \
                 " {" LLS_WGMMA_TEXT_##width "}, %" #x ", %" #y ", p" tail "; }"                             \
                 : LLS_WGMMA_SUMS_##width(c)                                                                 \
                 : "l"(a), "l"(b), "r"(keep))

#define LLS_WGMMA_MAJORS(width, x, y, z, types)                                                             \
    do {                                                                                                    \
        if constexpr (major_a == LLS__K_MAJOR && major_b == LLS__K_MAJOR)                                   \
            LLS_WGMMA(width, x, y, z, "+f", types, ", 1, 1, 0, 0");                                         \
        else if constexpr (major_a == LLS__K_MAJOR) LLS_WGMMA(width, x, y, z, "+f", types, ", 1, 1, 0, 1"); \
        else if constexpr (major_b == LLS__K_MAJOR) LLS_WGMMA(width, x, y, z, "+f", types, ", 1, 1, 1, 0"); \
        else LLS_WGMMA(width, x, y, z, "+f", types, ", 1, 1, 1, 1");                                        \
    } while (0)

// d = a b + (keep ? d : 0), one overload a width, told apart by the number of accumulators.
#define LLS_WGMMA_FUNCTIONS(width, x, y, z)                                                                        \
    template <lls__wgmma_type type, int major_a, int major_b>                                                      \
    __device__ __forceinline__ void lls__wgmma(float(&d)[width / 2], uint64_t a, uint64_t b, int32_t keep) {       \
        if constexpr (type == LLS__WGMMA_BF16) LLS_WGMMA_MAJORS(width, x, y, z, "k16.f32.bf16.bf16");              \
        else if constexpr (type == LLS__WGMMA_F16) LLS_WGMMA_MAJORS(width, x, y, z, "k16.f32.f16.f16");            \
        else if constexpr (type == LLS__WGMMA_TF32) LLS_WGMMA(width, x, y, z, "+f", "k8.f32.tf32.tf32", ", 1, 1"); \
        else if constexpr (type == LLS__WGMMA_E4M3_E4M3)                                                           \
            LLS_WGMMA(width, x, y, z, "+f", "k32.f32.e4m3.e4m3", ", 1, 1");                                        \
        else if constexpr (type == LLS__WGMMA_E4M3_E5M2)                                                           \
            LLS_WGMMA(width, x, y, z, "+f", "k32.f32.e4m3.e5m2", ", 1, 1");                                        \
        else if constexpr (type == LLS__WGMMA_E5M2_E4M3)                                                           \
            LLS_WGMMA(width, x, y, z, "+f", "k32.f32.e5m2.e4m3", ", 1, 1");                                        \
        else LLS_WGMMA(width, x, y, z, "+f", "k32.f32.e5m2.e5m2", ", 1, 1");                                       \
    }                                                                                                              \
    __device__ __forceinline__ void lls__wgmma_i8(int32_t(&d)[width / 2], uint64_t a, uint64_t b, int32_t keep) {  \
        LLS_WGMMA(width, x, y, z, "+r", "k32.s32.s8.s8", "");                                                      \
    }
LLS_WGMMA_FUNCTIONS(16, 8, 9, 10)
LLS_WGMMA_FUNCTIONS(32, 16, 17, 18)
LLS_WGMMA_FUNCTIONS(48, 24, 25, 26)
LLS_WGMMA_FUNCTIONS(64, 32, 33, 34)
LLS_WGMMA_FUNCTIONS(80, 40, 41, 42)
LLS_WGMMA_FUNCTIONS(96, 48, 49, 50)
LLS_WGMMA_FUNCTIONS(112, 56, 57, 58)
LLS_WGMMA_FUNCTIONS(128, 64, 65, 66)
LLS_WGMMA_FUNCTIONS(144, 72, 73, 74)
LLS_WGMMA_FUNCTIONS(160, 80, 81, 82)
LLS_WGMMA_FUNCTIONS(176, 88, 89, 90)
LLS_WGMMA_FUNCTIONS(192, 96, 97, 98)
LLS_WGMMA_FUNCTIONS(208, 104, 105, 106)
LLS_WGMMA_FUNCTIONS(224, 112, 113, 114)
LLS_WGMMA_FUNCTIONS(240, 120, 121, 122)
LLS_WGMMA_FUNCTIONS(256, 128, 129, 130)
