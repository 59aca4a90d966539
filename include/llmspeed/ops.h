/* llmspeed/ops.h: the operations, in the order in which a transformer layer meets them.
 *
 * Rules that hold for all of them:
 *  - lls_<op>(ctx, &args, stream). Tensors must live on the context's device. Optional tensors may be NULL.
 *  - `variant` pins an implementation by name (see lls_variant_at); NULL takes the first that accepts the call.
 *  - Ops enqueue and return (CUDA) or finish before they return (CPU). They never allocate device memory,
 *    synchronise, or read device data on the host, so each can be captured in a CUDA graph. (lls_ctx_record may.)
 *  - Zero-size inputs are valid and write nothing.
 *  - Unless said otherwise an output may not overlap an input; "in place" means exactly the same view.
 *  - "float dtype" is f32, f16 or bf16. Arithmetic is fp32 whatever the dtype, rounded once at the end.
 *  - Same inputs, device and variant: same bits. On the CPU also for any number of threads.
 *  - Errors: LLS_ERR_ARGUMENT, _SHAPE, _DTYPE, _STRIDE, _DEVICE, _ALIAS, _UNSUPPORTED, _VARIANT, _CUDA; nothing is
 *    written then. Values that live on the device (ids, lengths, slots) are checked on the CPU before anything is
 *    written;
 *    on CUDA they cannot be, and each op says what it does with bad ones.
 */
#ifndef LLMSPEED_OPS_H
#define LLMSPEED_OPS_H

#include "llmspeed/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- embed ----------------------------------------------------------------------------------
 * out[t, :] = table[ids[t], :] * scale.
 * table [vocab, hidden] float dtype or, on the CPU and CUDA, GGUF blocks; ids [tokens] i32; out [tokens, hidden] float
 * dtype.
 * Rows of table and out have unit inner stride. An id outside [0, vocab): CPU LLS_ERR_ARGUMENT, CUDA a row of NaN. */
typedef struct lls_embed_args {
    size_t struct_size;
    const lls_tensor *table;
    const lls_tensor *ids;
    const lls_tensor *out;
    float scale; /* 0: 1. Gemma uses sqrt(hidden). */
    const char *variant;
} lls_embed_args;
#define LLS_EMBED_ARGS_INIT LLS_ARGS_INIT(lls_embed_args)
LLS_API lls_status lls_embed(lls_ctx *ctx, const lls_embed_args *args, lls_stream stream);

/* ---- rmsnorm --------------------------------------------------------------------------------
 * h = x + residual (rounded to the dtype, when residual is given);  out = h / sqrt(mean(h^2) + eps) * (weight +
 * weight_offset).
 * x, residual, residual_out, out [..., hidden] of one float dtype, ndim 1 to 5, unit inner stride; weight [hidden] of
 * that dtype or f32, NULL: ones.
 * residual_out receives h (required with residual). out may be x; residual_out may be residual or x, but not out.
 * The weight is applied in fp32 before the only rounding (not the Hugging Face order, which rounds twice).
 * Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization". */
typedef struct lls_rmsnorm_args {
    size_t struct_size;
    const lls_tensor *x;
    const lls_tensor *weight;
    const lls_tensor *residual;
    const lls_tensor *residual_out;
    const lls_tensor *out;
    float eps;           /* as given, 0 included; must be >= 0 */
    float weight_offset; /* 1 for Gemma checkpoints that store weight - 1 */
    const char *variant;
} lls_rmsnorm_args;
#define LLS_RMSNORM_ARGS_INIT LLS_ARGS_INIT(lls_rmsnorm_args)
LLS_API lls_status lls_rmsnorm(lls_ctx *ctx, const lls_rmsnorm_args *args, lls_stream stream);

/* ---- layernorm ------------------------------------------------------------------------------
 * out = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, biased variance, two passes over the row.
 * x, out [..., hidden] of one float dtype, ndim 1 to 5, unit inner stride; weight, bias [hidden] of that dtype or f32,
 * each may be NULL. out may be x.
 * Source: Ba, Kiros and Hinton 2016, "Layer Normalization". */
