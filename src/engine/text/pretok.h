/* Pre-tokenizers of byte-level BPE: how text is cut into words, within which alone merges happen. GGUF files give a
 * name; the patterns behind the names are data here. A wrong cut would only lower the quality of the model's answers,
 * without any error, so unknown names are refused. */
#ifndef LLS_ENGINE_TEXT_PRETOK_H
#define LLS_ENGINE_TEXT_PRETOK_H

#include "engine/text/buffers.h"

#define LLS__PRETOK_MAX_PASSES 2

/* A family of tokenizers. Pass i cuts each piece of pass i - 1 into its matches and the gaps between them. */
typedef struct lls__pretok_rule {
    const char *names[10];                      /* NULL-terminated: what GGUF files call it */
    const char *passes[LLS__PRETOK_MAX_PASSES]; /* PCRE2 patterns; NULL after the last */
    bool nfc;                                   /* text is brought to Unicode normal form C first */
    bool ignore_merges;                         /* a word that is a token as a whole is not merged from bytes */
    bool add_bos;                               /* where the file does not say */
} lls__pretok_rule;

/* NULL when there is no rule of that name. */
const lls__pretok_rule *lls__pretok_find(const char *name);

/* A compiled rule: constant once made, so any number of threads may use it. */
typedef struct lls__pretok lls__pretok;
lls_status lls__pretok_create(const lls__pretok_rule *rule, lls__pretok **out);
void lls__pretok_destroy(lls__pretok *pretok);

/* What one call of lls__pretok_split needs for itself; may be reused for the next. */
typedef struct lls__pretok_scratch lls__pretok_scratch;
lls_status lls__pretok_scratch_create(lls__pretok_scratch **out);
void lls__pretok_scratch_destroy(lls__pretok_scratch *scratch);

/* Calls word() for each word of the text, which must be valid UTF-8, in order; the words joined are the text. Stops
 * at the first failure of word() and returns it. */
typedef lls_status (*lls__word_fn)(void *user, const char *word, size_t size);
lls_status lls__pretok_split(const lls__pretok *pretok, lls__pretok_scratch *scratch, const char *text, size_t size,
                             lls__word_fn word, void *user);

#endif
