/* The recorded vocabularies and texts of tests/golden/text; tools/record_tokenizer_fixtures.py says what they hold. */
#ifndef LLS_TESTS_TEXT_FIXTURE_H
#define LLS_TESTS_TEXT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/text/tokenizer.h"

#ifndef LLS_GOLDEN_DIR
#define LLS_GOLDEN_DIR "tests/golden" /* from the root of the repository */
#endif

/* The lines of a file under LLS_GOLDEN_DIR. Fails the test when it cannot be read. */
typedef struct text_lines {
    char *file;
    lls__str *line;
    size_t count;
} text_lines;
text_lines load_lines(const char *name);
void free_lines(text_lines *lines);

/* The text behind the escapes \n \r \t \\ \u{hex}; the caller frees it. */
lls__bytes unescape(lls__str line);

/* A tokenizer from tests/golden/text/<name>.vocab. */
lls__tokenizer *load_tokenizer(const char *name);

/* The tokenizer of the GGUF file that LLS_TEST_MODEL names; skips the test when it names none. */
lls__tokenizer *load_model_tokenizer(void);

/* The status of a call must be `want`; otherwise the message is printed. */
#define assert_status(call, want) check_status((call), (want), __FILE__, __LINE__)
void check_status(lls_status got, lls_status want, const char *file, int line);

/* Tokenizes and compares with the ids given; prints both when they differ. */
void assert_ids(const lls__tokenizer *t, lls__str text, bool parse_special, const int32_t *want, size_t num_want);

/* A literal as a lls__str, NULs inside included. */
#define STR(literal) ((lls__str){literal, sizeof(literal) - 1})

#endif