typedef struct lls_layernorm_args {
    size_t struct_size;
    const lls_tensor *x;
    const lls_tensor *weight;
    const lls_tensor *bias;
    const lls_tensor *out;
    float eps;
    const char *variant;
} lls_layernorm_args;
#define LLS_LAYERNORM_ARGS_INIT LLS_ARGS_INIT(lls_layernorm_args)
LLS_API lls_status lls_layernorm(lls_ctx *ctx, const lls_layernorm_args *args, lls_stream stream);

/* ---- gemm -----------------------------------------------------------------------------------
 *     x = alpha * (a * scale_a) (b * scale_b) + beta * c + bias
 *     y = act(x), or with `gated` y[:, j] = act(x[:, 2j]) * x[:, 2j + 1]
 *     out = (y + residual) / scale_out, rounded once to out's dtype
 * a [m, k], b [k, n], out [m, n] (gated: [m, n / 2]), or all with one leading batch axis (stride 0 broadcasts). Any
 * strides: a transposed operand is a view with its strides exchanged, a leading dimension is a row stride. out's elements
 * must not coincide; a leading dimension below the row (overlapping rows of out) is LLS_ERR_STRIDE.
 * beta = 0 never reads c (NaN there does not spread); alpha = 0 never reads a, b and their scales. k = 0 leaves c, bias and
 * residual.
 *
 *     a and b                            sums              out
 *     f32, f16 or bf16, both the same    fp32              f32 f16 bf16 f8_e4m3 f8_e5m2 i8
 *     f8_e4m3, f8_e5m2, also mixed       fp32              the same
 *     i8                                 i32, modulo 2^32  the same (the sum becomes one fp32 number first), or i32
 *
 * out i32 takes alpha 1, beta 0 or 1 with c i32, and nothing else of the formula (else LLS_ERR_ARGUMENT): it is exact, with
 * the same bits from every variant (k up to 131071 cannot wrap without c).
 * c and residual have out's shape and a float dtype each (out's own where that is one; for f8 and i8 any); either may be out
 * itself, the same view. bias [n] has a float dtype. `gated` needs an even n and beta 0.
 *
 * Scales are f32 tensors of any strides, NULL for 1. They may have a leading batch axis where out has one.
 *     scale_a   [1]; [m, 1] a row; or [m, ceil(k / 128)] a row's block of 128 along k (f8 operands only)
 *     scale_b   [1]; [1, n] a column; or [ceil(k / 128), ceil(n / 128)] a block of 128 x 128 (f8 operands only)
 *     scale_out [1], a row [m, 1] or a column [1, n]; for out f8 or i8
 * With block scales each block of 128 along k is summed by itself, scaled, and added in fp32 (DeepSeek-AI 2024,
 * "DeepSeek-V3 Technical Report", 3.3). f8 outputs saturate at the largest finite number, i8 at -128 and 127; both round to
 * nearest even; NaN stays NaN, and is 0 in i8. A scale_out of 0 gives 0.
 *
 * Batches whose matrices lie anywhere: where *_pointers is not NULL, the tensor beside it is 3-d, its data may be NULL and
 * its batch stride is ignored, and pointers, an array of shape[0] addresses in the context's device memory, says where each
 * matrix begins (aligned to its element; on CUDA not checked, as is what overlaps).
 *
 * Sources: Dongarra et al. 1990 (BLAS 3); Micikevicius et al. 2022, "FP8 Formats for Deep Learning". */
