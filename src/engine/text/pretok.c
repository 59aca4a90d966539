#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/pretok.h"

#include <pcre2.h>

/* Unicode's White_Space, spelled out because PCRE2's \s also takes U+180E, which Unicode moved out of the set. */
#define WS "\\t-\\r\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/* Trailing white space stays whole, except that its last character may lead the next word. */
#define SPACE_RUNS "[" WS "]+(?![^" WS "])|[" WS "]+"

/* Radford et al., "Language Models are Unsupervised Multitask Learners" (2019): contractions, and words, numbers or
 * other marks with at most one space in front. */
#define GPT2_WORDS "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" SPACE_RUNS

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?" // one mark or space may lead a word

/* The families since GPT-4: contractions in any case, and limits to how many digits stand together. */
#define LATER_WORDS(digits) \
    CONTRACTIONS "|" LEAD "\\p{L}+|" digits "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|" SPACE_RUNS

/* And since GPT-4o: a word also ends where a capital follows a small letter; slashes stay with the marks before. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_WORDS(contractions, digits)                                                                 \
    LEAD UPPER "*" LOWER "+" contractions "|" LEAD UPPER "+" LOWER "*" contractions "|" digits "| ?[^" WS \
               "\\p{L}\\p{N}]+[\\r\\n/]*|[" WS "]*[\\r\\n]+|" SPACE_RUNS

static const lls__pretok_rule rules[] = {
    {.names = {"default", "gpt-2", "phi-2", "roberta-bpe"}, .passes = {GPT2_WORDS}},
    {.names = {"smollm", "starcoder", "refact", "codeshell"}, .passes = {"\\p{N}", GPT2_WORDS}},
    {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2"},
     .passes = {LATER_WORDS("\\p{N}{1,3}")},
     .ignore_merges = true,
     .add_bos = true},
    {.names = {"dbrx"}, .passes = {LATER_WORDS("\\p{N}{1,3}")}},
    {.names = {"qwen2", "deepseek-r1-qwen"}, .passes = {LATER_WORDS("\\p{N}")}, .nfc = true},
    {.names = {"gpt-4o", "llama4"}, .passes = {CASED_WORDS(CONTRACTIONS "?", "\\p{N}{1,3}")}},
    {.names = {"tekken"}, .passes = {CASED_WORDS("", "\\p{N}")}, .ignore_merges = true, .add_bos = true},
};

const lls__pretok_rule *lls__pretok_find(const char *name) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        for (const char *const *n = rules[i].names; *n; n++) {
            if (strcmp(*n, name) == 0) return &rules[i];
        }
    }
    return NULL;
}

struct lls__pretok {
    int num_passes;
    pcre2_code *pass[LLS__PRETOK_MAX_PASSES];
};

struct lls__pretok_scratch {
    pcre2_match_data *match;
};

static lls_status compile(const char *pattern, pcre2_code **out) {
    int code;
    PCRE2_SIZE at;
    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    if (!*out) {
        PCRE2_UCHAR why[128];
        pcre2_get_error_message(code, why, sizeof why);
        return lls__fail(LLS_ERR_INTERNAL, "tokenizer: pattern %s: %s at %zu", pattern, (char *)why, (size_t)at);
    }
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); // where there is no JIT, matching is only slower
    return LLS_OK;
}

lls_status lls__pretok_create(const lls__pretok_rule *rule, lls__pretok **out) {
    lls__pretok *pretok = calloc(1, sizeof *pretok);
    if (!pretok) return lls__fail(LLS_ERR_MEMORY, "tokenizer: out of memory for the pre-tokenizer");
    for (; pretok->num_passes < LLS__PRETOK_MAX_PASSES && rule->passes[pretok->num_passes]; pretok->num_passes++) {
        lls_status status = compile(rule->passes[pretok->num_passes], &pretok->pass[pretok->num_passes]);
        if (status != LLS_OK) {
            lls__pretok_destroy(pretok);
            return status;
        }
    }
    *out = pretok;
    return LLS_OK;
}

void lls__pretok_destroy(lls__pretok *pretok) {
    if (!pretok) return;
    for (int i = 0; i < LLS__PRETOK_MAX_PASSES; i++) pcre2_code_free(pretok->pass[i]);
    free(pretok);
}

lls_status lls__pretok_scratch_create(lls__pretok_scratch **out) {
    lls__pretok_scratch *scratch = calloc(1, sizeof *scratch);
    if (scratch) scratch->match = pcre2_match_data_create(1, NULL); // no groups: one pair of offsets
    if (!scratch || !scratch->match) {
        free(scratch);
        return lls__fail(LLS_ERR_MEMORY, "tokenizer: out of memory for match data");
    }
    *out = scratch;
    return LLS_OK;
}

void lls__pretok_scratch_destroy(lls__pretok_scratch *scratch) {
    if (!scratch) return;
    pcre2_match_data_free(scratch->match);
    free(scratch);
}

typedef struct splitter {
    const lls__pretok *pretok;
    lls__pretok_scratch *scratch;
    lls__word_fn word;
    void *user;
} splitter;

/* Each piece is a subject of its own: a lookahead must not see past its end. */
static lls_status split(const splitter *s, int pass, const char *text, size_t size) {
    if (size == 0) return LLS_OK;
    if (pass == s->pretok->num_passes) return s->word(s->user, text, size);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(s->scratch->match);
    size_t done = 0;
    while (done < size) {
        int count = pcre2_match(s->pretok->pass[pass], (PCRE2_SPTR)text, size, done, PCRE2_NO_UTF_CHECK,
                                s->scratch->match, NULL);
        if (count == PCRE2_ERROR_NOMATCH) break;
        if (count < 0) {
            PCRE2_UCHAR why[128];
            pcre2_get_error_message(count, why, sizeof why);
            return lls__fail(LLS_ERR_INTERNAL, "tokenize: PCRE2: %s", (char *)why);
        }
        size_t begin = span[0], end = span[1];
        LLS_TRY(split(s, pass + 1, text + done, begin - done));
        LLS_TRY(split(s, pass + 1, text + begin, end - begin));
        done = end;
    }
    return split(s, pass + 1, text + done, size - done);
}

lls_status lls__pretok_split(const lls__pretok *pretok, lls__pretok_scratch *scratch, const char *text, size_t size,
                             lls__word_fn word, void *user) {
    splitter s = {.pretok = pretok, .scratch = scratch, .word = word, .user = user};
    return split(&s, 0, text, size);
}
