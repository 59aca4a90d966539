/* Idea: a warp each (sequence, query row, head), see attn_common/attn_naive.cuh.
 * Limited by: a key and a value are read for every query row and head that sees them: 4096 causal rows of 32 heads of
 * 128 in f16 read 140 GB through L2, some 25 ms, where tensor cores need 0.3 ms.
 * Needs: nothing beyond sm_80. */
#include "ops/attn_common/attn_naive.cuh"
#include "ops/attn_prefill/attn_prefill_kernels.h"

extern "C" __global__ void lls_attn_prefill_01_naive_f32(lls__attn_problem p, lls__attn_parts parts) {
    lls__attn_naive<float, float>(p, parts);
}
extern "C" __global__ void lls_attn_prefill_01_naive_f16(lls__attn_problem p, lls__attn_parts parts) {
    lls__attn_naive<__half, __half>(p, parts);
}
extern "C" __global__ void lls_attn_prefill_01_naive_bf16(lls__attn_problem p, lls__attn_parts parts) {
    lls__attn_naive<__nv_bfloat16, __nv_bfloat16>(p, parts);
}
