/* Idea: a warp a (row, head): lane l holds elements l, l + 32, ... of q and of the output; a key is one dot product
 * over the warp, an online softmax step (Milakov and Gimelshein 2018), and one multiply-add of the value. Any mask,
 * stride, page size, dtype and head_dim up to 256 fits this shape.
 * Limited by: K and V are read once for every row and head, from L2 at best, and each key waits for five shuffles and
 * two exponentials; no tensor cores. The floor of decoding is the cache over HBM bandwidth: 8192 keys, 8 heads of 128,
 * f16 = 34 MB, 7 us at 4.65 TB/s. The floor of prefill is 4 * pairs * head_dim operations over some 800 TFLOP/s.
 * Needs: nothing beyond sm_80. */
#pragma once

#include "cuda/cvt.cuh"
#include "cuda/reduce.cuh"
#include "ops/attn_common/attn_naive.h"

enum { LLS__ATTN_LANE_ELEMS = LLS__ATTN_MAX_HEAD_DIM / 32 };

/* Which row this warp works on; all lanes agree. */
struct lls__attn_warp {
    int lane;
    int64_t split, head, i, b;
};

__device__ __forceinline__ lls__attn_warp lls__attn_warp_of(const lls__attn_problem &p, int64_t splits) {
    lls__attn_warp w;
    int64_t n = (int64_t)blockIdx.x * LLS__ATTN_NAIVE_WARPS + threadIdx.x / 32;
    w.lane = threadIdx.x % 32;
    w.split = n % splits, n /= splits;
    w.head = n % p.num_heads, n /= p.num_heads;
    w.i = n % p.max_q_len;
    w.b = n / p.max_q_len;
    return w;
}

/* Index of (row of q, head, split) in lls__attn_parts. */
__device__ __forceinline__ int64_t lls__attn_part(const lls__attn_problem &p, const lls__attn_seq &s,
                                                  const lls__attn_warp &w, int64_t split) {
    int64_t row = (p.cu_q ? s.q_begin : s.index * p.q_len) + w.i;
    return (row * p.num_heads + w.head) * p.num_splits + split;
}

/* Lengths and page ids live on the device, where nobody has checked them. All lanes get the answer. */
__device__ __forceinline__ bool lls__attn_seq_is_valid(const lls__attn_problem &p, const lls__attn_seq &s, int lane) {
    bool valid = s.valid;
    if (p.page_table) {
        for (int64_t page = lane; page * p.page_size < s.kv_len; page += 32) {
            int32_t id = p.page_table[s.index * p.table_batch + page * p.table_page];
            valid = valid && id >= 0 && id < p.num_pages;
        }
    }
    return __all_sync(0xffffffffu, valid);
}

/* out = acc / sum, lse = max + ln(sum), with the sink as one more term. sum is 0 only for a row that saw nothing. */
template <typename T>
__device__ __forceinline__ void lls__attn_write_row(const lls__attn_problem &p, const lls__attn_seq &s,
                                                    const lls__attn_warp &w, float max, float sum,
                                                    const float (&acc)[LLS__ATTN_LANE_ELEMS]) {
    float scale = 1.0f;
    if (p.sinks && p.sinks[w.head] > -INFINITY) {
        float sink = p.sinks[w.head], top = fmaxf(max, sink);
        scale = sum == 0.0f ? 0.0f : expf(max - top);
        sum = sum * scale + expf(sink - top);
        max = top;
    }
    scale = sum == 0.0f ? 0.0f : scale / sum;
    T *out = (T *)p.out.data + lls__attn_q_offset(&p.out, &s, w.i, w.head);
    for (int t = 0; t < LLS__ATTN_LANE_ELEMS; t++) {
        int d = w.lane + 32 * t;
        if (d < p.head_dim_v) out[d] = lls__from_f32<T>(acc[t] * scale);
    }
    if (p.lse.data && w.lane == 0)
        ((float *)p.lse.data)[lls__attn_q_offset(&p.lse, &s, w.i, w.head)] = sum == 0.0f ? -INFINITY : max + logf(sum);
}

/* The bias of key j for this warp's row; 0 without one. All lanes read the same element. */
template <typename T>
__device__ __forceinline__ float lls__attn_bias(const lls__attn_problem &p, const lls__attn_seq &s,
                                                const lls__attn_warp &w, int64_t j) {
    if (!p.bias.data) return 0.0f;
    int64_t at = lls__attn_q_offset(&p.bias, &s, w.i, w.head) + j * p.bias_key;
    return p.bias_dtype == LLS_F32 ? ((const float *)p.bias.data)[at] : lls__to_f32(((const T *)p.bias.data)[at]);
}

