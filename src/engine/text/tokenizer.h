/* Text to token ids. Two kinds of vocabulary: byte-level BPE (GPT-2, Llama-3, Qwen, SmolLM) and SentencePiece BPE with
 * byte fallback (Llama-2, Mistral). The ids are those of Hugging Face's `tokenizers` for the same files.
 *
 * Text is valid UTF-8 and may hold NUL; anything else fails with LLS_ERR_ENCODING and a message with the offset and
 * the byte. This holds for both kinds: a byte-level vocabulary could spell stray bytes, but no model was trained on
 * them.
 *
 * Joining the tokens' bytes gives the text back, with three exceptions, all of them the models' own: Qwen2 tokenizers
 * compose characters first (NFC); a SentencePiece vocabulary may prefix a space, which the detokeniser takes away
 * again; and what a vocabulary cannot spell at all is dropped with a warning in the log (byte-level vocabularies that
 * lack some control characters) or becomes the unknown token (SentencePiece vocabularies without byte tokens). */
#ifndef LLS_ENGINE_TEXT_TOKENIZER_H
#define LLS_ENGINE_TEXT_TOKENIZER_H

#include "engine/text/buffers.h"
#include "engine/text/vocab.h"

/* Constant once made: any number of threads may use one at a time. */
typedef struct lls__tokenizer lls__tokenizer;

/* Copies what it needs of the vocabulary. Errors: LLS_ERR_MODEL (model or pre-tokenizer not known; a bos that should be
 * added is absent), LLS_ERR_FORMAT (types, ids, merges that do not fit together), LLS_ERR_MEMORY. */
lls_status lls__tokenizer_create(const lls__vocab *vocab, lls__tokenizer **out);
void lls__tokenizer_destroy(lls__tokenizer *tokenizer); /* NULL is fine */

/* A stretch of a prompt. Spellings of control tokens ("<|im_end|>") become those tokens only within a part that is
 * trusted with it: a chat template is, what a user typed is not. */
typedef struct lls__text_part {
    const char *text;
    size_t size;
    bool parse_special;
} lls__text_part;

/* Appends the ids of the parts, read as one text: merges run across the borders of parts, so that a trusted frame
 * around harmless content gives the same ids as the whole in one piece. User-defined tokens are found everywhere.
 * add_special: put bos in front and eos behind where the vocabulary asks for it. On failure *ids is as before. */
lls_status lls__tokenize_parts(const lls__tokenizer *tokenizer, const lls__text_part *parts, size_t num_parts,
                               bool add_special, lls__ids *ids);

/* The same for one part. */
lls_status lls__tokenize(const lls__tokenizer *tokenizer, const char *text, size_t size, bool add_special,
                         bool parse_special, lls__ids *ids);

int32_t lls__tokenizer_size(const lls__tokenizer *tokenizer);
/* Ids, or LLS__VOCAB_NONE. */
int32_t lls__tokenizer_bos(const lls__tokenizer *tokenizer);
int32_t lls__tokenizer_eos(const lls__tokenizer *tokenizer);
int32_t lls__tokenizer_eot(const lls__tokenizer *tokenizer);
bool lls__tokenizer_adds_space_prefix(const lls__tokenizer *tokenizer);

/* The raw bytes of a token, with spaces as spaces; {NULL, 0} for an id outside the vocabulary. They may be a part of a
 * character: lls__detok joins them. */
lls__str lls__token_bytes(const lls__tokenizer *tokenizer, int32_t id);
/* LLS__TOKEN_UNUSED for an id outside the vocabulary. */
lls__token_type lls__token_type_of(const lls__tokenizer *tokenizer, int32_t id);
/* A control or unknown token: not text. */
bool lls__token_is_control(const lls__tokenizer *tokenizer, int32_t id);
/* The token of exactly these bytes (as lls__token_bytes gives them), special ones first; LLS__VOCAB_NONE if none. */
int32_t lls__token_find(const lls__tokenizer *tokenizer, const char *bytes, size_t size);

#endif