typedef enum lls_gemm_act {
    LLS_GEMM_ACT_NONE = 0,
    LLS_GEMM_ACT_RELU = 1,
    LLS_GEMM_ACT_SILU = 2,
    LLS_GEMM_ACT_GELU = 3, /* erf */
    LLS_GEMM_ACT_GELU_TANH = 4
} lls_gemm_act;
typedef enum lls_gemm_flags {
    /* f32 operands may be rounded to tf32 (10 bits of mantissa, to nearest or toward zero) for the tensor cores. */
    LLS_GEMM_TF32 = 1,
    /* Row i of out has the same bits whatever m is and whatever the other rows hold: variant and configuration are chosen
     * from n, k and the device alone. */
    LLS_GEMM_BATCH_INVARIANT = 2,
    /* f8: leave the whole sum to the tensor core's accumulator, which keeps some 14 bits on sm_90; by default it is added
     * into fp32 every 128 of k. */
    LLS_GEMM_FAST_ACCUM = 4
} lls_gemm_flags;
typedef struct lls_gemm_args {
    size_t struct_size;
    const lls_tensor *a;
    const lls_tensor *b;
    const lls_tensor *c; /* may be NULL when beta is 0 */
    const lls_tensor *out;
    float alpha; /* as given: LLS_GEMM_ARGS_INIT sets 1 */
    float beta;
    const char *variant;
    const lls_tensor *bias;
    lls_gemm_act act;
    bool gated;
    const lls_tensor *residual;
    const lls_tensor *scale_a;
    const lls_tensor *scale_b;
    const lls_tensor *scale_out;
    uint32_t flags; /* of lls_gemm_flags */
    const void *const *a_pointers;
    const void *const *b_pointers;
    const void *const *c_pointers;
    void *const *out_pointers;
    const char *config; /* pins the configuration, as lls_gemm_config_at spells it; NULL: chosen, see there. One that cannot
                         * run the call is LLS_ERR_ARGUMENT; LLS_ERR_VARIANT where no variant has configurations */
} lls_gemm_args;
#ifdef __cplusplus
#define LLS_GEMM_ARGS_INIT \
    { sizeof(lls_gemm_args), NULL, NULL, NULL, NULL, 1.0f }
#else
#define LLS_GEMM_ARGS_INIT \
    { .struct_size = sizeof(lls_gemm_args), .alpha = 1.0f }
#endif
LLS_API lls_status lls_gemm(lls_ctx *ctx, const lls_gemm_args *args, lls_stream stream);

/* Tuning. A configuration says how a tiled variant cuts the product, e.g. "tile=128x256 stages=4 cluster=2x1 split=1
 * raster=8". Without a pinned one a call takes the line of the file that LLS_TUNE_FILE names which fits the call's
 * types, layouts, m, n, k and device, or else what a cost model says.
 * lls_gemm_config_at writes configuration number `index` (0, 1, ...) that the variant a call of these arguments takes could
 * use: false past the last. Number 0 is the one that a call takes. `text` has room for LLS_GEMM_CONFIG_CHARS.
 * lls_gemm_tune_key writes the words that begin this call's line in a tuning file, LLS_GEMM_KEY_CHARS at
 * most; the configuration follows them. */
enum { LLS_GEMM_CONFIG_CHARS = 96, LLS_GEMM_KEY_CHARS = 160 };
LLS_API bool lls_gemm_config_at(lls_ctx *ctx, const lls_gemm_args *args, int32_t index, char *text);
LLS_API lls_status lls_gemm_tune_key(lls_ctx *ctx, const lls_gemm_args *args, char *text);

/* ---- gemm_grouped ---------------------------------------------------------------------------
 * Products of consecutive rows with a matrix each: the experts of a mixture, once tokens are sorted by expert. For row t of
 * group g, offsets[g] <= t < offsets[g + 1]:
 *     x[t] = alpha * (a[t] * scale_a[t]) (b[g] * scale_b[g]) + bias[g]
 *     out[t] = act(x[t]), or with `gated` out[t, j] = act(x[t, 2j]) * x[t, 2j + 1], rounded once to out's dtype
 * a [tokens, k], b [groups, k, n] of any strides, out [tokens, n] (gated: [tokens, n / 2]), offsets [groups + 1] i32,
 * contiguous. Groups may be empty. Rows before offsets[0] and from offsets[groups] on are not touched.
 * dtypes, sums, flags, bias ([groups, n]) and scales are those of gemm; scale_a is [1], [tokens, 1] or, f8, [tokens,
 * ceil(k / 128)]; scale_b may have a leading axis of groups: [1], [groups, 1, n] or, f8, [groups, ceil(k / 128),
 * ceil(n / 128)]. k = 0 and alpha = 0 leave the bias.
 * Offsets that decrease or are outside [0, tokens]: CPU LLS_ERR_ARGUMENT; CUDA brings each into the range, and a group whose
 * end lies before its begin is empty (rows of two groups then hold either's values). */
