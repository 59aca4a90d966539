/* Vocabularies out of GGUF files: what the keys mean, what stands in for absent ones, what is refused. */
#include <stdio.h>

#include "engine/gguf_builder.h"
#include "engine/text_fixture.h"

/* A GGUF file in memory, key by key. */
typedef struct file {
    gguf_builder body;
    uint64_t num_kvs;
} file;

static void add_u32(file *f, const char *key, uint32_t value) {
    build_kv_u32(&f->body, key, value);
    f->num_kvs++;
}

static void add_string(file *f, const char *key, const char *value) {
    build_kv_string(&f->body, key, value);
    f->num_kvs++;
}

static void add_array_header(file *f, const char *key, uint32_t type, uint64_t count) {
    build_kv(&f->body, key, LLS__GGUF_ARRAY, NULL, 0);
    build_u32(&f->body, type);
    build_u64(&f->body, count);
    f->num_kvs++;
}

static void add_strings(file *f, const char *key, const char *const *strings, uint64_t count) {
    add_array_header(f, key, LLS__GGUF_STRING, count);
    for (uint64_t i = 0; i < count; i++) build_string(&f->body, strings[i]);
}

static void add_numbers(file *f, const char *key, lls__gguf_type type, const void *values, uint64_t count) {
    add_array_header(f, key, type, count);
    build_bytes(&f->body, values, count * 4);
}

/* Reads the vocabulary and, where that works, leaves it to check(). */
static lls_status read_file(file *f, void (*check)(const lls__vocab *)) {
    gguf_builder all = {0};
    build_header(&all, 3, 0, f->num_kvs);
    build_bytes(&all, f->body.bytes, f->body.size);
    build_padding(&all, 32);
    build_free(&f->body);
    f->num_kvs = 0;
    f->body = (gguf_builder){0};
    lls__gguf *gguf;
    assert_status(lls__gguf_parse(all.bytes, all.size, "test.gguf", &gguf), LLS_OK);
    lls__vocab vocab;
    void *storage = NULL;
    lls_status status = lls__vocab_from_gguf(gguf, &vocab, &storage);
    if (status == LLS_OK && check) check(&vocab);
    free(storage);
    lls__gguf_close(gguf);
    build_free(&all);
    return status;
}

static const char *const tokens[] = {"<unk>", "<s>", "</s>", "a"};
static const int32_t types[] = {2, 3, 3, 1};
static const float scores[] = {0, 0, 0, -1};

static void check_llama_defaults(const lls__vocab *v) {
    assert_string_equal(v->model, "llama");
    assert_null(v->pre);
    assert_int_equal(v->num_tokens, 4);
    assert_int_equal(v->num_merges, 0);
    assert_int_equal(v->text[3].size, 1);
    assert_memory_equal(v->text[3].data, "a", 1);
    assert_int_equal(v->type[2], LLS__TOKEN_CONTROL);
    assert_true(v->scores[3] == -1.0f);
    assert_int_equal(v->unk, 0);
    assert_int_equal(v->bos, 1);
    assert_int_equal(v->eos, 2);
    assert_int_equal(v->eot, LLS__VOCAB_NONE);
    assert_true(v->add_bos && !v->add_eos && v->add_space_prefix);
}

static void check_gpt2_defaults(const lls__vocab *v) {
    assert_string_equal(v->pre, "qwen2");
    assert_null(v->type);
    assert_null(v->scores);
    assert_int_equal(v->num_merges, 1);
    assert_memory_equal(v->merges[0].data, "a a", 3);
    assert_int_equal(v->bos, LLS__VOCAB_NONE);
    assert_int_equal(v->unk, LLS__VOCAB_NONE);
    assert_false(v->add_bos || v->add_eos || v->add_space_prefix);
}

static void check_llama3_defaults(const lls__vocab *v) {
    assert_int_equal(v->bos, 1);
    assert_int_equal(v->eot, 2);
    assert_true(v->add_bos);
}

static void check_explicit(const lls__vocab *v) {
    assert_int_equal(v->bos, 2);
    assert_int_equal(v->eos, 1);
    assert_false(v->add_bos || v->add_space_prefix);
    assert_true(v->add_eos);
}

static void add_llama(file *f) {
    add_string(f, "tokenizer.ggml.model", "llama");
    add_strings(f, "tokenizer.ggml.tokens", tokens, 4);
    add_numbers(f, "tokenizer.ggml.token_type", LLS__GGUF_I32, types, 4);
    add_numbers(f, "tokenizer.ggml.scores", LLS__GGUF_F32, scores, 4);
}

