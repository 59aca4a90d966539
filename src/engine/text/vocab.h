/* What a tokenizer is made of, whatever file it comes from. All pointers are borrowed: lls__tokenizer_create copies
 * what it needs. */
#ifndef LLS_ENGINE_TEXT_VOCAB_H
#define LLS_ENGINE_TEXT_VOCAB_H

#include "engine/model/gguf.h"
#include "engine/text/buffers.h"

/* Numbered as GGUF's tokenizer.ggml.token_type. */
typedef enum lls__token_type {
    LLS__TOKEN_NORMAL = 1,
    LLS__TOKEN_UNKNOWN = 2,      /* stands for what the vocabulary cannot spell */
    LLS__TOKEN_CONTROL = 3,      /* begin, end, role markers: recognised only where the caller allows it */
    LLS__TOKEN_USER_DEFINED = 4, /* added text, kept whole wherever it stands */
    LLS__TOKEN_UNUSED = 5,
    LLS__TOKEN_BYTE = 6 /* "<0x0A>": one raw byte */
} lls__token_type;

#define LLS__VOCAB_NONE (-1)

typedef struct lls__vocab {
    const char *model; /* "gpt2": byte-level BPE; "llama": SentencePiece BPE */
    const char *pre;   /* gpt2: name of the pre-tokenizer as GGUF writes it. NULL: "default", with a warning */

    int32_t num_tokens;
    const lls__str *text; /* [num_tokens] as the file spells them: "Ġthe" (gpt2), "▁the" (llama) */
    const int32_t *type;  /* [num_tokens] lls__token_type; NULL: all are normal */
    const float *scores;  /* [num_tokens] llama: which merge comes first (highest). NULL elsewhere */
    int32_t num_merges;
    const lls__str *merges; /* [num_merges] gpt2: "left right", most urgent first */

    int32_t bos, eos, eot, unk; /* ids, or LLS__VOCAB_NONE; eot ends a turn of a chat */
    bool add_bos, add_eos;      /* whether text that begins a sequence gets them */
    bool add_space_prefix;      /* llama: text gets a space in front */
} lls__vocab;

/* The vocabulary of a GGUF file. Strings point into the file's mapping, arrays into *storage, which the caller frees
 * with free() once the tokenizer is made. Absent keys take the defaults of their family: bos 1, eos 2, unk 0, a space
 * prefix and a bos for "llama"; nothing for "gpt2", except that Llama-3 files want a bos. */
lls_status lls__vocab_from_gguf(const lls__gguf *gguf, lls__vocab *vocab, void **storage);

#endif