typedef struct lls_gemm_grouped_args {
    size_t struct_size;
    const lls_tensor *a;
    const lls_tensor *b;
    const lls_tensor *offsets;
    const lls_tensor *out;
    float alpha; /* as given: LLS_GEMM_GROUPED_ARGS_INIT sets 1 */
    const lls_tensor *bias;
    lls_gemm_act act;
    bool gated;
    const lls_tensor *scale_a;
    const lls_tensor *scale_b;
    uint32_t flags; /* of lls_gemm_flags */
    const char *config;
    const char *variant;
} lls_gemm_grouped_args;
#ifdef __cplusplus
#define LLS_GEMM_GROUPED_ARGS_INIT \
    { sizeof(lls_gemm_grouped_args), NULL, NULL, NULL, NULL, 1.0f }
#else
#define LLS_GEMM_GROUPED_ARGS_INIT \
    { .struct_size = sizeof(lls_gemm_grouped_args), .alpha = 1.0f }
#endif
LLS_API lls_status lls_gemm_grouped(lls_ctx *ctx, const lls_gemm_grouped_args *args, lls_stream stream);

/* ---- linear ---------------------------------------------------------------------------------
 * out[m, n] = sum_k x[m, k] weight[n, k] + bias[n]: the layer of a model, made for few rows m and for quantised
 * weights.
 * x [m, k], out [m, n] float dtypes (each its own), unit inner stride; bias [n] f32 or out's dtype.
 * weight [n, k]: float dtype with unit inner stride, or GGUF blocks, or (CPU) packed by lls_linear_pack.
 * Block weights are never unpacked to floats in memory. With LLS_COMPUTE_DEFAULT and packed block weights the CPU rounds x
 * to 15-bit integers in blocks of 32, kept as two int8 planes (an error up to 0.003 % of each block's largest value), and
 * multiplies integers: its fast path. LLS_COMPUTE_F32, weights in the file's layout, and CUDA keep x in fp32.
 * k not a multiple of the weight's block is LLS_ERR_SHAPE. */
typedef enum lls_compute { LLS_COMPUTE_DEFAULT = 0, LLS_COMPUTE_F32 = 1 } lls_compute;
typedef struct lls_linear_args {
    size_t struct_size;
    const lls_tensor *x;
    const lls_tensor *weight;
    const lls_tensor *bias;
    const lls_tensor *out;
    lls_compute compute;
    const char *variant;
} lls_linear_args;
#define LLS_LINEAR_ARGS_INIT LLS_ARGS_INIT(lls_linear_args)
LLS_API lls_status lls_linear(lls_ctx *ctx, const lls_linear_args *args, lls_stream stream);

/* Packs one or several weights [n_i, k] of one dtype and k, stacked by rows in the order given, for the CPU's vector
 * units.
 * lls_linear_packed_bytes says how large `buffer` must be (about the size of the weights); `out` becomes a view [sum
 * n_i, k] of it with layout LLS_PACKED. CPU contexts only. Values are kept exactly. */
LLS_API lls_status lls_linear_packed_bytes(lls_ctx *ctx, const lls_tensor *weights, int32_t num_weights, size_t *bytes);
LLS_API lls_status lls_linear_pack(lls_ctx *ctx, const lls_tensor *weights, int32_t num_weights, void *buffer,
                                   size_t bytes, lls_tensor *out);

/* ---- rope -----------------------------------------------------------------------------------
 * Rotates pairs of the first rotary_dim elements of each head by positions[t] * inv_freq[pair]; the rest is copied.
 * x, out [tokens, heads, head_dim] of one float dtype, unit inner stride; positions [tokens] i32 (any value). out may
 * be x. A second tensor (the keys beside the queries) rotates in the same call: x2, out2 [tokens, heads2, head_dim].
 * LLS_ROPE_NEOX pairs element i with i + rotary_dim/2; LLS_ROPE_GPTJ pairs 2i with 2i + 1.
 * inv_freq[i] = theta^(-2i/rotary_dim) / freq_factors[i], then scaled as `scaling` says. Angles are exact to fp32
 * rounding at any position, negative ones included.
 * Callers that hold tables give cos and sin, both [table_len, rotary_dim / 2] of one dtype, f32 or x's, unit inner
 * stride: row positions[t] then replaces theta, freq_factors and scaling, which must be left at their defaults. A pair
 * (a, b) becomes (a cos - b sin, b cos + a sin). positions may be NULL: token t reads row t, table_len being tokens. A
 * position outside [0, table_len): CPU LLS_ERR_ARGUMENT, nothing written; CUDA: that token's rotated elements are NaN.
 * Sources: Su et al. 2021, "RoFormer"; Peng et al. 2023, "YaRN"; Meta's Llama 3.1 model code for
 * LLS_ROPE_SCALING_LLAMA3. */