template <typename T, typename KV>
__device__ __forceinline__ void lls__attn_naive(const lls__attn_problem &p, const lls__attn_parts &parts) {
    lls__attn_warp w = lls__attn_warp_of(p, p.num_splits);
    if (w.b >= p.batch) return;
    lls__attn_seq s = lls__attn_seq_at(&p, w.b);
    if (w.i >= s.q_len) return;

    const T *q_row = (const T *)p.q.data + lls__attn_q_offset(&p.q, &s, w.i, w.head);
    float q[LLS__ATTN_LANE_ELEMS], acc[LLS__ATTN_LANE_ELEMS];
#pragma unroll
    for (int t = 0; t < LLS__ATTN_LANE_ELEMS; t++) {
        int d = w.lane + 32 * t;
        q[t] = d < p.head_dim ? lls__to_f32(q_row[d]) : 0.0f;
        acc[t] = 0.0f;
    }

    lls__attn_span span = lls__attn_span_of(&p, &s, w.i);
    if (p.num_splits > 1) {
        int64_t width = (s.kv_len + p.num_splits - 1) / p.num_splits;
        span.begin = max(span.begin, w.split * width);
        span.end = min(span.end, (w.split + 1) * width);
    }
    float top = -INFINITY, sum = 0.0f;
    if (!lls__attn_seq_is_valid(p, s, w.lane)) {
        span.end = span.begin;
        sum = NAN; // and with it the whole row
    }
    int64_t kv_head = w.head / (p.num_heads / p.num_kv_heads), position = lls__attn_position(&s, w.i);
    for (int64_t j = span.begin; j < span.end; j++) {
        float bias = lls__attn_bias<T>(p, s, w, j);
        if (bias == -INFINITY) continue; // hidden: neither its key nor its value is read
        const KV *k = (const KV *)p.k.data + lls__attn_kv_offset(&p, &p.k, &s, j, kv_head);
        const KV *v = (const KV *)p.v.data + lls__attn_kv_offset(&p, &p.v, &s, j, kv_head);
        float dot = 0.0f;
#pragma unroll
        for (int t = 0; t < LLS__ATTN_LANE_ELEMS; t++) {
            int d = w.lane + 32 * t;
            if (d < p.head_dim) dot += q[t] * lls__to_f32(k[d]);
        }
        float score = lls__warp_reduce<lls__op_sum>(dot) * p.scale;
        if (p.softcap > 0.0f) score = p.softcap * tanhf(score / p.softcap);
        if (p.alibi) score += p.alibi[w.head] * (float)(j - position);
        score += bias;

        float new_top = fmaxf(top, score);
        float reference = new_top == -INFINITY ? 0.0f : new_top; // -inf - -inf is NaN
        float rescale = expf(top - reference), weight = expf(score - reference);
        top = new_top;
        sum = sum * rescale + weight;
#pragma unroll
        for (int t = 0; t < LLS__ATTN_LANE_ELEMS; t++) {
            int d = w.lane + 32 * t;
            if (d < p.head_dim_v) acc[t] = acc[t] * rescale + weight * lls__to_f32(v[d]);
        }
    }

    if (p.num_splits == 1) {
        lls__attn_write_row<T>(p, s, w, top, sum, acc);
        return;
    }
    int64_t part = lls__attn_part(p, s, w, w.split);
    if (w.lane == 0) parts.max_sum[2 * part] = top, parts.max_sum[2 * part + 1] = sum;
#pragma unroll
    for (int t = 0; t < LLS__ATTN_LANE_ELEMS; t++) {
        int d = w.lane + 32 * t;
        if (d < p.head_dim_v) parts.acc[part * p.head_dim_v + d] = acc[t];
    }
}

/* A warp a (row, head) adds its splits in order. */
template <typename T>
__device__ __forceinline__ void lls__attn_naive_merge(const lls__attn_problem &p, const lls__attn_parts &parts) {
    lls__attn_warp w = lls__attn_warp_of(p, 1);
    if (w.b >= p.batch) return;
    lls__attn_seq s = lls__attn_seq_at(&p, w.b);
    if (w.i >= s.q_len) return;

    float top = -INFINITY, sum = 0.0f, acc[LLS__ATTN_LANE_ELEMS] = {};
    int64_t first = lls__attn_part(p, s, w, 0);
    for (int64_t part = first; part < first + p.num_splits; part++) top = fmaxf(top, parts.max_sum[2 * part]);
    for (int64_t part = first; part < first + p.num_splits; part++) {
        float part_sum = parts.max_sum[2 * part + 1];
        if (part_sum == 0.0f) continue; // nothing seen
        float rescale = part_sum != part_sum ? NAN : expf(parts.max_sum[2 * part] - top);
        sum += part_sum * rescale;
#pragma unroll
        for (int t = 0; t < LLS__ATTN_LANE_ELEMS; t++) {
            int d = w.lane + 32 * t;
            if (d < p.head_dim_v) acc[t] += parts.acc[part * p.head_dim_v + d] * rescale;
        }
    }
    lls__attn_write_row<T>(p, s, w, top, sum, acc);
}
