#include "engine/model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// Bounds far above any model, low enough that products of a few of them fit int64.
enum {
    MAX_VOCAB = 1 << 24,
    MAX_HIDDEN = 1 << 20,
    MAX_LAYERS = 4096,
    MAX_HEADS = 4096,
    MAX_HEAD_DIM = 4096,
    MAX_FFN = 1 << 22,
    MAX_CONTEXT = 1 << 28
};

static const struct {
    const char *name; // general.architecture, and the prefix of the keys
    lls__arch arch;
    lls_rope_style rope_style;
    bool qkv_bias;
    bool qk_norm;
} archs[] = {
    {"llama", LLS__ARCH_LLAMA, LLS_ROPE_GPTJ, false, false},
    {"qwen2", LLS__ARCH_QWEN2, LLS_ROPE_NEOX, true, false},
    {"qwen3", LLS__ARCH_QWEN3, LLS_ROPE_NEOX, false, true},
};
enum { NUM_ARCHS = sizeof archs / sizeof archs[0] };

const char *lls__arch_name(lls__arch arch) {
    for (int i = 0; i < NUM_ARCHS; i++) {
        if (archs[i].arch == arch) {
            return archs[i].name;
        }
    }
    return "unknown";
}

static bool equals(lls__gguf_str s, const char *text) {
    return s.size == strlen(text) && memcmp(s.data, text, s.size) == 0;
}

// ---- Keys under the architecture's prefix ----------------------------------------------------------

typedef struct key_name {
    char text[96];
} key_name;

static key_name key_of(lls__arch arch, const char *suffix) {
    key_name key;
    snprintf(key.text, sizeof key.text, "%s.%s", lls__arch_name(arch), suffix);
    return key;
}

static lls_status fail_absent(const lls__gguf *g, const char *key) {
    return lls__fail(LLS_ERR_FORMAT, "config: %s: key '%s' is missing", g->name, key);
}

static lls_status read_i32(const lls__gguf *g, const char *key, int32_t fallback, int32_t min, int32_t max,
                           int32_t *out) {
    int64_t value;
    LLS_TRY(lls__gguf_int(g, key, fallback, min, max, &value));
    *out = (int32_t)value;
    return LLS_OK;
}

// A size of 1 to max. Some writers give one value a layer: taken when all are equal. fallback 0: the key must exist.
static lls_status read_size(const lls__gguf *g, lls__arch arch, const char *suffix, int32_t fallback, int32_t max,
                            int32_t *out) {
    key_name key = key_of(arch, suffix);
    const lls__gguf_kv *kv = lls__gguf_find(g, key.text);
    if (kv == NULL && fallback == 0) {
        return fail_absent(g, key.text);
    }
    if (kv == NULL || !kv->is_array) {
        return read_i32(g, key.text, fallback, 1, max, out);
    }
    LLS_TRY(lls__gguf_array(g, key.text, LLS__GGUF_KIND_INT, &kv));
    if (kv->count == 0) {
        return lls__fail(LLS_ERR_FORMAT, "config: %s: key '%s' is an empty array", g->name, key.text);
    }
    int64_t first = lls__gguf_int_at(kv, 0);
    for (uint64_t i = 1; i < kv->count; i++) {
        if (lls__gguf_int_at(kv, i) != first) {
            return lls__fail(LLS_ERR_MODEL,
                             "config: %s: key '%s' is %lld in layer 0 and %lld in layer %llu, must be "
                             "the same in all layers",
                             g->name, key.text, (long long)first, (long long)lls__gguf_int_at(kv, i),
                             (unsigned long long)i);
        }
    }
    if (first < 1 || first > max) {
        return lls__fail(LLS_ERR_FORMAT, "config: %s: key '%s' is %lld, must be 1 to %d", g->name, key.text,
                         (long long)first, max);
    }
    *out = (int32_t)first;
    return LLS_OK;
}