typedef enum lls_rope_style { LLS_ROPE_NEOX = 0, LLS_ROPE_GPTJ = 1 } lls_rope_style;
typedef enum lls_rope_scaling_type {
    LLS_ROPE_SCALING_NONE = 0,
    LLS_ROPE_SCALING_LINEAR = 1,
    LLS_ROPE_SCALING_LLAMA3 = 2,
    LLS_ROPE_SCALING_YARN = 3
} lls_rope_scaling_type;
typedef struct lls_rope_scaling {
    lls_rope_scaling_type type;
    float factor;             /* > 0; context extension, e.g. 8 */
    float low_freq_factor;    /* llama3; 0: 1 */
    float high_freq_factor;   /* llama3; 0: 4 */
    int32_t original_context; /* llama3, yarn: the context the model was trained with */
    float beta_fast;          /* yarn; 0: 32 */
    float beta_slow;          /* yarn; 0: 1 */
    float attention_factor;   /* yarn: scales cos and sin; 0: 0.1 ln(factor) + 1, or 1 for factors below 1 */
} lls_rope_scaling;
#define LLS_ROPE_MAX_PAIRS 128
typedef struct lls_rope_args {
    size_t struct_size;
    const lls_tensor *x;
    const lls_tensor *x2;
    const lls_tensor *positions;
    const lls_tensor *out;
    const lls_tensor *out2;
    lls_rope_style style;
    int32_t rotary_dim;        /* even, at most 256; 0: head_dim */
    float theta;               /* 0: 10000 */
    const float *freq_factors; /* host, [rotary_dim / 2], each > 0; NULL: ones (GGUF tensor rope_freqs) */
    lls_rope_scaling scaling;
    const char *variant;
    const lls_tensor *cos; /* cos and sin: both, or neither */
    const lls_tensor *sin;
} lls_rope_args;
#define LLS_ROPE_ARGS_INIT LLS_ARGS_INIT(lls_rope_args)
LLS_API lls_status lls_rope(lls_ctx *ctx, const lls_rope_args *args, lls_stream stream);

/* The frequencies that lls_rope would use, [rotary_dim / 2] into inv_freq (room for LLS_ROPE_MAX_PAIRS), and the factor
 * on cos and sin.
 * args->rotary_dim must be set; its tensors are not read. */
LLS_API lls_status lls_rope_frequencies(const lls_rope_args *args, double *inv_freq, float *magnitude);

/* ---- kv_write -------------------------------------------------------------------------------
 * Scatters new keys and values into a paged cache: page slots[t] / page_size, row slots[t] % page_size.
 * k [tokens, num_kv_heads, head_dim], v [tokens, num_kv_heads, head_dim_v]; k_cache [num_pages, page_size,
 * num_kv_heads, head_dim], v_cache likewise; float dtypes, k and v of one dtype, the caches of one dtype (converted,
 * rounding to nearest even); unit inner strides, others free. slots [tokens] i64.
 * A negative slot is skipped. A slot at or past num_pages * page_size: CPU LLS_ERR_ARGUMENT with nothing written; CUDA
 * skips it.
 * Two tokens with one slot: either may win, each element for itself. */
typedef struct lls_kv_write_args {
    size_t struct_size;
    const lls_tensor *k;
    const lls_tensor *v;
    const lls_tensor *k_cache;
    const lls_tensor *v_cache;
    const lls_tensor *slots;
    const char *variant;
} lls_kv_write_args;
#define LLS_KV_WRITE_ARGS_INIT LLS_ARGS_INIT(lls_kv_write_args)
LLS_API lls_status lls_kv_write(lls_ctx *ctx, const lls_kv_write_args *args, lls_stream stream);

