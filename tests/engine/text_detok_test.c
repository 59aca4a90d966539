/* The streaming detokeniser: whole characters only, what becomes of the rest, and the spaces of SentencePiece. */
#include <stdio.h>

#include "engine/text/detok.h"
#include "engine/text/utf8.h"
#include "engine/text_fixture.h"

/* Ids 0 to 255 are the bytes, so that any sequence can be fed; then a control and an added token. */
enum { CONTROL = 256, ADDED = 257, SPACE_A = 258, NUM_TOKENS = 259 };

static lls__tokenizer *byte_tokenizer(bool space_prefix) {
    static char spelling[256][8];
    lls__str text[NUM_TOKENS];
    int32_t type[NUM_TOKENS];
    float scores[NUM_TOKENS] = {0};
    for (int i = 0; i < 256; i++) {
        text[i] = (lls__str){spelling[i], (size_t)snprintf(spelling[i], 8, "<0x%02X>", (unsigned)i)};
        type[i] = LLS__TOKEN_BYTE;
    }
    text[CONTROL] = STR("<end>"), type[CONTROL] = LLS__TOKEN_CONTROL;
    text[ADDED] = STR("<tool>"), type[ADDED] = LLS__TOKEN_USER_DEFINED;
    text[SPACE_A] = STR("\xE2\x96\x81"
                        "A"),
    type[SPACE_A] = LLS__TOKEN_NORMAL;
    lls__vocab v = {.model = "llama",
                    .num_tokens = NUM_TOKENS,
                    .text = text,
                    .type = type,
                    .scores = scores,
                    .bos = -1,
                    .eos = -1,
                    .eot = -1,
                    .unk = -1,
                    .add_space_prefix = space_prefix};
    lls__tokenizer *t;
    assert_status(lls__tokenizer_create(&v, &t), LLS_OK);
    return t;
}

static void check_text(lls__bytes *out, const char *want) {
    assert_int_equal(out->size, strlen(want));
    if (out->size) assert_memory_equal(out->data, want, out->size);
    out->size = 0;
}

static void test_T03_character_over_four_tokens(void **state) {
    (void)state;
    lls__tokenizer *t = byte_tokenizer(false);
    lls__detok d;
    lls__bytes out = {0};
    lls__detok_init(&d, t, 0);
    for (int i = 0; i < 3; i++) {
        assert_status(lls__detok_push(&d, "\xF0\x9F\xA6\x99"[i] & 0xFF, &out), LLS_OK);
        check_text(&out, "");
    }
    assert_status(lls__detok_push(&d, 0x99, &out), LLS_OK);
    check_text(&out, "\xF0\x9F\xA6\x99");
    assert_status(lls__detok_flush(&d, &out), LLS_OK);
    check_text(&out, "");

    // Stopped after two of them: one replacement character, once.
    lls__detok_push(&d, 0xF0, &out);
    lls__detok_push(&d, 0x9F, &out);
    check_text(&out, "");
    assert_status(lls__detok_flush(&d, &out), LLS_OK);
    check_text(&out, "\xEF\xBF\xBD");
    assert_status(lls__detok_flush(&d, &out), LLS_OK);
    check_text(&out, "");
    free(out.data);
    lls__tokenizer_destroy(t);
}

/* Each ill-formed sequence with what the Unicode standard recommends (section 3.9, table 3-8 and the rows around it);
 * "?" stands for U+FFFD. */
static void test_T03_ill_formed_bytes(void **state) {
    (void)state;
    static const struct {
        lls__str bytes;
        const char *want;
    } cases[] = {{{"\xC3\x28", 2}, "?("},
                 {{"\xED\xA0\x80", 3}, "???"},
                 {{"\xF4\x90\x80\x80", 4}, "????"},
                 {{"\xC0\xAF", 2}, "??"},
                 {{"\xE0\x9F\x80", 3}, "???"},
                 {{"\xF0\x80\x80\x41", 4}, "???A"},
                 {{"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", 13}, "a???b?c??d"},
                 {{"\xF0\x9F\xF0\x9F\xA6\x99", 6}, "?\xF0\x9F\xA6\x99"},
                 {{"\x80", 1}, "?"},
                 {{"\xFF\xFE", 2}, "??"},
                 {{"\xE2\x82", 2}, "?"},
                 {{"a\xC3\xA9", 3}, "a\xC3\xA9"}};
    lls__tokenizer *t = byte_tokenizer(false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lls__bytes out = {0}, want = {0};
        int32_t ids[16];
        for (size_t j = 0; j < cases[i].bytes.size; j++) ids[j] = (uint8_t)cases[i].bytes.data[j];
        assert_status(lls__detokenize(t, ids, cases[i].bytes.size, 0, &out), LLS_OK);
        for (const char *p = cases[i].want; *p; p++) {
            assert_status(lls__bytes_append(&want, *p == '?' ? "\xEF\xBF\xBD" : p, *p == '?' ? 3 : 1), LLS_OK);
        }
        assert_int_equal(out.size, want.size);
        assert_memory_equal(out.data, want.data, want.size);
        free(out.data);
        free(want.data);
    }
    lls__tokenizer_destroy(t);
}

/* Every sequence of up to three bytes out of the interesting ones: what comes out is valid, and no more is held back
 * than the begin of a character. */
