#include "engine/text/vocab.h"

#include "engine/text/pretok.h"

/* What the vocabulary's pointers point to, besides the file itself: one block. */
typedef struct storage {
    char model[32], pre[64];
    lls__str *text, *merges;
    int32_t *type;
    float *scores;
} storage;

/* The arrays of the file, NULL where absent. */
typedef struct arrays {
    const lls__gguf_kv *tokens, *types, *scores, *merges;
} arrays;

/* An array with one entry a token. */
static lls_status token_array(const lls__gguf *gguf, const char *key, lls__gguf_kind kind, uint64_t num_tokens,
                              const lls__gguf_kv **out) {
    LLS_TRY(lls__gguf_array(gguf, key, kind, out));
    if (*out && (*out)->count != num_tokens) {
        return lls__fail(LLS_ERR_FORMAT, "%s: %s has %llu entries, must have one for each of %llu tokens", gguf->name,
                         key, (unsigned long long)(*out)->count, (unsigned long long)num_tokens);
    }
    return LLS_OK;
}

static lls_status find_arrays(const lls__gguf *gguf, arrays *a) {
    LLS_TRY(lls__gguf_array(gguf, "tokenizer.ggml.tokens", LLS__GGUF_KIND_STRING, &a->tokens));
    if (!a->tokens || a->tokens->count == 0 || a->tokens->count > INT32_MAX) {
        return lls__fail(LLS_ERR_MODEL, "%s: tokenizer.ggml.tokens is absent or empty, a vocabulary is needed",
                         gguf->name);
    }
    uint64_t n = a->tokens->count;
    LLS_TRY(token_array(gguf, "tokenizer.ggml.token_type", LLS__GGUF_KIND_INT, n, &a->types));
    LLS_TRY(token_array(gguf, "tokenizer.ggml.scores", LLS__GGUF_KIND_FLOAT, n, &a->scores));
    LLS_TRY(lls__gguf_array(gguf, "tokenizer.ggml.merges", LLS__GGUF_KIND_STRING, &a->merges));
    if (a->merges && a->merges->count > INT32_MAX) {
        return lls__fail(LLS_ERR_FORMAT, "%s: tokenizer.ggml.merges has more than 2^31 entries", gguf->name);
    }
    return LLS_OK;
}

static uint64_t count_of(const lls__gguf_kv *kv) {
    return kv ? kv->count : 0;
}

/* The file holds a byte at least for each entry that is counted here. */
static lls_status allocate(const arrays *a, storage **out) {
    size_t strings = (size_t)(count_of(a->tokens) + count_of(a->merges));
    size_t bytes = sizeof(storage) + strings * sizeof(lls__str) + (size_t)count_of(a->types) * sizeof(int32_t) +
                   (size_t)count_of(a->scores) * sizeof(float);
    storage *s = malloc(bytes);
    if (!s) return lls__fail(LLS_ERR_MEMORY, "vocabulary: out of memory for %zu bytes", bytes);
    s->text = (lls__str *)(s + 1);
    s->merges = s->text + count_of(a->tokens);
    s->type = (int32_t *)(s->merges + count_of(a->merges));
    s->scores = (float *)(s->type + count_of(a->types));
    *out = s;
    return LLS_OK;
}

static void copy_strings(const lls__gguf_kv *kv, lls__str *out) {
    lls__gguf_strings strings = lls__gguf_strings_of(kv);
    for (lls__gguf_str s; lls__gguf_next_string(&strings, &s);) *out++ = (lls__str){s.data, s.size};
}

static void copy_arrays(const arrays *a, storage *s) {
    copy_strings(a->tokens, s->text);
    if (a->merges) copy_strings(a->merges, s->merges);
    for (uint64_t i = 0; i < count_of(a->types); i++) s->type[i] = (int32_t)lls__gguf_int_at(a->types, i);
    for (uint64_t i = 0; i < count_of(a->scores); i++) s->scores[i] = (float)lls__gguf_float_at(a->scores, i);
}

/* A name as a C string in room[size]; *out is NULL when it is absent. */
static lls_status read_name(const lls__gguf *gguf, const char *key, char *room, size_t size, const char **out) {
    lls__gguf_str s;
    LLS_TRY(lls__gguf_string(gguf, key, &s));
    if (s.size >= size) {
        return lls__fail(LLS_ERR_MODEL, "%s: %s is \"%.*s\", which is not known", gguf->name, key,
                         LLS__GGUF_CLIPPED(s));
    }
    if (s.size) memcpy(room, s.data, s.size);
    room[s.size] = 0;
    *out = s.data ? room : NULL;
    return LLS_OK;
}

static lls_status read_id(const lls__gguf *gguf, const char *key, int32_t fallback, int32_t num_tokens, int32_t *out) {
    int64_t id;
    if (fallback >= num_tokens) fallback = LLS__VOCAB_NONE;
    LLS_TRY(lls__gguf_int(gguf, key, fallback, LLS__VOCAB_NONE, num_tokens - 1, &id));
    *out = (int32_t)id;
    return LLS_OK;
}

static lls_status read_keys(const lls__gguf *gguf, storage *s, lls__vocab *v) {
    LLS_TRY(read_name(gguf, "tokenizer.ggml.model", s->model, sizeof s->model, &v->model));
    LLS_TRY(read_name(gguf, "tokenizer.ggml.pre", s->pre, sizeof s->pre, &v->pre));
    bool sentencepiece = v->model && strcmp(v->model, "llama") == 0;
    const lls__pretok_rule *rule = v->pre ? lls__pretok_find(v->pre) : NULL;
    int32_t n = v->num_tokens;
    LLS_TRY(read_id(gguf, "tokenizer.ggml.bos_token_id", sentencepiece ? 1 : LLS__VOCAB_NONE, n, &v->bos));
    LLS_TRY(read_id(gguf, "tokenizer.ggml.eos_token_id", sentencepiece ? 2 : LLS__VOCAB_NONE, n, &v->eos));
    LLS_TRY(read_id(gguf, "tokenizer.ggml.unknown_token_id", sentencepiece ? 0 : LLS__VOCAB_NONE, n, &v->unk));
    LLS_TRY(read_id(gguf, "tokenizer.ggml.eot_token_id", LLS__VOCAB_NONE, n, &v->eot));
    bool add_bos = sentencepiece || (rule && rule->add_bos);
    LLS_TRY(lls__gguf_bool(gguf, "tokenizer.ggml.add_bos_token", add_bos && v->bos >= 0, &v->add_bos));
    LLS_TRY(lls__gguf_bool(gguf, "tokenizer.ggml.add_eos_token", false, &v->add_eos));
    return lls__gguf_bool(gguf, "tokenizer.ggml.add_space_prefix", sentencepiece, &v->add_space_prefix);
}

lls_status lls__vocab_from_gguf(const lls__gguf *gguf, lls__vocab *vocab, void **out_storage) {
    arrays a = {0};
    storage *s;
    LLS_TRY(find_arrays(gguf, &a));
    LLS_TRY(allocate(&a, &s));
    copy_arrays(&a, s);
    lls__vocab v = {.num_tokens = (int32_t)a.tokens->count, .num_merges = (int32_t)count_of(a.merges)};
    v.text = s->text;
    v.merges = s->merges;
    v.type = a.types ? s->type : NULL;
    v.scores = a.scores ? s->scores : NULL;
    lls_status status = read_keys(gguf, s, &v);
    if (status != LLS_OK) {
        free(s);
        return status;
    }
    *vocab = v;
    *out_storage = s;
    return LLS_OK;
}
