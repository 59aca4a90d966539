/* The tokenizer against what Hugging Face's tokenizers and SentencePiece recorded, and the known faults T01 and T03. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "core/log.h"
#include "engine/text/detok.h"
#include "engine/text_fixture.h"

/* ---- Recorded ids ---------------------------------------------------------------------------- */

/* "12 7 3" up to `end`. */
static lls__ids parse_ids(const char *p, const char *end) {
    lls__ids ids = {0};
    while (p < end) {
        char *next;
        assert_int_equal(lls__ids_push(&ids, (int32_t)strtol(p, &next, 10)), LLS_OK);
        p = next + 1; // the space, or the end
    }
    return ids;
}

static void check_line(const lls__tokenizer *t, lls__str text, const char *p, const char *end, bool parse_special) {
    lls__ids want = parse_ids(p, end);
    assert_ids(t, text, parse_special, want.data, want.size);
    free(want.data);
}

/* Each line of the corpus with control tokens as text, and as control tokens. */
static void check_recorded(const lls__tokenizer *t, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "text/%s.ids", name);
    text_lines corpus = load_lines("text/corpus.txt"), recorded = load_lines(path);
    assert_true(corpus.count > 200);
    assert_int_equal(corpus.count, recorded.count);
    for (size_t i = 0; i < corpus.count; i++) {
        lls__bytes text = unescape(corpus.line[i]);
        lls__str s = {text.data, text.size}, line = recorded.line[i];
        const char *end = line.data + line.size, *bar = memchr(line.data, '|', line.size);
        check_line(t, s, line.data, bar ? bar : end, false);
        check_line(t, s, bar ? bar + 1 : line.data, end, true);
        free(text.data);
    }
    free_lines(&corpus);
    free_lines(&recorded);
}

static const char *const families[] = {"gpt2", "llama3", "qwen2", "smollm", "gpt4o", "tekken", "llama", "toy"};
#define NUM_FAMILIES (sizeof families / sizeof *families)

static void test_recorded_ids(void **state) {
    (void)state;
    for (size_t i = 0; i < NUM_FAMILIES; i++) {
        lls__tokenizer *t = load_tokenizer(families[i]);
        check_recorded(t, families[i]);
        check_recorded(t, families[i]); // now with words that have been seen before
        lls__tokenizer_destroy(t);
    }
}

static void ignore_log(lls_log_level level, const char *message, void *user) {
    (void)level;
    (void)message;
    (void)user;
}

static void test_smollm2_recorded_ids(void **state) {
    (void)state;
    lls__tokenizer *t = load_model_tokenizer();
    lls_log_set(ignore_log, NULL); // its vocabulary has no token for some control characters, and says so
    check_recorded(t, "smollm2");
    lls_log_set(NULL, NULL);
    lls__tokenizer_destroy(t);
}

/* ---- Round trips ----------------------------------------------------------------------------- */

static void check_round_trip(const lls__tokenizer *t, lls__str text, bool parse_special) {
    lls__ids ids = {0};
    lls__bytes back = {0};
    assert_status(lls__tokenize(t, text.data, text.size, false, parse_special, &ids), LLS_OK);
    assert_status(lls__detokenize(t, ids.data, ids.size, LLS__DETOK_SHOW_CONTROL, &back), LLS_OK);
    assert_int_equal(back.size, text.size);
    assert_memory_equal(back.data ? back.data : "", text.data ? text.data : "", text.size);
    free(ids.data);
    free(back.data);
}

/* Vocabularies that can spell everything, and do not normalise. */
static const char *const complete[] = {"gpt2", "llama3", "smollm", "gpt4o", "tekken", "llama"};
#define NUM_COMPLETE (sizeof complete / sizeof *complete)

static void test_round_trip_of_corpus(void **state) {
    (void)state;
    text_lines corpus = load_lines("text/corpus.txt");
    for (size_t f = 0; f < NUM_COMPLETE; f++) {
        lls__tokenizer *t = load_tokenizer(complete[f]);
        lls__bytes all = {0};
        for (size_t i = 0; i < corpus.count; i++) {
            lls__bytes text = unescape(corpus.line[i]);
            check_round_trip(t, (lls__str){text.data, text.size}, false);
            check_round_trip(t, (lls__str){text.data, text.size}, true);
            assert_status(lls__bytes_append(&all, text.data, text.size), LLS_OK);
            free(text.data);
        }
        check_round_trip(t, (lls__str){all.data, all.size}, true);
        check_round_trip(t, STR(""), true);
        check_round_trip(t, STR("\xE2\x96\x81 is no space"), true); // U+2581, SentencePiece's mark
        free(all.data);
        lls__tokenizer_destroy(t);
    }
    free_lines(&corpus);
}

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(random_state >> 8) * n >> 24);
}

