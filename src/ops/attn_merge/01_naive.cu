/* Idea: a warp a (token, head): every lane computes both weights, lanes stride over head_dim.
 * Limited by: HBM; it reads a and b and writes out once. 4096 rows of 32 heads of 128 in bf16 move 100 MB, 22 us at
 * 4.65 TB/s; 2-byte loads keep it above that.
 * Needs: nothing beyond sm_80. */
#include "cuda/cvt.cuh"
#include "ops/attn_merge/attn_merge_kernels.h"

template <typename T> __device__ __forceinline__ void attn_merge_naive(const lls__attn_merge_params &p) {
    int64_t row = (int64_t)blockIdx.x * LLS__ATTN_MERGE_WARPS + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (row >= p.rows) return;
    int64_t token = row / p.num_heads, head = row % p.num_heads;
    const T *a = (const T *)p.a + lls__row_offset(&p.a_rows, row),
            *b = (const T *)p.b + lls__row_offset(&p.b_rows, row);
    T *out = (T *)p.out + lls__row_offset(&p.out_rows, row);
    float lse_a = p.lse_a[token * p.lse_a_token + head * p.lse_a_head],
          lse_b = p.lse_b[token * p.lse_b_token + head * p.lse_b_head];
    __syncwarp(); // lse may be lse_a or lse_b: all lanes have read before lane 0 writes

    float top = fmaxf(lse_a, lse_b);
    bool has_a = lse_a != -INFINITY, has_b = lse_b != -INFINITY;
    float weight_a = has_a ? expf(lse_a - top) : 0.0f, weight_b = has_b ? expf(lse_b - top) : 0.0f,
          sum = weight_a + weight_b;
    float inverse = 1.0f / sum;
    for (int d = lane; d < p.head_dim; d += 32) {
        float x = has_a ? lls__to_f32(a[d]) * weight_a : 0.0f, y = has_b ? lls__to_f32(b[d]) * weight_b : 0.0f;
        out[d] = lls__from_f32<T>(!has_b   ? x
                                  : !has_a ? y
                                           : (x + y) * inverse); // one state alone passes through bit for bit
    }
    if (p.lse && lane == 0)
        p.lse[token * p.lse_token + head * p.lse_head] = has_a || has_b ? top + logf(sum) : -INFINITY;
}

extern "C" __global__ void lls_attn_merge_01_naive_f32(lls__attn_merge_params p) {
    attn_merge_naive<float>(p);
}
extern "C" __global__ void lls_attn_merge_01_naive_f16(lls__attn_merge_params p) {
    attn_merge_naive<__half>(p);
}
extern "C" __global__ void lls_attn_merge_01_naive_bf16(lls__attn_merge_params p) {
    attn_merge_naive<__nv_bfloat16>(p);
}
