/* The tokens of a vocabulary as the bytes they stand for, in one block, with an index from bytes to id. Byte-level
 * vocabularies spell a byte as a printable character, SentencePiece ones a space as U+2581; both are undone here, once,
 * so that text is matched as it comes and tokens are written out as they are. */
#ifndef LLS_ENGINE_TEXT_TOKENS_H
#define LLS_ENGINE_TEXT_TOKENS_H

#include "engine/text/vocab.h"

typedef struct lls__token_slot {
    uint32_t hash;
    int32_t id; /* -1: empty */
} lls__token_slot;

typedef struct lls__tokens {
    int32_t count;
    char *bytes;      /* all tokens, back to back */
    uint32_t *offset; /* [count + 1] */
    uint8_t *type;    /* [count] lls__token_type */

    /* What text may be made of: normal tokens that have a spelling. Open addressing, at most half full. */
    lls__token_slot *slot; /* [mask + 1] */
    uint32_t mask;
    int32_t byte_id[256]; /* the token of one raw byte, or -1 */
} lls__tokens;

/* On failure *tokens holds nothing. */
lls_status lls__tokens_init(lls__tokens *tokens, const lls__vocab *vocab);
void lls__tokens_free(lls__tokens *tokens);

static inline lls__str lls__tokens_at(const lls__tokens *tokens, int32_t id) {
    return (lls__str){tokens->bytes + tokens->offset[id], tokens->offset[id + 1] - tokens->offset[id]};
}

/* The normal token of exactly these bytes (the lowest id of several), or -1. */
int32_t lls__tokens_find(const lls__tokens *tokens, const char *bytes, size_t size);

/* Undoes the byte-level spelling: writes at most spelling.size bytes to `out` and sets *size. False when a character
 * stands for no byte. */
bool lls__byte_level_decode(lls__str spelling, char *out, size_t *size);

#endif
