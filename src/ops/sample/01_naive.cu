/* Idea: a block a row, which reads the row as often as it must. A pass finds the best token; each truncation is a
 * cutoff in the ranking, found by bisection of the 64-bit keys with one counting (top-k) or weighing (top-p) pass a
 * step; a last pass draws. Penalised tokens are bits in shared memory.
 * Limited by: the passes, one a step, up to 64 a cutoff, by a single SM from L2: a row of 49152 bf16 logits takes some
 * 3 us a pass, so 6 us greedy or with a temperature alone and 0.1 ms a cutoff, where reading the row once from HBM is
 * 20 ns of the machine's time.
 * Needs: nothing beyond sm_80; vocab / 8 bytes of shared memory where there is a history. */
#include "cuda/cvt.cuh"
#include "cuda/reduce.cuh"
#include "ops/sample/sample_kernels.h"

struct op_key_max {
    static __device__ __forceinline__ uint64_t identity() {
        return 0;
    }
    static __device__ __forceinline__ uint64_t apply(uint64_t a, uint64_t b) {
        return a > b ? a : b;
    }
};

template <typename T> struct logits_row {
    const T *source; // [vocab]
    int vocab;
    float penalty;
    const uint32_t *penalised; // a bit a token, or NULL

    __device__ __forceinline__ float at(int id) const {
        float logit = lls__sample_clean(lls__to_f32(source[id]));
        return penalised && penalised[id / 32] >> id % 32 & 1 ? lls__sample_penalise(logit, penalty) : logit;
    }
};

struct masses {
    float best;
    double inverse_temperature;

    __device__ __forceinline__ double of(float logit) const {
        return exp(((double)logit - (double)best) * inverse_temperature);
    }
};

// Tokens with keys from `cutoff` on: how many, or (with m) their mass. All threads get the same.
template <typename T>
__device__ __forceinline__ double weight_from(const logits_row<T> &row, uint64_t cutoff, const masses *m) {
    double sum = 0;
    for (int id = threadIdx.x; id < row.vocab; id += blockDim.x) {
        float logit = row.at(id);
        if (lls__sample_key(logit, id) >= cutoff) sum += m ? m->of(logit) : 1.0;
    }
    return lls__block_reduce<lls__op_sum>(sum);
}

// The highest cutoff from `low` on whose tokens weigh at least `target`; `low` when none do. `best` is the highest key.
template <typename T>
__device__ __forceinline__ uint64_t find_cutoff(const logits_row<T> &row, uint64_t low, uint64_t best, double target,
                                                const masses *m) {
    uint64_t high = best + 1; // too high: weighs nothing
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        double weight = weight_from(row, middle, m);
        if (weight >= target) low = middle;
        else high = middle;
        if (weight == target && target > 0) break;
    }
    return low;
}

// The keys of tokens that top-k, top-p and min-p leave: those from the result on.
template <typename T>
__device__ __forceinline__ uint64_t truncate_row(const logits_row<T> &row, const lls__sample_row &param, uint64_t best,
                                                 const masses &m) {
    uint64_t cutoff = lls__sample_key(-FLT_MAX, 0xffffffffu);
    if (param.top_k > 0 && param.top_k < row.vocab)
        cutoff = find_cutoff(row, cutoff, best, param.top_k, (const masses *)nullptr);
    if (param.top_p < 1) cutoff = find_cutoff(row, cutoff, best, param.top_p * weight_from(row, cutoff, &m), &m);
    if (param.min_p > 0) {
        uint64_t bound = lls__sample_key(lls__sample_min_p_logit(m.best, &param), 0xffffffffu);
        if (bound > cutoff) cutoff = bound;
    }
    return cutoff;
}

template <typename T> __device__ __forceinline__ void sample_naive(const lls__sample_params &p, uint32_t *bitmap) {
    int64_t r = blockIdx.x;
    int32_t id = -1;
    float probability = 0;
    if (lls__sample_row_fault(&p, r) == LLS__SAMPLE_SOUND) { // the same for the whole block
        lls__sample_row param = lls__sample_row_of(&p, r);
        logits_row<T> row = {(const T *)p.logits + r * p.logits_stride, p.vocab, param.penalty, NULL};
        if (param.history_len > 0) {
            for (int i = threadIdx.x; i < (p.vocab + 31) / 32; i += blockDim.x) bitmap[i] = 0;
            __syncthreads();
            for (int i = threadIdx.x; i < param.history_len; i += blockDim.x) {
                int token = param.history[i];
                if (token >= 0 && token < p.vocab) atomicOr(&bitmap[token / 32], 1u << token % 32);
            }
            __syncthreads();
            row.penalised = bitmap;
        }

        uint64_t best = 0;
        for (int i = threadIdx.x; i < p.vocab; i += blockDim.x) {
            float logit = row.at(i);
            if (logit >= -FLT_MAX) best = op_key_max::apply(best, lls__sample_key(logit, i));
        }
        best = lls__block_reduce<op_key_max>(best);
        if (best != 0) {
            id = (int32_t)lls__sample_key_id(best);
            probability = 1;
        }
        if (best != 0 && param.temperature >= LLS__SAMPLE_MIN_TEMPERATURE) {
            masses m = {lls__sample_key_logit(best), 1 / (double)param.temperature};
            float inverse_temperature = LLS__DIV_RN(1.0f, param.temperature);
            uint64_t cutoff = truncate_row(row, param, best, m), winner = 0;
            for (int i = threadIdx.x; i < p.vocab; i += blockDim.x) {
                float logit = row.at(i);
                if (lls__sample_key(logit, i) < cutoff) continue;
                float value = lls__sample_perturbed(logit, m.best, inverse_temperature, param.noise_key, i);
                winner = op_key_max::apply(winner, lls__sample_key(value, i));
            }
            id = (int32_t)lls__sample_key_id(lls__block_reduce<op_key_max>(winner));
            if (p.out_probs) probability = (float)(m.of(row.at(id)) / weight_from(row, cutoff, &m));
        }
    }
    if (threadIdx.x != 0) return;
    p.out_ids[r] = id;
    if (p.out_probs) p.out_probs[r] = probability;
}

extern __shared__ uint32_t lls_sample_bitmap[];

extern "C" __global__ void lls_sample_01_naive_f32(lls__sample_params p) {
    sample_naive<float>(p, lls_sample_bitmap);
}
extern "C" __global__ void lls_sample_01_naive_f16(lls__sample_params p) {
    sample_naive<__half>(p, lls_sample_bitmap);
}
extern "C" __global__ void lls_sample_01_naive_bf16(lls__sample_params p) {
    sample_naive<__nv_bfloat16>(p, lls_sample_bitmap);
}
