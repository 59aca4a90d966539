#include "op_table.h"

namespace llm_speed {

// The C functions and initialisers of one op behind types that all ops share.
#define BIND(op, OP)                                                                              \
    static void init_##op(void *args) {                                                           \
        *(lls_##op##_args *)args = LLS_##OP##_ARGS_INIT;                                          \
        static_assert(sizeof(lls_##op##_args) <= MAX_ARGS_BYTES, #op " has outgrown the buffer"); \
    }                                                                                             \
    static lls_status call_##op(lls_ctx *ctx, const void *args, lls_stream stream) {              \
        return lls_##op(ctx, (const lls_##op##_args *)args, stream);                              \
    }
#define ROW(op) #op, sizeof(lls_##op##_args), init_##op, call_##op
#define AT(op, member) offsetof(lls_##op##_args, member)

BIND(embed, EMBED)
BIND(rmsnorm, RMSNORM)
BIND(layernorm, LAYERNORM)
BIND(gemm, GEMM)
BIND(linear, LINEAR)
BIND(rope, ROPE)
BIND(kv_write, KV_WRITE)
BIND(attn_prefill, ATTN_PREFILL)
BIND(attn_decode, ATTN_DECODE)
BIND(attn_merge, ATTN_MERGE)
BIND(gated_act, GATED_ACT)
BIND(sample, SAMPLE)

static lls_status attn_decode_workspace(lls_ctx *ctx, const void *args, size_t *bytes) {
    return lls_attn_decode_workspace(ctx, (const lls_attn_decode_args *)args, bytes);
}

const Op op_table[] = {
    {ROW(embed),
     nullptr,
     {{"table", Kind::IN, AT(embed, table)},
      {"table_type", Kind::BLOCKS, AT(embed, table)},
      {"ids", Kind::IN, AT(embed, ids), 1},
      {"out", Kind::OUT, AT(embed, out), 2},
      {"scale", Kind::FLOAT, AT(embed, scale)},
      {"variant", Kind::STRING, AT(embed, variant)}}},
    {ROW(rmsnorm),
     nullptr,
     {{"x", Kind::IN, AT(rmsnorm, x)},
      {"weight", Kind::OPTIONAL_IN, AT(rmsnorm, weight)},
      {"residual", Kind::OPTIONAL_IN, AT(rmsnorm, residual)},
      {"residual_out", Kind::OPTIONAL_OUT, AT(rmsnorm, residual_out)},
      {"out", Kind::OUT, AT(rmsnorm, out)},
      {"eps", Kind::FLOAT, AT(rmsnorm, eps)},
      {"weight_offset", Kind::FLOAT, AT(rmsnorm, weight_offset)},
      {"variant", Kind::STRING, AT(rmsnorm, variant)}}},
    {ROW(layernorm),
     nullptr,
     {{"x", Kind::IN, AT(layernorm, x)},
      {"weight", Kind::OPTIONAL_IN, AT(layernorm, weight)},
      {"bias", Kind::OPTIONAL_IN, AT(layernorm, bias)},
      {"out", Kind::OUT, AT(layernorm, out)},
      {"eps", Kind::FLOAT, AT(layernorm, eps)},
      {"variant", Kind::STRING, AT(layernorm, variant)}}},
    {ROW(gemm),
     nullptr,
     {{"a", Kind::IN, AT(gemm, a)},
      {"b", Kind::IN, AT(gemm, b)},
      {"c", Kind::OPTIONAL_IN, AT(gemm, c)},
      {"out", Kind::OUT, AT(gemm, out)},
      {"alpha", Kind::FLOAT, AT(gemm, alpha)},
      {"beta", Kind::FLOAT, AT(gemm, beta)},
      {"variant", Kind::STRING, AT(gemm, variant)}}},
    {ROW(linear),
     nullptr,
     {{"x", Kind::IN, AT(linear, x), 2},
      {"weight", Kind::WEIGHT, AT(linear, weight)},
      {"weight_type", Kind::BLOCKS, AT(linear, weight)},
      {"bias", Kind::OPTIONAL_IN, AT(linear, bias)},
      {"out", Kind::OUT, AT(linear, out), 2},
      {"compute", Kind::INT, AT(linear, compute)},
      {"variant", Kind::STRING, AT(linear, variant)}}},
    {ROW(rope),
     nullptr,
     {{"x", Kind::IN, AT(rope, x), 3},
      {"x2", Kind::OPTIONAL_IN, AT(rope, x2), 3},
      {"positions", Kind::OPTIONAL_IN, AT(rope, positions), 1},
      {"cos", Kind::OPTIONAL_IN, AT(rope, cos), 2},
      {"sin", Kind::OPTIONAL_IN, AT(rope, sin), 2},
      {"out", Kind::OUT, AT(rope, out), 3},
      {"out2", Kind::OPTIONAL_OUT, AT(rope, out2), 3},
      {"style", Kind::INT, AT(rope, style)},
      {"rotary_dim", Kind::INT, AT(rope, rotary_dim)},
      {"theta", Kind::FLOAT, AT(rope, theta)},
      {"freq_factors", Kind::FLOATS, AT(rope, freq_factors)},
      {"scaling_type", Kind::INT, AT(rope, scaling.type)},
      {"factor", Kind::FLOAT, AT(rope, scaling.factor)},
      {"low_freq_factor", Kind::FLOAT, AT(rope, scaling.low_freq_factor)},
      {"high_freq_factor", Kind::FLOAT, AT(rope, scaling.high_freq_factor)},
      {"original_context", Kind::INT, AT(rope, scaling.original_context)},
      {"beta_fast", Kind::FLOAT, AT(rope, scaling.beta_fast)},
      {"beta_slow", Kind::FLOAT, AT(rope, scaling.beta_slow)},
      {"attention_factor", Kind::FLOAT, AT(rope, scaling.attention_factor)},
      {"variant", Kind::STRING, AT(rope, variant)}}},
    {ROW(kv_write),
     nullptr,
     {{"k", Kind::IN, AT(kv_write, k), 3},
      {"v", Kind::IN, AT(kv_write, v), 3},
      {"k_cache", Kind::OUT, AT(kv_write, k_cache)},
      {"v_cache", Kind::OUT, AT(kv_write, v_cache)},
      {"slots", Kind::IN, AT(kv_write, slots), 1},
      {"variant", Kind::STRING, AT(kv_write, variant)}}},
    {ROW(attn_prefill),
     nullptr,
     {{"q", Kind::IN, AT(attn_prefill, q)},
      {"k", Kind::IN, AT(attn_prefill, k)},
      {"v", Kind::IN, AT(attn_prefill, v)},
      {"cu_seqlens_q", Kind::OPTIONAL_IN, AT(attn_prefill, cu_seqlens_q)},
      {"cu_seqlens_kv", Kind::OPTIONAL_IN, AT(attn_prefill, cu_seqlens_kv)},
      {"bias", Kind::OPTIONAL_IN, AT(attn_prefill, bias)},
      {"alibi_slopes", Kind::OPTIONAL_IN, AT(attn_prefill, score.alibi_slopes)},
      {"sinks", Kind::OPTIONAL_IN, AT(attn_prefill, score.sinks)},
      {"out", Kind::OUT, AT(attn_prefill, out)},
      {"lse", Kind::OPTIONAL_OUT, AT(attn_prefill, lse)},
      {"max_q_len", Kind::INT, AT(attn_prefill, max_q_len)},
      {"causal", Kind::BOOL, AT(attn_prefill, mask.causal)},
      {"window_left", Kind::INT, AT(attn_prefill, mask.window_left)},
      {"window_right", Kind::INT, AT(attn_prefill, mask.window_right)},
      {"scale", Kind::FLOAT, AT(attn_prefill, score.scale)},
      {"softcap", Kind::FLOAT, AT(attn_prefill, score.softcap)},
      {"variant", Kind::STRING, AT(attn_prefill, variant)}}},
    {ROW(attn_decode),
     attn_decode_workspace,
     {{"q", Kind::IN, AT(attn_decode, q)},
      {"k_cache", Kind::IN, AT(attn_decode, k_cache)},
      {"v_cache", Kind::IN, AT(attn_decode, v_cache)},
      {"kv_lens", Kind::IN, AT(attn_decode, kv_lens)},
      {"page_table", Kind::OPTIONAL_IN, AT(attn_decode, page_table)},
      {"cu_seqlens_q", Kind::OPTIONAL_IN, AT(attn_decode, cu_seqlens_q)},
      {"alibi_slopes", Kind::OPTIONAL_IN, AT(attn_decode, score.alibi_slopes)},
      {"sinks", Kind::OPTIONAL_IN, AT(attn_decode, score.sinks)},
      {"out", Kind::OUT, AT(attn_decode, out)},
      {"lse", Kind::OPTIONAL_OUT, AT(attn_decode, lse)},
      {"max_q_len", Kind::INT, AT(attn_decode, max_q_len)},
      {"num_splits", Kind::INT, AT(attn_decode, num_splits)},
      {"causal", Kind::BOOL, AT(attn_decode, mask.causal)},
      {"window_left", Kind::INT, AT(attn_decode, mask.window_left)},
      {"window_right", Kind::INT, AT(attn_decode, mask.window_right)},
      {"scale", Kind::FLOAT, AT(attn_decode, score.scale)},
      {"softcap", Kind::FLOAT, AT(attn_decode, score.softcap)},
      {"variant", Kind::STRING, AT(attn_decode, variant)}}},
    {ROW(attn_merge),
     nullptr,
     {{"a", Kind::IN, AT(attn_merge, a), 3},
      {"lse_a", Kind::IN, AT(attn_merge, lse_a), 2},
      {"b", Kind::IN, AT(attn_merge, b), 3},
      {"lse_b", Kind::IN, AT(attn_merge, lse_b), 2},
      {"out", Kind::OUT, AT(attn_merge, out), 3},
      {"lse", Kind::OPTIONAL_OUT, AT(attn_merge, lse), 2},
      {"variant", Kind::STRING, AT(attn_merge, variant)}}},
    {ROW(gated_act),
     nullptr,
     {{"gate", Kind::IN, AT(gated_act, gate), 2},
      {"up", Kind::OPTIONAL_IN, AT(gated_act, up), 2},
      {"out", Kind::OUT, AT(gated_act, out), 2},
      {"act", Kind::INT, AT(gated_act, act)},
      {"variant", Kind::STRING, AT(gated_act, variant)}}},
    {ROW(sample),
     nullptr,
     {{"logits", Kind::IN, AT(sample, logits)},
      {"temperature", Kind::OPTIONAL_IN, AT(sample, temperature)},
      {"top_k", Kind::OPTIONAL_IN, AT(sample, top_k)},
      {"top_p", Kind::OPTIONAL_IN, AT(sample, top_p)},
      {"min_p", Kind::OPTIONAL_IN, AT(sample, min_p)},
      {"repetition_penalty", Kind::OPTIONAL_IN, AT(sample, repetition_penalty)},
      {"seed", Kind::OPTIONAL_IN, AT(sample, seed)},
      {"step", Kind::OPTIONAL_IN, AT(sample, step)},
      {"history", Kind::OPTIONAL_IN, AT(sample, history)},
      {"history_lens", Kind::OPTIONAL_IN, AT(sample, history_lens)},
      {"out_ids", Kind::OUT, AT(sample, out_ids)},
      {"out_probs", Kind::OPTIONAL_OUT, AT(sample, out_probs)},
      {"variant", Kind::STRING, AT(sample, variant)}}},
    {},
};

} // namespace llm_speed