static void test_defaults_of_the_families(void **state) {
    (void)state;
    file f = {0};
    add_llama(&f);
    assert_status(read_file(&f, check_llama_defaults), LLS_OK);

    const char *const merges[] = {"a a"};
    add_string(&f, "tokenizer.ggml.model", "gpt2");
    add_string(&f, "tokenizer.ggml.pre", "qwen2");
    add_strings(&f, "tokenizer.ggml.tokens", tokens, 4);
    add_strings(&f, "tokenizer.ggml.merges", merges, 1);
    assert_status(read_file(&f, check_gpt2_defaults), LLS_OK);

    add_string(&f, "tokenizer.ggml.model", "gpt2");
    add_string(&f, "tokenizer.ggml.pre", "llama-bpe");
    add_strings(&f, "tokenizer.ggml.tokens", tokens, 4);
    add_u32(&f, "tokenizer.ggml.bos_token_id", 1);
    add_u32(&f, "tokenizer.ggml.eot_token_id", 2);
    assert_status(read_file(&f, check_llama3_defaults), LLS_OK);
}

static void test_keys_win_over_defaults(void **state) {
    (void)state;
    file f = {0};
    add_llama(&f);
    add_u32(&f, "tokenizer.ggml.bos_token_id", 2);
    add_u32(&f, "tokenizer.ggml.eos_token_id", 1);
    static const char *const names[] = {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token",
                                        "tokenizer.ggml.add_space_prefix"};
    for (int i = 0; i < 3; i++) {
        uint8_t value = i == 1;
        build_kv(&f.body, names[i], LLS__GGUF_BOOL, &value, 1);
        f.num_kvs++;
    }
    assert_status(read_file(&f, check_explicit), LLS_OK);
}

static void check_refused(file *f, lls_status want, const char *word) {
    assert_status(read_file(f, NULL), want);
    if (!strstr(lls_last_error(), word)) fail_msg("\"%s\" does not mention %s", lls_last_error(), word);
}

static void test_bad_files_are_refused(void **state) {
    (void)state;
    file f = {0};
    add_string(&f, "tokenizer.ggml.model", "llama");
    check_refused(&f, LLS_ERR_MODEL, "tokenizer.ggml.tokens");

    add_strings(&f, "tokenizer.ggml.tokens", tokens, 0);
    check_refused(&f, LLS_ERR_MODEL, "tokenizer.ggml.tokens");

    add_numbers(&f, "tokenizer.ggml.tokens", LLS__GGUF_I32, types, 4);
    check_refused(&f, LLS_ERR_FORMAT, "tokenizer.ggml.tokens");

    add_strings(&f, "tokenizer.ggml.tokens", tokens, 4);
    add_numbers(&f, "tokenizer.ggml.token_type", LLS__GGUF_I32, types, 3);
    check_refused(&f, LLS_ERR_FORMAT, "token_type has 3 entries");

    add_strings(&f, "tokenizer.ggml.tokens", tokens, 3);
    add_numbers(&f, "tokenizer.ggml.scores", LLS__GGUF_F32, scores, 4);
    check_refused(&f, LLS_ERR_FORMAT, "scores has 4 entries");

    add_llama(&f);
    add_u32(&f, "tokenizer.ggml.bos_token_id", 4);
    check_refused(&f, LLS_ERR_FORMAT, "bos_token_id");

    add_strings(&f, "tokenizer.ggml.tokens", tokens, 4);
    add_string(&f, "tokenizer.ggml.model", "a name that is much longer than any tokenizer has had so far");
    check_refused(&f, LLS_ERR_MODEL, "tokenizer.ggml.model");
}

/* The tiny models of the golden directory, both kinds: one token a byte, so that any text round-trips. */
static void test_tiny_models(void **state) {
    (void)state;
    static const char *const names[] = {"tiny_llama", "tiny_mistral"};
    for (int i = 0; i < 2; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s.gguf", LLS_GOLDEN_DIR, names[i]);
        lls__gguf *gguf;
        lls__vocab vocab;
        void *storage;
        lls__tokenizer *t;
        assert_status(lls__gguf_open(path, &gguf), LLS_OK);
        assert_status(lls__vocab_from_gguf(gguf, &vocab, &storage), LLS_OK);
        assert_status(lls__tokenizer_create(&vocab, &t), LLS_OK);
        lls__gguf_close(gguf);
        free(storage);
        lls__ids ids = {0};
        lls__str text = STR("The ferry, \xC3\xA9t\xC3\xA9 2026 \xF0\x9F\xA6\x99\n");
        assert_status(lls__tokenize(t, text.data, text.size, true, false, &ids), LLS_OK);
        assert_int_equal(ids.data[0] == lls__tokenizer_bos(t), i == 1); // only the second asks for it
        lls__bytes joined = {0};
        for (size_t k = i == 1; k < ids.size; k++) {
            lls__str token = lls__token_bytes(t, ids.data[k]);
            assert_status(lls__bytes_append(&joined, token.data, token.size), LLS_OK);
        }
        size_t prefix = lls__tokenizer_adds_space_prefix(t);
        assert_int_equal(joined.size, text.size + prefix);
        assert_memory_equal(joined.data + prefix, text.data, text.size);
        free(joined.data);
        free(ids.data);
        lls__tokenizer_destroy(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_of_the_families),
        cmocka_unit_test(test_keys_win_over_defaults),
        cmocka_unit_test(test_bad_files_are_refused),
        cmocka_unit_test(test_tiny_models),
    };
    return cmocka_run_group_tests_name("text_vocab", tests, NULL, NULL);
}