static void append_random_char(lls__bytes *out) {
    static const uint32_t ranges[] = {0x80, 0x80, 0x80, 0x800, 0x3100, 0xFFFF, 0x10FFFF};
    uint32_t c;
    do {
        c = random_below(ranges[random_below(7)] + 1);
    } while (c >= 0xD800 && c < 0xE000);
    char escaped[16];
    int n = snprintf(escaped, sizeof escaped, "\\u{%x}", (unsigned)c);
    lls__bytes one = unescape((lls__str){escaped, (size_t)n});
    assert_status(lls__bytes_append(out, one.data, one.size), LLS_OK);
    free(one.data);
}

static void test_round_trip_of_random_unicode(void **state) {
    (void)state;
    for (size_t f = 0; f < NUM_COMPLETE; f++) {
        lls__tokenizer *t = load_tokenizer(complete[f]);
        for (int i = 0; i < 300; i++) {
            lls__bytes text = {0};
            for (uint32_t n = random_below(60); n > 0; n--) append_random_char(&text);
            check_round_trip(t, (lls__str){text.data, text.size}, true);
            free(text.data);
        }
        lls__tokenizer_destroy(t);
    }
}

/* Pieces that could cost quadratic time, or a stack, if something were wrong: 1 MB each. */
static void test_long_words(void **state) {
    (void)state;
    static const char *const repeated[] = {"a", "ab", " ", "\n", "7", "!", "\xC3\xA9", "\xF0\x9F\xA6\x99", "\t ", " a"};
    static const char *const names[] = {"qwen2", "gpt4o", "llama"};
    for (size_t f = 0; f < 3; f++) {
        lls__tokenizer *t = load_tokenizer(names[f]);
        for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++) {
            lls__bytes text = {0};
            while (text.size < 1 << 20) {
                assert_status(lls__bytes_append(&text, repeated[i], strlen(repeated[i])), LLS_OK);
            }
            check_round_trip(t, (lls__str){text.data, text.size}, true);
            free(text.data);
        }
        lls__tokenizer_destroy(t);
    }
}

/* ---- T01: special tokens inside text ---------------------------------------------------------- */