// A float in (0, max]. fallback 0: the key must exist.
static lls_status read_positive(const lls__gguf *g, lls__arch arch, const char *suffix, double fallback, double max,
                                float *out) {
    key_name key = key_of(arch, suffix);
    double value;
    if (fallback == 0 && lls__gguf_find(g, key.text) == NULL) {
        return fail_absent(g, key.text);
    }
    LLS_TRY(lls__gguf_float(g, key.text, fallback, &value));
    if (!(value > 0 && value <= max)) { // a NaN fails both
        return lls__fail(LLS_ERR_FORMAT, "config: %s: key '%s' is %g, must be above 0 and at most %g", g->name,
                         key.text, value, max);
    }
    *out = (float)value;
    return LLS_OK;
}

// ---- Groups of values ------------------------------------------------------------------------------

static lls_status read_arch(const lls__gguf *g, lls__model_config *c) {
    lls__gguf_str name;
    LLS_TRY(lls__gguf_string(g, "general.architecture", &name));
    if (name.data == NULL) {
        return fail_absent(g, "general.architecture");
    }
    for (int i = 0; i < NUM_ARCHS; i++) {
        if (equals(name, archs[i].name)) {
            c->arch = archs[i].arch;
            c->rope_style = archs[i].rope_style;
            c->qkv_bias = archs[i].qkv_bias || lls__gguf_find_tensor(g, "blk.0.attn_q.bias") != NULL;
            c->qk_norm = archs[i].qk_norm;
            return LLS_OK;
        }
    }
    return lls__fail(LLS_ERR_MODEL, "config: %s: general.architecture is '%.*s', must be llama, qwen2 or qwen3",
                     g->name, LLS__GGUF_CLIPPED(name));
}

// Features that would change the result if they were ignored.
static lls_status refuse_unknown_features(const lls__gguf *g, lls__arch arch) {
    uint32_t num_experts;
    LLS_TRY(lls__gguf_u32(g, key_of(arch, "expert_count").text, 0, &num_experts));
    if (num_experts != 0) {
        return lls__fail(LLS_ERR_MODEL, "config: %s: key '%s' is %u: mixtures of experts are not supported", g->name,
                         key_of(arch, "expert_count").text, num_experts);
    }
    bool causal;
    LLS_TRY(lls__gguf_bool(g, key_of(arch, "attention.causal").text, true, &causal));
    if (!causal) {
        return lls__fail(LLS_ERR_MODEL, "config: %s: key '%s' is false: only causal models are supported", g->name,
                         key_of(arch, "attention.causal").text);
    }
    uint32_t shards;
    LLS_TRY(lls__gguf_u32(g, "split.count", 1, &shards));
    if (shards > 1) {
        return lls__fail(LLS_ERR_MODEL,
                         "config: %s: key 'split.count' is %u: this file is one shard of %u, which must be merged "
                         "into one file first",
                         g->name, shards, shards);
    }
    return LLS_OK;
}

static lls_status read_sizes(const lls__gguf *g, lls__model_config *c) {
    LLS_TRY(read_size(g, c->arch, "embedding_length", 0, MAX_HIDDEN, &c->hidden));
    LLS_TRY(read_size(g, c->arch, "block_count", 0, MAX_LAYERS, &c->num_layers));
    LLS_TRY(read_size(g, c->arch, "feed_forward_length", 0, MAX_FFN, &c->ffn));
    LLS_TRY(read_size(g, c->arch, "context_length", 0, MAX_CONTEXT, &c->context_length));
    LLS_TRY(read_size(g, c->arch, "attention.head_count", 0, MAX_HEADS, &c->num_heads));
    LLS_TRY(read_size(g, c->arch, "attention.head_count_kv", c->num_heads, MAX_HEADS, &c->num_kv_heads));
    if (c->num_heads % c->num_kv_heads != 0) {
        return lls__fail(LLS_ERR_FORMAT, "config: %s: key '%s' is %d, must divide attention.head_count = %d", g->name,
                         key_of(c->arch, "attention.head_count_kv").text, c->num_kv_heads, c->num_heads);
    }
    return read_positive(g, c->arch, "attention.layer_norm_rms_epsilon", 0.0, 1.0, &c->rms_eps);
}

