/* Families of types and layouts that have instances of the kernel. */
#pragma once

#include "ops/gemm/sm90.cuh"

/* What the tile is good for: any epilogue and a split k; only what needs no more than a factor and TMA reaches; the same,
 * with the sums as out's transpose (sm90_store.cuh). The first is much more code, so few tiles have it. */
enum lls__sm90_use { LLS__SM90_ANY, LLS__SM90_PLAIN, LLS__SM90_SWAPPED };

/* elems: of k, a stage. promoted: see multiply_tile_promoted. */
template <lls__wgmma_type type, int elems_, int major_a, int major_b, bool promoted_, lls__sm90_use use = LLS__SM90_ANY>
struct lls__sm90_float {
    typedef float sum;
    static const int elems = elems_;
    static const bool plain = use != LLS__SM90_ANY, swapped = use == LLS__SM90_SWAPPED;
    static const bool a_mn = major_a == LLS__MN_MAJOR, b_mn = major_b == LLS__MN_MAJOR, promoted = promoted_;
    template <int count>
    static __device__ __forceinline__ void multiply(float (&d)[count], uint64_t a, uint64_t b, bool keep) {
        lls__wgmma<type, major_a, major_b>(d, a, b, keep);
    }
};
template <lls__wgmma_type type, int major_a, int major_b>
using lls__sm90_16bit = lls__sm90_float<type, 64, major_a, major_b, false>;
template <lls__wgmma_type type, bool promoted>
using lls__sm90_8bit = lls__sm90_float<type, 128, LLS__K_MAJOR, LLS__K_MAJOR, promoted>;

typedef lls__sm90_16bit<LLS__WGMMA_BF16, LLS__K_MAJOR, LLS__K_MAJOR> lls__sm90_bf16_kk;
typedef lls__sm90_16bit<LLS__WGMMA_BF16, LLS__K_MAJOR, LLS__MN_MAJOR> lls__sm90_bf16_kn;
typedef lls__sm90_16bit<LLS__WGMMA_BF16, LLS__MN_MAJOR, LLS__K_MAJOR> lls__sm90_bf16_mk;
typedef lls__sm90_16bit<LLS__WGMMA_BF16, LLS__MN_MAJOR, LLS__MN_MAJOR> lls__sm90_bf16_mn;
typedef lls__sm90_16bit<LLS__WGMMA_F16, LLS__K_MAJOR, LLS__K_MAJOR> lls__sm90_f16_kk;
typedef lls__sm90_16bit<LLS__WGMMA_F16, LLS__K_MAJOR, LLS__MN_MAJOR> lls__sm90_f16_kn;
typedef lls__sm90_16bit<LLS__WGMMA_F16, LLS__MN_MAJOR, LLS__K_MAJOR> lls__sm90_f16_mk;
typedef lls__sm90_16bit<LLS__WGMMA_F16, LLS__MN_MAJOR, LLS__MN_MAJOR> lls__sm90_f16_mn;
template <lls__wgmma_type type, lls__sm90_use use>
using lls__sm90_16bit_kk = lls__sm90_float<type, 64, LLS__K_MAJOR, LLS__K_MAJOR, false, use>;
typedef lls__sm90_16bit_kk<LLS__WGMMA_BF16, LLS__SM90_PLAIN> lls__sm90_bf16_plain;
typedef lls__sm90_16bit_kk<LLS__WGMMA_BF16, LLS__SM90_SWAPPED> lls__sm90_bf16_swap;
typedef lls__sm90_16bit_kk<LLS__WGMMA_F16, LLS__SM90_PLAIN> lls__sm90_f16_plain;
typedef lls__sm90_16bit_kk<LLS__WGMMA_F16, LLS__SM90_SWAPPED> lls__sm90_f16_swap;
typedef lls__sm90_float<LLS__WGMMA_TF32, 32, LLS__K_MAJOR, LLS__K_MAJOR, false> lls__sm90_tf32;
typedef lls__sm90_8bit<LLS__WGMMA_E4M3_E4M3, false> lls__sm90_f8_e4m3_e4m3;
typedef lls__sm90_8bit<LLS__WGMMA_E4M3_E4M3, true> lls__sm90_f8p_e4m3_e4m3;
typedef lls__sm90_8bit<LLS__WGMMA_E4M3_E5M2, true> lls__sm90_f8p_e4m3_e5m2;
typedef lls__sm90_8bit<LLS__WGMMA_E5M2_E4M3, true> lls__sm90_f8p_e5m2_e4m3;
typedef lls__sm90_8bit<LLS__WGMMA_E5M2_E5M2, true> lls__sm90_f8p_e5m2_e5m2;

struct lls__sm90_i8 {
    typedef int32_t sum;
    static const int elems = 128;
    static const bool a_mn = false, b_mn = false, promoted = false, plain = false, swapped = false;
    template <int count>
    static __device__ __forceinline__ void multiply(int32_t (&d)[count], uint64_t a, uint64_t b, bool keep) {
        lls__wgmma_i8(d, a, b, keep);
    }
};

#define LLS_SM90_INSTANCE(family, tile_m, tile_n)                                                \
    extern "C" __global__ void __launch_bounds__(LLS__SM90_THREADS(tile_m), 1)                   \
        LLS_SM90_NAME(family, tile_m, tile_n)(const __grid_constant__ lls__sm90_params params) { \
        LLS_SM90A_BODY(lls__gemm_sm90<lls__sm90_##family, tile_m, tile_n>(params);)              \
    }