#define CHECK_IDS(t, text, parse_special, ...)                              \
    assert_ids(t, STR(text), parse_special, (const int32_t[]){__VA_ARGS__}, \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void test_T01_space_prefix_and_control_tokens(void **state) {
    (void)state;
    lls__tokenizer *t = load_tokenizer("toy"); // 1 <s>, 4 ▁text, 6 ▁, 7 ▁▁; the recorded file holds the same texts
    CHECK_IDS(t, "<s>text", true, 1, 4);
    CHECK_IDS(t, "text<s> text", true, 4, 1, 6, 4);
    CHECK_IDS(t, "<s>  text", true, 1, 7, 4);
    assert_ids(t, STR(""), true, NULL, 0);
    CHECK_IDS(t, " ", true, 7);
    CHECK_IDS(t, "   text", true, 7, 6, 4);
    // In text that is not trusted the same characters are ordinary pieces; this vocabulary does not know "<", "s", ">".
    CHECK_IDS(t, "<s>text", false, 6, 0, 5);
    static const char *const texts[] = {"<s>text", "text<s> text", "<s>  text", "", " ", "   ", "   text", "</s><s>"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        check_round_trip(t, (lls__str){texts[i], strlen(texts[i])}, true);
    }
    lls__tokenizer_destroy(t);
}

static void test_T01_untrusted_parts_yield_no_control_tokens(void **state) {
    (void)state;
    for (size_t f = 0; f < NUM_FAMILIES; f++) {
        lls__tokenizer *t = load_tokenizer(families[f]);
        bool llama = f >= 6;
        lls__str open = llama ? STR("<s>") : STR("<|im_start|>"), close = llama ? STR("</s>") : STR("<|im_end|>");
        // The close inside the content, and one that only comes about where two parts meet.
        lls__text_part parts[] = {{open.data, open.size, true},
                                  {close.data, close.size, false},
                                  {close.data, close.size - 1, false},
                                  {close.data + close.size - 1, 1, true},
                                  {close.data, close.size, true}};
        lls__ids ids = {0};
        assert_status(lls__tokenize_parts(t, parts, 5, false, &ids), LLS_OK);
        int control = 0;
        for (size_t i = 0; i < ids.size; i++) control += lls__token_type_of(t, ids.data[i]) == LLS__TOKEN_CONTROL;
        assert_int_equal(control, 2);
        assert_int_equal(ids.data[0], lls__token_find(t, open.data, open.size));
        assert_int_equal(ids.data[ids.size - 1], lls__token_find(t, close.data, close.size));
        free(ids.data);
        lls__tokenizer_destroy(t);
    }
}

static void test_T01_parts_are_read_as_one_text(void **state) {
    (void)state;
    lls__tokenizer *t = load_tokenizer("gpt2");
    lls__str whole = STR("<|im_start|>The <tool> ferry<|im_end|>");
    for (size_t cut = 12; cut < whole.size - 10; cut++) { // anywhere between the control tokens
        lls__text_part parts[] = {{whole.data, cut, true}, {whole.data + cut, whole.size - cut, true}};
        lls__ids ids = {0};
        assert_status(lls__tokenize_parts(t, parts, 2, false, &ids), LLS_OK);
        assert_ids(t, whole, true, ids.data, ids.size);
        free(ids.data);
    }
    lls__tokenizer_destroy(t);
}

static void test_longest_special_token_wins(void **state) {
    (void)state;
    const lls__str text[] = {STR("a"), STR("<x>"), STR("<x><y>"), STR("<x"), STR("<xyz>")};
    const int32_t type[] = {LLS__TOKEN_NORMAL, LLS__TOKEN_CONTROL, LLS__TOKEN_USER_DEFINED, LLS__TOKEN_USER_DEFINED,
                            LLS__TOKEN_CONTROL};
    lls__vocab v = {.model = "gpt2",
                    .pre = "gpt-2",
                    .num_tokens = 5,
                    .text = text,
                    .type = type,
                    .bos = -1,
                    .eos = -1,
                    .eot = -1,
                    .unk = -1};
    lls__tokenizer *t;
    assert_status(lls__tokenizer_create(&v, &t), LLS_OK);
    CHECK_IDS(t, "a<x><y>a<x>a<xyz>a", true, 0, 2, 0, 1, 0, 4, 0);
    CHECK_IDS(t, "a<x><y>a<x", false, 0, 2, 0, 3);
    CHECK_IDS(t, "<xa", true, 3, 0);
    // A user-defined token may reach from one part into the next; a control token may not.
    lls__text_part parts[] = {{"<x", 2, true}, {"><y>a", 5, false}};
    lls__ids ids = {0};
    assert_status(lls__tokenize_parts(t, parts, 2, false, &ids), LLS_OK);
    assert_int_equal(ids.size, 2);
    assert_int_equal(ids.data[0], 2);
    assert_int_equal(ids.data[1], 0);
    free(ids.data);
    lls__tokenizer_destroy(t);
}

/* Found by fuzzing: a token spelled as half a character cut the character apart. */
static void test_special_token_that_is_no_text(void **state) {
    (void)state;
    const lls__str text[] = {STR("\xA9"), STR("\xC3\x83"), STR("\xC2\xA9")}; // the last two: bytes C3 and A9
    const int32_t type[] = {LLS__TOKEN_USER_DEFINED, LLS__TOKEN_NORMAL, LLS__TOKEN_NORMAL};
    lls__vocab v = {.model = "gpt2",
                    .pre = "gpt-2",
                    .num_tokens = 3,
                    .text = text,
                    .type = type,
                    .bos = -1,
                    .eos = -1,
                    .eot = -1,
                    .unk = -1};
    lls__tokenizer *t;
    assert_status(lls__tokenizer_create(&v, &t), LLS_OK);
    CHECK_IDS(t, "\xC3\xA9", true, 1, 2);
    lls__tokenizer_destroy(t);
}

static void test_empty_text_has_no_tokens(void **state) {
    (void)state;
    const lls__text_part parts[] = {{NULL, 0, true}, {NULL, 0, false}};
    for (size_t f = 0; f < NUM_FAMILIES; f++) {
        lls__tokenizer *t = load_tokenizer(families[f]);
        lls__ids ids = {0};
        for (size_t n = 0; n <= 2; n++) {
            assert_status(lls__tokenize_parts(t, parts, n, true, &ids), LLS_OK);
            assert_int_equal(ids.size, 0);
        }
        lls__tokenizer_destroy(t);
    }
}

static void test_bos_and_eos(void **state) {
    (void)state;
    const lls__str text[] = {STR("<s>"), STR("</s>"), STR("a")};
    const int32_t type[] = {LLS__TOKEN_CONTROL, LLS__TOKEN_CONTROL, LLS__TOKEN_NORMAL};
    lls__vocab v = {.model = "gpt2",
                    .pre = "gpt-2",
                    .num_tokens = 3,
                    .text = text,
                    .type = type,
                    .bos = 0,
                    .eos = 1,
                    .eot = -1,
                    .unk = -1,
                    .add_bos = true,
                    .add_eos = true};
    lls__tokenizer *t;
    assert_status(lls__tokenizer_create(&v, &t), LLS_OK);
    lls__ids ids = {0};
    assert_status(lls__tokenize(t, "a", 1, true, false, &ids), LLS_OK);
    assert_status(lls__tokenize(t, "", 0, true, false, &ids), LLS_OK); // appends
    const int32_t want[] = {0, 2, 1, 0, 1};
    assert_int_equal(ids.size, 5);
    assert_memory_equal(ids.data, want, sizeof want);
    free(ids.data);
    lls__tokenizer_destroy(t);
}

/* ---- T03: bytes and characters ----------------------------------------------------------------- */

static void test_T03_byte_fallback(void **state) {
    (void)state;
    const lls__str text[] = {STR("<unk>"), STR("<0xF0>"), STR("<0x9F>"), STR("<0xA6>"), STR("<0x99>"), STR("a")};
    const int32_t type[] = {2, 6, 6, 6, 6, 1};
    const float scores[6] = {0};
    lls__vocab v = {.model = "llama",
                    .num_tokens = 6,
                    .text = text,
                    .type = type,
                    .scores = scores,
                    .bos = -1,
                    .eos = -1,
                    .eot = -1,
                    .unk = 0};
    lls__tokenizer *t;
    assert_status(lls__tokenizer_create(&v, &t), LLS_OK);
    CHECK_IDS(t, "\xF0\x9F\xA6\x99", false, 1, 2, 3, 4);
    // There is no <0x98>, and nothing of the next character: unknown, once.
    CHECK_IDS(t,
              "a\xF0\x9F\xA6\x99"
              "a\xF0\x9F\xA6\x98\xC3\xA9",
              false, 5, 1, 2, 3, 4, 5, 0);
    check_round_trip(t, STR("a\xF0\x9F\xA6\x99"), false);
    lls__tokenizer_destroy(t);
}

static void test_T03_invalid_text_is_refused(void **state) {
    (void)state;
    static const struct {
        lls__str text;
        const char *where;
    } bad[] = {{{"\xC3\x28", 2}, "byte 0 of 2 is 0xC3"},
               {{"ab\xED\xA0\x80", 5}, "byte 2 of 5 is 0xED"},        // a surrogate
               {{"\xF4\x90\x80\x80", 4}, "byte 0 of 4 is 0xF4"},      // above U+10FFFF
               {{"0123456789\xC0\x80", 12}, "byte 10 of 12 is 0xC0"}, // overlong
               {{"\xC3\xA9\xFF", 3}, "byte 2 of 3 is 0xFF"},
               {{"0123456789abcde\xE2\x82", 17}, "byte 15 of 17 is 0xE2"}}; // ends inside a character
    for (size_t f = 0; f < NUM_FAMILIES; f++) {
        lls__tokenizer *t = load_tokenizer(families[f]);
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            lls__ids ids = {0};
            assert_status(lls__ids_push(&ids, 77), LLS_OK);
            assert_status(lls__tokenize(t, bad[i].text.data, bad[i].text.size, true, true, &ids), LLS_ERR_ENCODING);
            assert_non_null(strstr(lls_last_error(), bad[i].where));
            assert_int_equal(ids.size, 1); // nothing written
            assert_int_equal(ids.data[0], 77);
            free(ids.data);
        }
        check_round_trip(t, STR(" "), true); // later calls work
        lls__tokenizer_destroy(t);
    }
}