static lls_status read_head_dim(const lls__gguf *g, lls__model_config *c) {
    key_name key = key_of(c->arch, "attention.key_length");
    if (lls__gguf_find(g, key.text) == NULL && c->hidden % c->num_heads != 0) {
        return lls__fail(LLS_ERR_FORMAT,
                         "config: %s: key '%s' is missing, and embedding_length = %d is not a multiple "
                         "of attention.head_count = %d",
                         g->name, key.text, c->hidden, c->num_heads);
    }
    int32_t value_length;
    LLS_TRY(read_size(g, c->arch, "attention.key_length", c->hidden / c->num_heads, MAX_HEAD_DIM, &c->head_dim));
    LLS_TRY(read_size(g, c->arch, "attention.value_length", c->head_dim, MAX_HEAD_DIM, &value_length));
    if (value_length != c->head_dim) {
        return lls__fail(LLS_ERR_MODEL, "config: %s: key '%s' is %d, must equal attention.key_length = %d", g->name,
                         key_of(c->arch, "attention.value_length").text, value_length, c->head_dim);
    }
    return LLS_OK;
}

static lls_status read_rope_scaling(const lls__gguf *g, lls__model_config *c) {
    key_name key = key_of(c->arch, "rope.scaling.type");
    lls_rope_scaling *s = &c->rope_scaling;
    lls__gguf_str type;
    LLS_TRY(lls__gguf_string(g, key.text, &type));
    if (type.data == NULL) {
        // Old files have no type, only a linear factor.
        LLS_TRY(read_positive(g, c->arch, "rope.scale_linear", 1.0, 1e6, &s->factor));
        s->type = s->factor == 1.0f ? LLS_ROPE_SCALING_NONE : LLS_ROPE_SCALING_LINEAR;
        return LLS_OK;
    }
    LLS_TRY(read_positive(g, c->arch, "rope.scaling.factor", 1.0, 1e6, &s->factor));
    if (equals(type, "none")) {
        s->type = LLS_ROPE_SCALING_NONE;
    } else if (equals(type, "linear")) {
        s->type = LLS_ROPE_SCALING_LINEAR;
    } else if (equals(type, "yarn")) {
        s->type = LLS_ROPE_SCALING_YARN;
        LLS_TRY(read_size(g, c->arch, "rope.scaling.original_context_length", c->context_length, MAX_CONTEXT,
                          &s->original_context));
        LLS_TRY(read_positive(g, c->arch, "rope.scaling.yarn_beta_fast", 32.0, 1e6, &s->beta_fast));
        LLS_TRY(read_positive(g, c->arch, "rope.scaling.yarn_beta_slow", 1.0, 1e6, &s->beta_slow));
        // The file's factor multiplies YaRN's own magnitude, 0.1 ln(factor) + 1.
        LLS_TRY(read_positive(g, c->arch, "rope.scaling.attn_factor", 1.0, 1e6, &s->attention_factor));
        s->attention_factor *= s->factor > 1.0f ? 0.1f * logf(s->factor) + 1.0f : 1.0f;
    } else {
        return lls__fail(LLS_ERR_MODEL, "config: %s: key '%s' is '%.*s', must be none, linear or yarn", g->name,
                         key.text, LLS__GGUF_CLIPPED(type));
    }
    return LLS_OK;
}