/* ---- attention: what both forms share -------------------------------------------------------
 * s[i, j] = scale * q_i . k_j;  softcap > 0: s = softcap * tanh(s / softcap);  ALiBi: s += slope[head] * (j - i'),
 * where i' = kv_len - q_len + i;
 * out_i = sum_j softmax(s)_ij v_j over the visible j. A sink adds exp(sink[head]) to the softmax's denominator and
 * nothing to the sum.
 * Causal is aligned bottom-right: row i sees j <= i'. window_left = W: j >= i' - W (the current key and W before it);
 * window_right = W: j <= i' + W;
 * -1 is unlimited. Query head h reads KV head h / (num_heads / num_kv_heads). lse is natural log over the same terms,
 * sink included.
 * A row that sees nothing gives 0, with lse -inf (or the sink). q, k, v have one float dtype in prefill; in decode the
 * cache may have another one than q;
 * out has q's dtype. lse f32. head_dim and head_dim_v 1 to 256; of the CUDA rungs only the naive one takes what is not
 * a multiple of 8. Unit inner stride;
 * all other strides free. What a row does not see cannot harm it, NaN included. A sequence's bits do not depend on its
 * batch-mates. */
typedef struct lls_attn_mask {
    bool causal;
    int32_t window_left;  /* -1: unlimited; LLS_ATTN_*_ARGS_INIT sets -1 */
    int32_t window_right; /* -1: unlimited */
} lls_attn_mask;
typedef struct lls_attn_score {
    float scale;                    /* 0: 1 / sqrt(head_dim) */
    float softcap;                  /* 0: off; negative is an error */
    const lls_tensor *alibi_slopes; /* [num_heads] f32 or NULL */
    const lls_tensor *sinks;        /* [num_heads] f32 or NULL */
} lls_attn_score;
#ifdef __cplusplus
#define LLS__ATTN_ARGS_INIT(type) \
    {                             \
        sizeof(type), {           \
            false, -1, -1         \
        }                         \
    }
#else
#define LLS__ATTN_ARGS_INIT(type)                                                     \
    {                                                                                 \
        .struct_size = sizeof(type), .mask = {.window_left = -1, .window_right = -1 } \
    }
#endif

/* ---- attn_prefill ---------------------------------------------------------------------------
 * Dense:  q [batch, q_len, num_heads, head_dim], k [batch, kv_len, num_kv_heads, head_dim], v [.., head_dim_v], out
 * [batch, q_len, num_heads, head_dim_v],
 *         lse [batch, num_heads, q_len].
 * Varlen: q [total_q, num_heads, head_dim], k [total_kv, ...], v, out [total_q, ...], lse [num_heads, total_q], with
 * cu_seqlens_q, cu_seqlens_kv
 *         [batch + 1] i32, non-decreasing from 0, and max_q_len. Zero lengths are allowed. Rows past the last sequence
 *         are not written.
 *         Bad cu_seqlens or a max_q_len below the longest: CPU LLS_ERR_ARGUMENT; CUDA clips each sequence to the
 *         tensors and to max_q_len rows.
 * bias:   [batch, num_heads, q_len, kv_len], f32 or q's dtype, any strides, 0 to broadcast along an axis; or NULL.
 *         s[i, j] += bias[i, j] after softcap and ALiBi: position biases, and masks of 0 and -inf. -inf hides the key
 *         from the row just as a mask does: what such a key and value hold cannot harm, and a row of -inf alone sees
 *         nothing. +inf or NaN, at a key that causal and window leave visible, makes that row and its lse NaN. Dense
 *         form only: with cu_seqlens LLS_ERR_ARGUMENT.
 * Source: Vaswani et al. 2017; online softmax Milakov and Gimelshein 2018; Dao et al. 2022, "FlashAttention". */
