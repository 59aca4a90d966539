/* Any vocabulary, any text. The input is lines: a line of settings, the tokens (a digit for the type, then the
 * spelling), "--", the merges, "--", and everything behind that is text:
 *
 *     b2            b, s: byte-level or SentencePiece; 0-3: which pre-tokenizer; p: space prefix
 *     1a            a normal token
 *     3<s>          a control token
 *     --
 *     a a
 *     --
 *     aa<s>
 */
#include "core/log.h"
#include "engine/text/detok.h"
#include "engine/text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition) ((condition) ? (void)0 : __builtin_trap())

enum { MAX_LINES = 512 };

typedef struct input {
    const char *p, *end;
} input;

static bool next_line(input *in, lls__str *line) {
    if (in->p == in->end) return false;
    const char *newline = memchr(in->p, '\n', (size_t)(in->end - in->p));
    const char *end = newline ? newline : in->end;
    *line = (lls__str){in->p, (size_t)(end - in->p)};
    in->p = newline ? newline + 1 : end;
    return true;
}

/* Lines up to "--". */
static int32_t read_list(input *in, lls__str lines[MAX_LINES]) {
    int32_t n = 0;
    while (n < MAX_LINES && next_line(in, &lines[n])) {
        if (lines[n].size == 2 && memcmp(lines[n].data, "--", 2) == 0) break;
        n++;
    }
    return n;
}

static bool has_setting(lls__str settings, char c) {
    return settings.size && memchr(settings.data, c, settings.size);
}

/* Of the bytes of a text none is invented and none changes its place. */
static void require_subsequence(const lls__tokenizer *t, const lls__ids *ids, lls__str text) {
    size_t at = 0;
    for (size_t i = 0; i < ids->size; i++) {
        if (lls__token_type_of(t, ids->data[i]) == LLS__TOKEN_UNKNOWN) continue;
        lls__str token = lls__token_bytes(t, ids->data[i]);
        for (size_t k = 0; k < token.size; k++, at++) {
            while (at < text.size && text.data[at] != token.data[k]) at++;
            REQUIRE(at < text.size);
        }
    }
}

static void check_text(const lls__tokenizer *t, lls__str text, bool trusted, bool exact) {
    lls__ids ids = {0};
    lls__bytes out = {0};
    size_t half = text.size / 2;
    lls__text_part parts[] = {{text.data, half, trusted}, {text.data + half, text.size - half, false}};
    lls_status status = lls__tokenize_parts(t, parts, 2, false, &ids);
    bool valid = lls__utf8_valid_prefix(text.data, text.size) == text.size;
    REQUIRE(status == (valid ? LLS_OK : LLS_ERR_ENCODING));
    REQUIRE(valid || ids.size == 0);
    for (size_t i = 0; i < ids.size; i++) {
        REQUIRE(ids.data[i] >= 0 && ids.data[i] < lls__tokenizer_size(t));
        REQUIRE(trusted || lls__token_type_of(t, ids.data[i]) != LLS__TOKEN_CONTROL);
    }
    if (exact) require_subsequence(t, &ids, text);
    REQUIRE(lls__detokenize(t, ids.data, ids.size, LLS__DETOK_SHOW_CONTROL, &out) == LLS_OK);
    REQUIRE(lls__utf8_valid_prefix(out.data, out.size) == out.size);
    free(ids.data);
    free(out.data);
}

/* Ids in any order, as a model may produce them. */
static void check_any_ids(const lls__tokenizer *t, lls__str text) {
    lls__bytes out = {0};
    lls__detok d;
    lls__detok_init(&d, t, 0);
    for (size_t i = 0; i < text.size; i++) {
        int32_t id = (uint8_t)text.data[i] % lls__tokenizer_size(t);
        REQUIRE(lls__detok_push(&d, id, &out) == LLS_OK);
        REQUIRE(lls__utf8_valid_prefix(out.data, out.size) == out.size);
        out.size = 0;
    }
    REQUIRE(lls__detok_flush(&d, &out) == LLS_OK);
    REQUIRE(out.size == 0 || out.size == 3);
    free(out.data);
}

static void ignore_log(lls_log_level level, const char *message, void *user) {
    (void)level;
    (void)message;
    (void)user;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lls_log_set(ignore_log, NULL);
    static const char *const pres[] = {"gpt-2", "llama-bpe", "qwen2", "smollm"};
    static lls__str text[MAX_LINES], merges[MAX_LINES];
    static int32_t type[MAX_LINES];
    static float scores[MAX_LINES];
    input in = {(const char *)data, (const char *)data + size};
    lls__str settings = {0};
    next_line(&in, &settings);
    int pre = has_setting(settings, '1') ? 1 : has_setting(settings, '2') ? 2 : has_setting(settings, '3') ? 3 : 0;
    bool sentencepiece = has_setting(settings, 's'), prefix = has_setting(settings, 'p');

    lls__vocab v = {.model = sentencepiece ? "llama" : "gpt2",
                    .pre = pres[pre],
                    .text = text,
                    .type = type,
                    .scores = scores,
                    .merges = merges,
                    .bos = -1,
                    .eos = -1,
                    .eot = -1,
                    .unk = -1,
                    .add_space_prefix = prefix};
    v.num_tokens = read_list(&in, text);
    v.num_merges = read_list(&in, merges);
    for (int32_t i = 0; i < v.num_tokens; i++) {
        type[i] = text[i].size ? text[i].data[0] - '0' : LLS__TOKEN_NORMAL;
        if (text[i].size) text[i].data++, text[i].size--;
        scores[i] = (float)-(i % 50);
        if (type[i] == LLS__TOKEN_UNKNOWN) v.unk = i;
    }
    lls__tokenizer *t;
    if (lls__tokenizer_create(&v, &t) != LLS_OK) return 0;
    lls__str rest = {in.p, (size_t)(in.end - in.p)};
    bool exact = sentencepiece ? !prefix : pre != 2; // qwen2 normalises
    check_text(t, rest, true, exact);
    check_text(t, rest, false, exact);
    check_any_ids(t, rest);
    lls__tokenizer_destroy(t);
    return 0;
}
