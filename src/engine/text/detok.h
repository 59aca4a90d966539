/* Token ids to text, one at a time: what comes out is always whole characters.
 *
 * A character may be spread over several tokens; its bytes wait until it is complete. Bytes that cannot become a
 * character are replaced by one U+FFFD for each maximal ill-formed subpart (Unicode standard, section 3.9); so is what
 * still waits when a hidden token comes between, and at the end. Where a SentencePiece tokenizer put a space in front
 * of text (at the start, and after each special token), that space is taken away: detok(tokenize(x)) is x. */
#ifndef LLS_ENGINE_TEXT_DETOK_H
#define LLS_ENGINE_TEXT_DETOK_H

#include "engine/text/tokenizer.h"

enum {
    LLS__DETOK_SHOW_CONTROL = 1, /* control and unknown tokens appear as they are spelled; otherwise they are hidden */
    LLS__DETOK_CONTINUE = 2      /* text stands before this: a space at the start is the text's own */
};

/* A plain value that owns nothing. */
typedef struct lls__detok {
    const lls__tokenizer *tokenizer;
    unsigned flags;
    bool space_is_prefix; /* a space that comes next was put there by the tokenizer */
    uint8_t num_waiting;
    char waiting[4]; /* the begin of a character */
} lls__detok;

/* The tokenizer must outlive *detok. */
void lls__detok_init(lls__detok *detok, const lls__tokenizer *tokenizer, unsigned flags);

/* Appends the characters that this token completes. LLS_ERR_ARGUMENT for an id outside the vocabulary. */
lls_status lls__detok_push(lls__detok *detok, int32_t id, lls__bytes *out);
/* Appends U+FFFD when a character is incomplete. The detokeniser may be used on, as for new text in the same place. */
lls_status lls__detok_flush(lls__detok *detok, lls__bytes *out);

/* All of `ids` at once, flushed. On failure *out is as before. */
lls_status lls__detokenize(const lls__tokenizer *tokenizer, const int32_t *ids, size_t num_ids, unsigned flags,
                           lls__bytes *out);

#endif