typedef struct lls_attn_prefill_args {
    size_t struct_size;
    lls_attn_mask mask;
    lls_attn_score score;
    const lls_tensor *q;
    const lls_tensor *k;
    const lls_tensor *v;
    const lls_tensor *cu_seqlens_q;
    const lls_tensor *cu_seqlens_kv;
    int32_t max_q_len; /* varlen: at least the longest q_len */
    const lls_tensor *out;
    const lls_tensor *lse;
    const char *variant;
    const lls_tensor *bias; /* dense only */
} lls_attn_prefill_args;
#define LLS_ATTN_PREFILL_ARGS_INIT LLS__ATTN_ARGS_INIT(lls_attn_prefill_args)
LLS_API lls_status lls_attn_prefill(lls_ctx *ctx, const lls_attn_prefill_args *args, lls_stream stream);

/* ---- attn_decode ----------------------------------------------------------------------------
 * Attention of new queries, which are already in the cache, over a KV cache.
 * Queries: q [batch, q_len, num_heads, head_dim] with lse [batch, num_heads, q_len]; or ragged, q [total_q, num_heads,
 * head_dim] with cu_seqlens_q [batch + 1] i32, max_q_len, and lse [num_heads, total_q].
 * Cache: contiguous k_cache [batch, max_kv_len, num_kv_heads, head_dim]; or paged k_cache [num_pages, page_size,
 * num_kv_heads, head_dim] with page_table [batch, max_pages] i32; v_cache likewise with head_dim_v. kv_lens [batch] i32
 * counts the keys of each sequence, its new ones included.
 * Slots at and past kv_len, page-table entries past ceil(kv_len / page_size), and pages nobody names may hold anything,
 * NaN included.
 * A kv_len past the cache, or a page id out of the pool inside the used range: CPU LLS_ERR_ARGUMENT, nothing written;
 * CUDA: that sequence's rows are NaN.
 * q_len 0 and kv_len 0 are allowed. num_splits cuts the keys into parts that are merged (Dao et al. 2023,
 * "Flash-Decoding"); 0 lets the library choose. The CPU cuts long sequences by itself, whatever num_splits says. */
typedef struct lls_attn_decode_args {
    size_t struct_size;
    lls_attn_mask
        /* causal among the new queries: LLS_ATTN_DECODE_ARGS_INIT leaves it off, which is right for q_len 1 only */
        mask;
    lls_attn_score score;
    const lls_tensor *q;
    const lls_tensor *k_cache;
    const lls_tensor *v_cache;
    const lls_tensor *page_table;
    const lls_tensor *kv_lens;
    const lls_tensor *cu_seqlens_q;
    int32_t max_q_len;
    int32_t num_splits; /* at most 128 */
    const lls_tensor *out;
    const lls_tensor *lse;
    const char *variant;
} lls_attn_decode_args;
#define LLS_ATTN_DECODE_ARGS_INIT LLS__ATTN_ARGS_INIT(lls_attn_decode_args)
LLS_API lls_status lls_attn_decode(lls_ctx *ctx, const lls_attn_decode_args *args, lls_stream stream);
/* Bytes of context workspace that this call would need (CUDA with num_splits above 1; elsewhere 0). */
LLS_API lls_status lls_attn_decode_workspace(lls_ctx *ctx, const lls_attn_decode_args *args, size_t *bytes);

/* ---- attn_merge -----------------------------------------------------------------------------
 * Merges attention over two disjoint sets of keys: lse = ln(e^lse_a + e^lse_b), out = e^(lse_a - lse) a + e^(lse_b -
 * lse) b.
 * a, b, out [tokens, num_heads, head_dim] of one float dtype; lse_a, lse_b, lse [tokens, num_heads] f32, any strides
 * but unit inner stride of a, b, out (attn_prefill's lse is this with strides exchanged). lse may be NULL. A state with
 * lse -inf is empty: its values are not read, and the other passes through bit for bit. out may be a or b, lse may be
 * lse_a or lse_b. */
typedef struct lls_attn_merge_args {
    size_t struct_size;
    const lls_tensor *a;
    const lls_tensor *lse_a;
    const lls_tensor *b;
    const lls_tensor *lse_b;
    const lls_tensor *out;
    const lls_tensor *lse;
    const char *variant;
} lls_attn_merge_args;
#define LLS_ATTN_MERGE_ARGS_INIT LLS_ARGS_INIT(lls_attn_merge_args)
LLS_API lls_status lls_attn_merge(lls_ctx *ctx, const lls_attn_merge_args *args, lls_stream stream);