static void test_output_is_always_valid(void **state) {
    (void)state;
    static const uint8_t byte[] = {0x00, 0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                   0xC1, 0xC2, 0xE0, 0xED, 0xF0, 0xF4, 0xF5};
    enum { N = sizeof byte };
    lls__tokenizer *t = byte_tokenizer(false);
    lls__bytes out = {0};
    for (int i = 0; i < N * N * N * N; i++) {
        lls__detok d;
        lls__detok_init(&d, t, 0);
        out.size = 0;
        for (int j = 0, rest = i; j < 4; j++, rest /= N) {
            assert_status(lls__detok_push(&d, byte[rest % N], &out), LLS_OK);
            assert_int_equal(lls__utf8_valid_prefix(out.data, out.size), out.size);
            assert_true(d.num_waiting <= 3);
        }
    }
    free(out.data);
    lls__tokenizer_destroy(t);
}

static void test_control_tokens_are_hidden_unless_asked_for(void **state) {
    (void)state;
    lls__tokenizer *t = byte_tokenizer(false);
    lls__bytes out = {0};
    const int32_t ids[] = {'a', CONTROL, 'b', ADDED, 0xC3, CONTROL, 0xA9};
    assert_status(lls__detokenize(t, ids, 7, 0, &out), LLS_OK);
    check_text(&out, "ab<tool>\xEF\xBF\xBD\xEF\xBF\xBD"); // a token between the halves of a character breaks it
    assert_status(lls__detokenize(t, ids, 4, LLS__DETOK_SHOW_CONTROL, &out), LLS_OK);
    check_text(&out, "a<end>b<tool>");
    free(out.data);
    lls__tokenizer_destroy(t);
}

static void test_space_prefix_is_taken_away(void **state) {
    (void)state;
    lls__tokenizer *t = byte_tokenizer(true);
    lls__bytes out = {0};
    const int32_t ids[] = {SPACE_A, SPACE_A, CONTROL, SPACE_A, ADDED, SPACE_A, CONTROL, CONTROL, SPACE_A, SPACE_A};
    assert_status(lls__detokenize(t, ids, 10, 0, &out), LLS_OK);
    check_text(&out, "A AA<tool>AA A");
    assert_status(lls__detokenize(t, ids, 2, LLS__DETOK_CONTINUE, &out), LLS_OK);
    check_text(&out, " A A");
    const int32_t byte_space[] = {' ', ' ', 'x'}; // the prefix may have been spelled as a byte
    assert_status(lls__detokenize(t, byte_space, 3, 0, &out), LLS_OK);
    check_text(&out, " x");
    lls__tokenizer_destroy(t);

    t = byte_tokenizer(false); // no prefix was added, none is taken away
    assert_status(lls__detokenize(t, ids, 4, 0, &out), LLS_OK);
    check_text(&out, " A A A");
    free(out.data);
    lls__tokenizer_destroy(t);
}

static void test_bad_ids_are_refused(void **state) {
    (void)state;
    lls__tokenizer *t = byte_tokenizer(false);
    lls__bytes out = {0};
    const int32_t ids[] = {'a', NUM_TOKENS}, negative[] = {-1};
    assert_status(lls__detokenize(t, ids, 2, 0, &out), LLS_ERR_ARGUMENT);
    assert_non_null(strstr(lls_last_error(), "id is 259"));
    assert_int_equal(out.size, 0);
    assert_status(lls__detokenize(t, negative, 1, 0, &out), LLS_ERR_ARGUMENT);
    assert_status(lls__detokenize(t, NULL, 0, 0, &out), LLS_OK);
    free(out.data);
    lls__tokenizer_destroy(t);
}

/* Fed one by one or at once, the corpus comes out the same. */
static void test_streaming_equals_whole(void **state) {
    (void)state;
    lls__tokenizer *t = load_tokenizer("llama");
    text_lines corpus = load_lines("text/corpus.txt");
    for (size_t i = 0; i < corpus.count; i++) {
        lls__bytes text = unescape(corpus.line[i]), streamed = {0};
        lls__ids ids = {0};
        assert_status(lls__tokenize(t, text.data, text.size, false, false, &ids), LLS_OK);
        lls__detok d;
        lls__detok_init(&d, t, 0);
        for (size_t k = 0; k < ids.size; k++) {
            assert_status(lls__detok_push(&d, ids.data[k], &streamed), LLS_OK);
            assert_int_equal(lls__utf8_valid_prefix(streamed.data, streamed.size), streamed.size);
        }
        assert_int_equal(streamed.size, text.size); // before any flush
        assert_memory_equal(streamed.data, text.data, text.size);
        free(text.data);
        free(streamed.data);
        free(ids.data);
    }
    free_lines(&corpus);
    lls__tokenizer_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_T03_character_over_four_tokens),
        cmocka_unit_test(test_T03_ill_formed_bytes),
        cmocka_unit_test(test_output_is_always_valid),
        cmocka_unit_test(test_control_tokens_are_hidden_unless_asked_for),
        cmocka_unit_test(test_space_prefix_is_taken_away),
        cmocka_unit_test(test_bad_ids_are_refused),
        cmocka_unit_test(test_streaming_equals_whole),
    };
    return cmocka_run_group_tests_name("text_detok", tests, NULL, NULL);
}
