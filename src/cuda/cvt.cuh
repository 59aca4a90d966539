/* f32, f16, bf16 and f8 as fp32 in registers: one overload a storage type. Rounds to nearest even. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "llmspeed/core.h"

__device__ __forceinline__ float lls__to_f32(float x) {
    return x;
}
__device__ __forceinline__ float lls__to_f32(__half x) {
    return __half2float(x);
}
__device__ __forceinline__ float lls__to_f32(__nv_bfloat16 x) {
    return __bfloat162float(x);
}

template <typename T> __device__ __forceinline__ T lls__from_f32(float x);
template <> __device__ __forceinline__ float lls__from_f32<float>(float x) {
    return x;
}
template <> __device__ __forceinline__ __half lls__from_f32<__half>(float x) {
    return __float2half_rn(x);
}
template <> __device__ __forceinline__ __nv_bfloat16 lls__from_f32<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}

/* Element i of a buffer whose float dtype is known at run time only. */
__device__ __forceinline__ float lls__load_f32(lls_dtype dtype, const void *base, int64_t i) {
    switch (dtype) {
    case LLS_F16: return lls__to_f32(((const __half *)base)[i]);
    case LLS_BF16: return lls__to_f32(((const __nv_bfloat16 *)base)[i]);
    default: return ((const float *)base)[i];
    }
}

/* Either f8. */
__device__ __forceinline__ float lls__f8_to_f32(lls_dtype dtype, uint8_t x) {
    __half_raw half = __nv_cvt_fp8_to_halfraw(x, dtype == LLS_F8_E4M3 ? __NV_E4M3 : __NV_E5M2);
    return __half2float(half);
}