static void test_T03_nul_is_text(void **state) {
    (void)state;
    for (size_t f = 0; f < NUM_COMPLETE; f++) {
        lls__tokenizer *t = load_tokenizer(complete[f]);
        check_round_trip(t, STR("\0"), true);
        check_round_trip(t, STR("a\0b\0\0"), true);
        lls__tokenizer_destroy(t);
    }
}

/* ---- Vocabularies that are refused ------------------------------------------------------------- */

static void check_refused(const lls__vocab *v, lls_status status, const char *word) {
    lls__tokenizer *t = (void *)1;
    assert_status(lls__tokenizer_create(v, &t), status);
    assert_ptr_equal(t, (void *)1);
    if (!strstr(lls_last_error(), word)) fail_msg("\"%s\" does not mention %s", lls_last_error(), word);
}

static void test_bad_vocabularies_are_refused(void **state) {
    (void)state;
    const lls__str text[] = {STR("a"), STR("b"), STR("ab"), STR("<0xZZ>")};
    const lls__str merges[] = {STR("a b"), STR("a c")};
    const float scores[4] = {0};
    const lls__vocab good = {.model = "gpt2",
                             .pre = "gpt-2",
                             .num_tokens = 3,
                             .text = text,
                             .num_merges = 1,
                             .merges = merges,
                             .bos = -1,
                             .eos = -1,
                             .eot = -1,
                             .unk = -1};
    lls__tokenizer *t;
    assert_status(lls__tokenizer_create(&good, &t), LLS_OK);
    CHECK_IDS(t, "aabb", false, 0, 2, 1);
    lls__tokenizer_destroy(t);

    lls__vocab v = good;
    v.pre = "some-new-pre";
    check_refused(&v, LLS_ERR_MODEL, "some-new-pre");
    v = good, v.model = "bert";
    check_refused(&v, LLS_ERR_MODEL, "bert");
    v = good, v.model = NULL;
    check_refused(&v, LLS_ERR_MODEL, "gpt2");
    v = good, v.num_merges = 2;
    check_refused(&v, LLS_ERR_FORMAT, "merge 1 is \"a c\"");
    v = good, v.bos = 3;
    check_refused(&v, LLS_ERR_FORMAT, "bos is 3");
    v = good, v.add_bos = true;
    check_refused(&v, LLS_ERR_MODEL, "bos");
    v = good, v.num_tokens = 0;
    check_refused(&v, LLS_ERR_FORMAT, "0 tokens");
    v = good, v.type = (const int32_t[]){1, 1, 7};
    check_refused(&v, LLS_ERR_FORMAT, "token 2 is 7");
    v = good, v.model = "llama";
    check_refused(&v, LLS_ERR_FORMAT, "scores");
    v.scores = scores;
    check_refused(&v, LLS_ERR_FORMAT, "unknown token");
    v.unk = 0, v.num_tokens = 4, v.type = (const int32_t[]){2, 1, 1, 6};
    check_refused(&v, LLS_ERR_FORMAT, "<0xZZ>");
}

