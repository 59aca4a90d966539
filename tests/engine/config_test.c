/* Model configuration from GGUF metadata: what each key means (known faults E04, L07, A07), what is refused (L06). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/gguf_builder.h"
#include "engine/model/config.h"

#ifndef LLS_GOLDEN_DIR
#error "LLS_GOLDEN_DIR must name tests/golden"
#endif

// ---- A small model, of which each test changes a few keys ------------------------------------------

typedef struct setting {
    const char *key; // NULL ends a list
    enum { U32, FLOAT, STRING, I32_ARRAY, ABSENT } kind;
    double number;
    const char *text;
    int32_t array[3];
} setting;

enum { MAX_SETTINGS = 32 };

static const setting base[] = {
    {.key = "general.architecture", .kind = STRING, .text = "llama"},
    {.key = "llama.embedding_length", .kind = U32, .number = 16},
    {.key = "llama.block_count", .kind = U32, .number = 2},
    {.key = "llama.feed_forward_length", .kind = U32, .number = 24},
    {.key = "llama.context_length", .kind = U32, .number = 128},
    {.key = "llama.attention.head_count", .kind = U32, .number = 4},
    {.key = "llama.attention.head_count_kv", .kind = U32, .number = 2},
    {.key = "llama.attention.layer_norm_rms_epsilon", .kind = FLOAT, .number = 0.00001},
};
enum { NUM_BASE = sizeof base / sizeof base[0] };

// The base settings with `changes` (ended by a NULL key) replacing or joining them.
static size_t merge(const setting *changes, setting *out) {
    size_t n = NUM_BASE;
    memcpy(out, base, sizeof base);
    for (const setting *change = changes; change->key != NULL; change++) {
        size_t i = 0;
        while (i < n && strcmp(out[i].key, change->key) != 0) {
            i++;
        }
        n += i == n;
        assert_true(n <= MAX_SETTINGS);
        out[i] = *change;
    }
    return n;
}

static void build_setting(gguf_builder *b, const setting *s) {
    switch (s->kind) {
    case U32: build_kv_u32(b, s->key, (uint32_t)s->number); break;
    case FLOAT: build_kv_f32(b, s->key, (float)s->number); break;
    case STRING: build_kv_string(b, s->key, s->text); break;
    case I32_ARRAY:
        build_kv(b, s->key, LLS__GGUF_ARRAY, NULL, 0);
        build_u32(b, LLS__GGUF_I32);
        build_u64(b, sizeof s->array / sizeof s->array[0]);
        build_bytes(b, s->array, sizeof s->array);
        break;
    case ABSENT: break;
    }
}

// Rows of token_embd.weight and output.weight; 0: the tensor is absent. num_tokens: of the tokenizer, 0: no such key.
typedef struct vocabulary {
    uint64_t embed_rows, head_rows, num_tokens;
} vocabulary;

static gguf_builder build_model(const setting *changes, vocabulary v) {
    setting settings[MAX_SETTINGS];
    size_t n = merge(changes, settings), num_kvs = v.num_tokens > 0;
    for (size_t i = 0; i < n; i++) {
        num_kvs += settings[i].kind != ABSENT;
    }
    gguf_builder b = {0};
    build_header(&b, 3, (v.embed_rows > 0) + (v.head_rows > 0), num_kvs);
    for (size_t i = 0; i < n; i++) {
        build_setting(&b, &settings[i]);
    }
    if (v.num_tokens > 0) {
        build_kv(&b, "tokenizer.ggml.tokens", LLS__GGUF_ARRAY, NULL, 0);
        build_u32(&b, LLS__GGUF_STRING);
        build_u64(&b, v.num_tokens);
        for (uint64_t i = 0; i < v.num_tokens; i++) {
            build_string(&b, "t");
        }
    }
    uint64_t embed_bytes = v.embed_rows * 16 * sizeof(float);
    if (v.embed_rows > 0) {
        build_tensor_info(&b, "token_embd.weight", 2, (uint64_t[]){16, v.embed_rows}, 0, 0);
    }
    if (v.head_rows > 0) {
        build_tensor_info(&b, "output.weight", 2, (uint64_t[]){16, v.head_rows}, 0, embed_bytes);
    }
    build_padding(&b, 32);
    for (uint64_t i = 0; i < embed_bytes + v.head_rows * 16 * sizeof(float); i++) {
        build_bytes(&b, "", 1);
    }
    return b;
}

static const vocabulary tied = {.embed_rows = 32};
#define SETTINGS(...) ((const setting[]){__VA_ARGS__, {.key = NULL}})
static const setting unchanged[] = {{.key = NULL}};

static lls_status read_model(const setting *changes, vocabulary v, lls__model_config *out) {
    gguf_builder b = build_model(changes, v);
    lls__gguf *g = NULL;
    assert_int_equal(lls__gguf_parse(b.bytes, b.size, "test.gguf", &g), LLS_OK);
    lls_status status = lls__model_config_read(g, out);
    lls__gguf_close(g);
    build_free(&b);
    return status;
}

static lls__model_config accept(const setting *changes, vocabulary v) {
    lls__model_config c;
    if (read_model(changes, v, &c) != LLS_OK) {
        fail_msg("refused: %s", lls_last_error());
    }
    return c;
}

static void refuse(const setting *changes, vocabulary v, lls_status status, const char *text) {
    lls__model_config c, before;
    memset(&c, 0xa5, sizeof c);
    memcpy(&before, &c, sizeof c);
    lls_status got = read_model(changes, v, &c);
    if (got != status || strstr(lls_last_error(), text) == NULL || strstr(lls_last_error(), "test.gguf") == NULL) {
        fail_msg("got %s \"%s\", wanted %s with \"%s\"", lls_status_name(got), lls_last_error(),
                 lls_status_name(status), text);
    }
    assert_memory_equal(&c, &before, sizeof c);
}

// ---- Meaning ---------------------------------------------------------------------------------------

static void test_llama(void **state) {
    (void)state;
    lls__model_config c = accept(unchanged, tied);
    assert_int_equal(c.arch, LLS__ARCH_LLAMA);
    assert_string_equal(lls__arch_name(c.arch), "llama");
    assert_int_equal(c.vocab_size, 32);
    assert_int_equal(c.hidden, 16);
    assert_int_equal(c.num_layers, 2);
    assert_int_equal(c.num_heads, 4);
    assert_int_equal(c.num_kv_heads, 2);
    assert_int_equal(c.head_dim, 4);
    assert_int_equal(c.ffn, 24);
    assert_int_equal(c.context_length, 128);
    assert_true(c.rms_eps == 0.00001f);
    assert_int_equal(c.rope_style, LLS_ROPE_GPTJ);
    assert_int_equal(c.rotary_dim, 4);
    assert_true(c.rope_theta == 10000.0f);
    assert_int_equal(c.rope_scaling.type, LLS_ROPE_SCALING_NONE);
    assert_int_equal(c.window_left, -1);
    assert_false(c.qkv_bias);
    assert_false(c.qk_norm);
    assert_int_equal(c.bos_id, -1);
    assert_int_equal(c.eos_id, -1);
    assert_int_equal(c.file_type, -1);
}

static void test_e04_head_dim_of_its_own(void **state) {
    (void)state;
    lls__model_config c = accept(SETTINGS({.key = "llama.attention.key_length", .kind = U32, .number = 8},
                                          {.key = "llama.attention.value_length", .kind = U32, .number = 8}),
                                 tied);
    assert_int_equal(c.head_dim, 8);
    assert_int_equal(c.rotary_dim, 8);
    // hidden / num_heads need not be whole then
    c = accept(SETTINGS({.key = "llama.attention.key_length", .kind = U32, .number = 8},
                        {.key = "llama.attention.head_count", .kind = U32, .number = 6}),
               tied);
    assert_int_equal(c.head_dim, 8);
    refuse(SETTINGS({.key = "llama.attention.head_count", .kind = U32, .number = 6}), tied, LLS_ERR_FORMAT,
           "'llama.attention.key_length' is missing");
    refuse(SETTINGS({.key = "llama.attention.value_length", .kind = U32, .number = 6}), tied, LLS_ERR_MODEL,
           "'llama.attention.value_length' is 6");
}

static void test_e04_absent_keys(void **state) {
    (void)state;
    lls__model_config c = accept(SETTINGS({.key = "llama.attention.head_count_kv", .kind = ABSENT}), tied);
    assert_int_equal(c.num_kv_heads, 4);
    static const char *const needed[] = {"general.architecture",
                                         "llama.embedding_length",
                                         "llama.block_count",
                                         "llama.feed_forward_length",
                                         "llama.context_length",
                                         "llama.attention.head_count",
                                         "llama.attention.layer_norm_rms_epsilon"};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        char text[96];
        snprintf(text, sizeof text, "'%s' is missing", needed[i]);
        refuse(SETTINGS({.key = needed[i], .kind = ABSENT}), tied, LLS_ERR_FORMAT, text);
    }
}

static void test_e04_padded_vocabulary(void **state) {
    (void)state;
    assert_int_equal(accept(unchanged, (vocabulary){.embed_rows = 32, .num_tokens = 30}).vocab_size, 32);
    refuse(unchanged, (vocabulary){.embed_rows = 32, .num_tokens = 33}, LLS_ERR_FORMAT, "33 tokens");
    lls__model_config c = accept(SETTINGS({.key = "tokenizer.ggml.bos_token_id", .kind = U32, .number = 1},
                                          {.key = "tokenizer.ggml.eos_token_id", .kind = U32, .number = 31}),
                                 tied);
    assert_int_equal(c.bos_id, 1);
    assert_int_equal(c.eos_id, 31);
    refuse(SETTINGS({.key = "tokenizer.ggml.eos_token_id", .kind = U32, .number = 32}), tied, LLS_ERR_FORMAT,
           "'tokenizer.ggml.eos_token_id' is 32");
}

static void test_l07_tied_and_untied_heads(void **state) {
    (void)state;
    assert_true(accept(unchanged, tied).tied_embeddings);
    assert_false(accept(unchanged, (vocabulary){.embed_rows = 32, .head_rows = 32}).tied_embeddings);
    refuse(unchanged, (vocabulary){.embed_rows = 32, .head_rows = 31}, LLS_ERR_FORMAT, "'output.weight' has 31 rows");
    refuse(unchanged, (vocabulary){.head_rows = 32}, LLS_ERR_FORMAT, "'token_embd.weight' is missing");
    refuse(SETTINGS({.key = "llama.embedding_length", .kind = U32, .number = 8}), tied, LLS_ERR_FORMAT,
           "'token_embd.weight'");
}

static void test_a07_window(void **state) {
    (void)state;
    // A window of 4096 keys is the current one and the 4095 before it.
    lls__model_config c =
        accept(SETTINGS({.key = "llama.attention.sliding_window", .kind = U32, .number = 4096}), tied);
    assert_int_equal(c.window_left, 4095);
    c = accept(SETTINGS({.key = "llama.attention.sliding_window", .kind = U32, .number = 0}), tied);
    assert_int_equal(c.window_left, -1);
}

static void test_one_value_a_layer(void **state) {
    (void)state;
    lls__model_config c =
        accept(SETTINGS({.key = "llama.attention.head_count_kv", .kind = I32_ARRAY, .array = {2, 2, 2}}), tied);
    assert_int_equal(c.num_kv_heads, 2);
    refuse(SETTINGS({.key = "llama.attention.head_count_kv", .kind = I32_ARRAY, .array = {2, 2, 4}}), tied,
           LLS_ERR_MODEL, "2 in layer 0 and 4 in layer 2");
    refuse(SETTINGS({.key = "llama.attention.head_count_kv", .kind = I32_ARRAY, .array = {0, 0, 0}}), tied,
           LLS_ERR_FORMAT, "'llama.attention.head_count_kv' is 0");
}

static void test_rope_scaling(void **state) {
    (void)state;
    lls__model_config c = accept(SETTINGS({.key = "llama.rope.scaling.type", .kind = STRING, .text = "linear"},
                                          {.key = "llama.rope.scaling.factor", .kind = FLOAT, .number = 4}),
                                 tied);
    assert_int_equal(c.rope_scaling.type, LLS_ROPE_SCALING_LINEAR);
    assert_true(c.rope_scaling.factor == 4.0f);
    c = accept(SETTINGS({.key = "llama.rope.scale_linear", .kind = FLOAT, .number = 2}), tied);
    assert_int_equal(c.rope_scaling.type, LLS_ROPE_SCALING_LINEAR);
    assert_true(c.rope_scaling.factor == 2.0f);
    c = accept(SETTINGS({.key = "llama.rope.scaling.type", .kind = STRING, .text = "none"}), tied);
    assert_int_equal(c.rope_scaling.type, LLS_ROPE_SCALING_NONE);

    c = accept(SETTINGS({.key = "llama.rope.scaling.type", .kind = STRING, .text = "yarn"},
                        {.key = "llama.rope.scaling.factor", .kind = FLOAT, .number = 4},
                        {.key = "llama.rope.scaling.original_context_length", .kind = U32, .number = 32}),
               tied);
    assert_int_equal(c.rope_scaling.type, LLS_ROPE_SCALING_YARN);
    assert_int_equal(c.rope_scaling.original_context, 32);
    assert_true(c.rope_scaling.beta_fast == 32.0f && c.rope_scaling.beta_slow == 1.0f);
    assert_true(fabs(c.rope_scaling.attention_factor - 1.138629436) < 1e-6); // 0.1 ln 4 + 1

    refuse(SETTINGS({.key = "llama.rope.scaling.type", .kind = STRING, .text = "longrope"}), tied, LLS_ERR_MODEL,
           "'longrope'");
    refuse(SETTINGS({.key = "llama.rope.scaling.type", .kind = STRING, .text = "linear"},
                    {.key = "llama.rope.scaling.factor", .kind = FLOAT, .number = 0}),
           tied, LLS_ERR_FORMAT, "'llama.rope.scaling.factor' is 0");
}

// ---- Refusals --------------------------------------------------------------------------------------

static void test_sizes_out_of_range(void **state) {
    (void)state;
    static const char *const keys[] = {"llama.embedding_length",     "llama.block_count",
                                       "llama.feed_forward_length",  "llama.context_length",
                                       "llama.attention.head_count", "llama.attention.head_count_kv",
                                       "llama.attention.key_length", "llama.rope.dimension_count"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        refuse(SETTINGS({.key = keys[i], .kind = U32, .number = 0}), tied, LLS_ERR_FORMAT, keys[i]);
        refuse(SETTINGS({.key = keys[i], .kind = U32, .number = UINT32_MAX}), tied, LLS_ERR_FORMAT, keys[i]);
        refuse(SETTINGS({.key = keys[i], .kind = STRING, .text = "4"}), tied, LLS_ERR_FORMAT, keys[i]);
    }
    refuse(SETTINGS({.key = "llama.attention.head_count_kv", .kind = U32, .number = 3}), tied, LLS_ERR_FORMAT,
           "must divide attention.head_count = 4");
    refuse(SETTINGS({.key = "llama.rope.dimension_count", .kind = U32, .number = 3}), tied, LLS_ERR_FORMAT, "even");
    refuse(SETTINGS({.key = "llama.rope.dimension_count", .kind = U32, .number = 6}), tied, LLS_ERR_FORMAT, "size 4");
}

static void test_floats_out_of_range(void **state) {
    (void)state;
    static const char *const keys[] = {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base"};
    static const double values[] = {0, -1, NAN, INFINITY};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        for (size_t j = 0; j < sizeof values / sizeof values[0]; j++) {
            refuse(SETTINGS({.key = keys[i], .kind = FLOAT, .number = values[j]}), tied, LLS_ERR_FORMAT, keys[i]);
        }
    }
}

static void test_models_that_are_not_supported(void **state) {
    (void)state;
    refuse(SETTINGS({.key = "general.architecture", .kind = STRING, .text = "mamba"}), tied, LLS_ERR_MODEL,
           "'mamba', must be llama, qwen2 or qwen3");
    refuse(SETTINGS({.key = "llama.expert_count", .kind = U32, .number = 8}), tied, LLS_ERR_MODEL,
           "'llama.expert_count' is 8");
    // L06: shards of which the others may be absent
    refuse(SETTINGS({.key = "split.count", .kind = U32, .number = 3}), tied, LLS_ERR_MODEL, "one shard of 3");
}

// ---- Files of every architecture -------------------------------------------------------------------

static lls__model_config read_golden(const char *file) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", LLS_GOLDEN_DIR, file);
    lls__gguf *g = NULL;
    lls__model_config c;
    if (lls__gguf_open(path, &g) != LLS_OK || lls__model_config_read(g, &c) != LLS_OK) {
        fail_msg("%s", lls_last_error());
    }
    lls__gguf_close(g);
    return c;
}

static void test_golden_files(void **state) {
    (void)state;
    lls__model_config llama = read_golden("tiny_llama.gguf"), mistral = read_golden("tiny_mistral.gguf");
    lls__model_config qwen2 = read_golden("tiny_qwen2.gguf"), qwen3 = read_golden("tiny_qwen3.gguf");
    assert_int_equal(llama.rope_style, LLS_ROPE_GPTJ);
    assert_true(llama.tied_embeddings);
    assert_int_equal(mistral.arch, LLS__ARCH_LLAMA);
    assert_int_equal(mistral.window_left, 5);
    assert_int_equal(qwen2.arch, LLS__ARCH_QWEN2);
    assert_int_equal(qwen2.rope_style, LLS_ROPE_NEOX);
    assert_true(qwen2.qkv_bias);
    assert_int_equal(qwen2.rope_scaling.type, LLS_ROPE_SCALING_YARN);
    assert_int_equal(qwen3.arch, LLS__ARCH_QWEN3);
    assert_int_equal(qwen3.rope_style, LLS_ROPE_NEOX);
    assert_true(qwen3.qk_norm);
    assert_int_equal(qwen3.head_dim, 16);
    assert_int_equal(qwen3.hidden, 32);
    assert_int_equal(qwen3.num_heads, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_e04_head_dim_of_its_own),
        cmocka_unit_test(test_e04_absent_keys),
        cmocka_unit_test(test_e04_padded_vocabulary),
        cmocka_unit_test(test_l07_tied_and_untied_heads),
        cmocka_unit_test(test_a07_window),
        cmocka_unit_test(test_one_value_a_layer),
        cmocka_unit_test(test_rope_scaling),
        cmocka_unit_test(test_sizes_out_of_range),
        cmocka_unit_test(test_floats_out_of_range),
        cmocka_unit_test(test_models_that_are_not_supported),
        cmocka_unit_test(test_golden_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