/* ---- gated_act ------------------------------------------------------------------------------
 * out = act(gate) * up, or act(gate) when up is NULL. gate, up, out [rows, n] of one float dtype, unit inner stride
 * (the halves of a fused gate-up projection are two views of it). out may be gate or up. act(-inf) is its limit, 0.
 * Sources: Shazeer 2020, "GLU Variants Improve Transformer"; Hendrycks and Gimpel 2016 for GELU. */
typedef enum lls_act { LLS_ACT_SILU = 0, LLS_ACT_GELU = 1 /* erf */, LLS_ACT_GELU_TANH = 2 } lls_act;
typedef struct lls_gated_act_args {
    size_t struct_size;
    const lls_tensor *gate;
    const lls_tensor *up;
    const lls_tensor *out;
    lls_act act;
    const char *variant;
} lls_gated_act_args;
#define LLS_GATED_ACT_ARGS_INIT LLS_ARGS_INIT(lls_gated_act_args)
LLS_API lls_status lls_gated_act(lls_ctx *ctx, const lls_gated_act_args *args, lls_stream stream);

/* ---- sample ---------------------------------------------------------------------------------
 * Picks one token a row. In this order: repetition penalty (logit > 0: divided, else multiplied, once for each distinct
 * id in history), temperature, top-k, top-p (the smallest set, by falling probability, whose mass among what top-k kept
 * reaches top_p; at least one token), min-p (tokens under min_p times the best one's probability go), then a draw.
 * Equal probabilities rank by index, lowest first. NaN logits count as -inf, which is never chosen; +inf counts as the
 * largest finite fp32.
 * The draw is the Gumbel-max trick, argmax(logit/T + g(seed, step, id)), so a row's result depends on its own seed and
 * step alone, not on its batch-mates, and is the same on the CPU and on CUDA for the same logits (but where top_p or
 * min_p meet a token's probability to within some 1e-12).
 * logits [batch, vocab] float dtype, unit inner stride (columns past vocab are never read); per-row parameters [batch]
 * on the same device, each may be NULL for its default:
 * temperature f32 (0, or below 1e-4: greedy; default 0), top_k i32 (0: off), top_p f32 (1: off; 0: the best token
 * alone), min_p f32 (0: off), repetition_penalty f32 (1: off), seed i64 (0), step i64 (0: the count of tokens drawn so
 * far, so that each draw differs).
 * history [batch, max_history] i32, unit inner stride, with history_lens [batch] i32: ids for the penalty; ids outside
 * the vocabulary are ignored.
 * out_ids [batch] i32; out_probs [batch] f32 or NULL: the chosen token's probability in the final distribution (1 for
 * greedy).
 * A row without any logit above -inf gives id -1, probability 0. Impossible parameters (temperature < 0, top_k < 0,
 * top_p or min_p outside [0, 1], penalty <= 0, NaN or infinity in any of these, a history length outside [0,
 * max_history]): CPU LLS_ERR_ARGUMENT naming row and value; CUDA id -1 for that row.
 * Sources: Holtzman et al. 2019 (top-p); Keskar et al. 2019 (repetition penalty); Gumbel 1954, Maddison et al. 2014
 * (the draw). */
typedef struct lls_sample_args {
    size_t struct_size;
    const lls_tensor *logits;
    const lls_tensor *temperature;
    const lls_tensor *top_k;
    const lls_tensor *top_p;
    const lls_tensor *min_p;
    const lls_tensor *repetition_penalty;
    const lls_tensor *seed;
    const lls_tensor *step;
    const lls_tensor *history;
    const lls_tensor *history_lens;
    const lls_tensor *out_ids;
    const lls_tensor *out_probs;
    const char *variant;
} lls_sample_args;
#define LLS_SAMPLE_ARGS_INIT LLS_ARGS_INIT(lls_sample_args)
LLS_API lls_status lls_sample(lls_ctx *ctx, const lls_sample_args *args, lls_stream stream);

#ifdef __cplusplus
}
#endif

#endif