static void test_questions_about_tokens(void **state) {
    (void)state;
    lls__tokenizer *t = load_tokenizer("toy");
    assert_int_equal(lls__tokenizer_size(t), 15);
    assert_int_equal(lls__tokenizer_bos(t), 1);
    assert_int_equal(lls__tokenizer_eos(t), 2);
    assert_int_equal(lls__tokenizer_eot(t), LLS__VOCAB_NONE);
    assert_int_equal(lls__token_find(t, "<tool>", 6), 3);
    assert_int_equal(lls__token_find(t, " text", 5), 4);
    assert_int_equal(lls__token_find(t, "texts", 5), -1);
    assert_int_equal(lls__token_find(t, "", 0), -1);
    assert_true(lls__token_is_control(t, 0) && lls__token_is_control(t, 2));
    assert_false(lls__token_is_control(t, 3) || lls__token_is_control(t, 4));
    assert_int_equal(lls__token_bytes(t, 4).size, 5);
    assert_null(lls__token_bytes(t, 15).data);
    assert_null(lls__token_bytes(t, -1).data);
    lls__tokenizer_destroy(t);
}

/* ---- Threads and speed ------------------------------------------------------------------------- */

static void *tokenize_corpus(void *arg) {
    const lls__tokenizer *t = arg;
    text_lines corpus = load_lines("text/corpus.txt");
    lls__ids *ids = calloc(1, sizeof *ids);
    for (int pass = 0; pass < 5; pass++) {
        ids->size = 0;
        for (size_t i = 0; i < corpus.count; i++) {
            lls__bytes text = unescape(corpus.line[i]);
            if (lls__tokenize(t, text.data, text.size, false, true, ids) != LLS_OK) ids->size = 0;
            free(text.data);
        }
    }
    free_lines(&corpus);
    return ids;
}

