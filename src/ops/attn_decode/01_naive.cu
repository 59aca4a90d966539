/* Idea: a warp each (sequence, query row, head, split of the keys), see attn_common/attn_naive.cuh; with more than one
 * split a second kernel merges the parts (Dao et al. 2023, "Flash-Decoding").
 * Limited by: every query head of a group reads the same keys again, 2 bytes a lane. One sequence of 32 heads without
 * splits fills 8 blocks.
 * Needs: nothing beyond sm_80. */
#include "ops/attn_common/attn_naive.cuh"
#include "ops/attn_decode/attn_decode_kernels.h"

extern "C" __global__ void lls_attn_decode_01_naive_f32_f32(lls__attn_problem p, lls__attn_parts parts) {
    lls__attn_naive<float, float>(p, parts);
}
extern "C" __global__ void lls_attn_decode_01_naive_f32_f16(lls__attn_problem p, lls__attn_parts parts) {
    lls__attn_naive<float, __half>(p, parts);
}
extern "C" __global__ void lls_attn_decode_01_naive_f32_bf16(lls__attn_problem p, lls__attn_parts parts) {
    lls__attn_naive<float, __nv_bfloat16>(p, parts);
}
extern "C" __global__ void lls_attn_decode_01_naive_f16_f32(lls__attn_problem p, lls__attn_parts parts) {
    lls__attn_naive<__half, float>(p, parts);
}
extern "C" __global__ void lls_attn_decode_01_naive_f16_f16(lls__attn_problem p, lls__attn_parts parts) {
    lls__attn_naive<__half, __half>(p, parts);
}
extern "C" __global__ void lls_attn_decode_01_naive_f16_bf16(lls__attn_problem p, lls__attn_parts parts) {
    lls__attn_naive<__half, __nv_bfloat16>(p, parts);
}
extern "C" __global__ void lls_attn_decode_01_naive_bf16_f32(lls__attn_problem p, lls__attn_parts parts) {
    lls__attn_naive<__nv_bfloat16, float>(p, parts);
}
extern "C" __global__ void lls_attn_decode_01_naive_bf16_f16(lls__attn_problem p, lls__attn_parts parts) {
    lls__attn_naive<__nv_bfloat16, __half>(p, parts);
}
extern "C" __global__ void lls_attn_decode_01_naive_bf16_bf16(lls__attn_problem p, lls__attn_parts parts) {
    lls__attn_naive<__nv_bfloat16, __nv_bfloat16>(p, parts);
}

extern "C" __global__ void lls_attn_decode_01_naive_merge_f32(lls__attn_problem p, lls__attn_parts parts) {
    lls__attn_naive_merge<float>(p, parts);
}
extern "C" __global__ void lls_attn_decode_01_naive_merge_f16(lls__attn_problem p, lls__attn_parts parts) {
    lls__attn_naive_merge<__half>(p, parts);
}
extern "C" __global__ void lls_attn_decode_01_naive_merge_bf16(lls__attn_problem p, lls__attn_parts parts) {
    lls__attn_naive_merge<__nv_bfloat16>(p, parts);
}