static lls_status read_rope(const lls__gguf *g, lls__model_config *c) {
    LLS_TRY(read_size(g, c->arch, "rope.dimension_count", c->head_dim, MAX_HEAD_DIM, &c->rotary_dim));
    if (c->rotary_dim % 2 != 0 || c->rotary_dim > c->head_dim) {
        return lls__fail(LLS_ERR_FORMAT, "config: %s: key '%s' is %d, must be even and at most the head size %d",
                         g->name, key_of(c->arch, "rope.dimension_count").text, c->rotary_dim, c->head_dim);
    }
    LLS_TRY(read_positive(g, c->arch, "rope.freq_base", 10000.0, 1e12, &c->rope_theta));
    return read_rope_scaling(g, c);
}

// The file counts the current key among its window; lls_attn_mask does not.
static lls_status read_window(const lls__gguf *g, lls__model_config *c) {
    int32_t window;
    LLS_TRY(read_i32(g, key_of(c->arch, "attention.sliding_window").text, 0, 0, MAX_CONTEXT, &window));
    c->window_left = window - 1;
    return LLS_OK;
}

static lls_status check_embedding(const lls__gguf *g, const lls__model_config *c, const lls__gguf_tensor *t) {
    if (t->ndim != 2 || t->shape[1] != c->hidden || t->shape[0] > MAX_VOCAB) {
        return lls__fail(LLS_ERR_FORMAT,
                         "config: %s: tensor '%s' has %d dimensions, sizes %lld x %lld, must be [at most %d, "
                         "embedding_length = %d]",
                         g->name, t->name, t->ndim, (long long)t->shape[0], (long long)t->shape[1], MAX_VOCAB,
                         c->hidden);
    }
    return LLS_OK;
}

static lls_status read_vocab(const lls__gguf *g, lls__model_config *c) {
    const lls__gguf_tensor *embed = lls__gguf_find_tensor(g, "token_embd.weight");
    if (embed == NULL) {
        return lls__fail(LLS_ERR_FORMAT, "config: %s: tensor 'token_embd.weight' is missing", g->name);
    }
    LLS_TRY(check_embedding(g, c, embed));
    c->vocab_size = (int32_t)embed->shape[0];

    const lls__gguf_tensor *head = lls__gguf_find_tensor(g, "output.weight");
    c->tied_embeddings = head == NULL;
    if (head != NULL) {
        LLS_TRY(check_embedding(g, c, head));
        if (head->shape[0] != embed->shape[0]) {
            return lls__fail(LLS_ERR_FORMAT, "config: %s: tensor 'output.weight' has %lld rows, token_embd.weight %lld",
                             g->name, (long long)head->shape[0], (long long)embed->shape[0]);
        }
    }

    const lls__gguf_kv *tokens;
    LLS_TRY(lls__gguf_array(g, "tokenizer.ggml.tokens", LLS__GGUF_KIND_STRING, &tokens));
    if (tokens != NULL && tokens->count > (uint64_t)c->vocab_size) {
        return lls__fail(LLS_ERR_FORMAT,
                         "config: %s: tokenizer.ggml.tokens has %llu tokens, token_embd.weight only %d "
                         "rows",
                         g->name, (unsigned long long)tokens->count, c->vocab_size);
    }
    LLS_TRY(read_i32(g, "tokenizer.ggml.bos_token_id", -1, -1, c->vocab_size - 1, &c->bos_id));
    return read_i32(g, "tokenizer.ggml.eos_token_id", -1, -1, c->vocab_size - 1, &c->eos_id);
}

lls_status lls__model_config_read(const lls__gguf *g, lls__model_config *out) {
    lls__model_config c = {0};
    LLS_TRY(read_arch(g, &c));
    LLS_TRY(refuse_unknown_features(g, c.arch));
    LLS_TRY(read_sizes(g, &c));
    LLS_TRY(read_head_dim(g, &c));
    LLS_TRY(read_rope(g, &c));
    LLS_TRY(read_window(g, &c));
    LLS_TRY(read_vocab(g, &c));
    LLS_TRY(read_i32(g, "general.file_type", -1, 0, INT32_MAX, &c.file_type));
    *out = c;
    return LLS_OK;
}