static void test_threads_share_a_tokenizer(void **state) {
    (void)state;
    for (size_t f = 0; f < NUM_FAMILIES; f++) {
        lls__tokenizer *t = load_tokenizer(families[f]);
        pthread_t thread[4];
        lls__ids *ids[4];
        for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&thread[i], NULL, tokenize_corpus, t), 0);
        for (int i = 0; i < 4; i++) pthread_join(thread[i], (void **)&ids[i]);
        for (int i = 0; i < 4; i++) {
            assert_true(ids[i]->size > 1000);
            assert_int_equal(ids[i]->size, ids[0]->size);
            assert_memory_equal(ids[i]->data, ids[0]->data, ids[0]->size * sizeof(int32_t));
        }
        for (int i = 0; i < 4; i++) {
            free(ids[i]->data);
            free(ids[i]);
        }
        lls__tokenizer_destroy(t);
    }
}

static double milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Printed, not asserted: the machine may be busy. */
static void test_print_speed_of_smollm2(void **state) {
    (void)state;
    double begin = milliseconds();
    lls__tokenizer *t = load_model_tokenizer();
    print_message("vocabulary of %d tokens loaded in %.1f ms\n", lls__tokenizer_size(t), milliseconds() - begin);
    text_lines corpus = load_lines("text/corpus.txt");
    lls__bytes text = {0};
    while (text.size < 1 << 20) { // the first lines are English
        for (size_t i = 0; i < 4; i++) {
            assert_status(lls__bytes_append(&text, corpus.line[i].data, corpus.line[i].size), LLS_OK);
        }
    }
    lls__ids ids = {0};
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        ids.size = 0;
        begin = milliseconds();
        assert_status(lls__tokenize(t, text.data, text.size, false, false, &ids), LLS_OK);
        double took = milliseconds() - begin;
        if (took < best) best = took;
    }
    print_message("English text: %.1f MB/s, %.2f bytes a token\n", (double)text.size / best / 1e3,
                  (double)text.size / (double)ids.size);
    free(ids.data);
    free(text.data);
    free_lines(&corpus);
    lls__tokenizer_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_ids),
        cmocka_unit_test(test_smollm2_recorded_ids),
        cmocka_unit_test(test_round_trip_of_corpus),
        cmocka_unit_test(test_round_trip_of_random_unicode),
        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_T01_space_prefix_and_control_tokens),
        cmocka_unit_test(test_T01_untrusted_parts_yield_no_control_tokens),
        cmocka_unit_test(test_T01_parts_are_read_as_one_text),
        cmocka_unit_test(test_longest_special_token_wins),
        cmocka_unit_test(test_special_token_that_is_no_text),
        cmocka_unit_test(test_empty_text_has_no_tokens),
        cmocka_unit_test(test_bos_and_eos),
        cmocka_unit_test(test_T03_byte_fallback),
        cmocka_unit_test(test_T03_invalid_text_is_refused),
        cmocka_unit_test(test_T03_nul_is_text),
        cmocka_unit_test(test_bad_vocabularies_are_refused),
        cmocka_unit_test(test_questions_about_tokens),
        cmocka_unit_test(test_threads_share_a_tokenizer),
        cmocka_unit_test(test_print_speed_of_smollm2),
    };
    return cmocka_run_group_tests_name("text_tokenizer", tests, NULL, NULL);
}
