/* The hyperparameters of a model, read from a GGUF file's metadata and checked, so that the rest of the engine can
 * compute with them without looking back. Architectures: llama (which is what Mistral and SmolLM files say too),
 * qwen2, qwen3. */
#ifndef LLS_ENGINE_CONFIG_H
#define LLS_ENGINE_CONFIG_H

#include "engine/model/gguf.h"
#include "llmspeed/ops.h"

typedef enum lls__arch { LLS__ARCH_LLAMA = 1, LLS__ARCH_QWEN2 = 2, LLS__ARCH_QWEN3 = 3 } lls__arch;

const char *lls__arch_name(lls__arch arch);

typedef struct lls__model_config {
    lls__arch arch;
    int32_t vocab_size; /* rows of token_embd.weight; may be padded past the tokenizer's tokens, never less */
    int32_t hidden;
    int32_t num_layers;
    int32_t num_heads;
    int32_t num_kv_heads; /* divides num_heads */
    int32_t head_dim;     /* its own key; need not be hidden / num_heads */
    int32_t ffn;
    int32_t context_length; /* positions the model was made for */
    float rms_eps;

    lls_rope_style rope_style; /* llama files hold q and k rows permuted for GPT-J pairs; qwen's are NeoX halves */
    int32_t rotary_dim;        /* even, at most head_dim */
    float rope_theta;
    lls_rope_scaling rope_scaling; /* none, linear or yarn; Llama 3 has the tensor rope_freqs.weight */
    int32_t window_left;           /* keys seen before the current one, as lls_attn_mask has it; -1: all */

    bool tied_embeddings; /* no output.weight: token_embd.weight is the head too. When both exist, output.weight is. */
    bool qkv_bias;        /* attn_{q,k,v}.bias: qwen2 always, others where the file has them */
    bool qk_norm;         /* attn_{q,k}_norm.weight: qwen3 */

    int32_t bos_id;    /* -1: none */
    int32_t eos_id;    /* -1: none */
    int32_t file_type; /* general.file_type, -1: not said. For display only: each tensor has its own dtype. */
} lls__model_config;

/* LLS_ERR_FORMAT for a missing key or a value out of range, LLS_ERR_MODEL for a model that this engine does not run
 * (unknown architecture, mixture of experts, one shard of several, ...); the message names file, key and value.
 * *out is written on success alone. */
lls_status lls__model_config_read(const lls__gguf *gguf, lls__model_config *out);

#endif
