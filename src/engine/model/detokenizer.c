/* The public detokeniser: engine/text/detok.h with the text it made. */
#include <stdlib.h>

#include "engine/model/model.h"
#include "engine/text/detok.h"

struct lls_detokenizer {
    lls__detok detok;
    lls__bytes text; // what the last call handed out
};

lls_status lls_detokenizer_create(const lls_model *model, const int32_t *prompt, size_t prompt_tokens,
                                  bool show_control, lls_detokenizer **out) {
    if (!model || !out || (!prompt && prompt_tokens)) {
        return lls__fail(LLS_ERR_ARGUMENT, "detokenizer_create: %s is NULL",
                         !model ? "model"
                         : !out ? "out"
                                : "prompt");
    }
    *out = calloc(1, sizeof **out);
    if (!*out) return lls__fail(LLS_ERR_MEMORY, "detokenizer_create: out of memory");
    // Behind text, a space that comes first is the text's own; at the start and behind a control token a SentencePiece
    // vocabulary put it there.
    bool continues = prompt_tokens && !lls__token_is_control(model->tokenizer, prompt[prompt_tokens - 1]);
    unsigned flags = (continues ? LLS__DETOK_CONTINUE : 0u) | (show_control ? LLS__DETOK_SHOW_CONTROL : 0u);
    lls__detok_init(&(*out)->detok, model->tokenizer, flags);
    return LLS_OK;
}

lls_status lls_detokenize(lls_detokenizer *d, int32_t id, const char **text, size_t *bytes) {
    if (!d || !text || !bytes) {
        return lls__fail(LLS_ERR_ARGUMENT, "detokenize: %s is NULL", !d ? "detokenizer" : !text ? "text" : "bytes");
    }
    d->text.size = 0;
    LLS_TRY(id == -1 ? lls__detok_flush(&d->detok, &d->text) : lls__detok_push(&d->detok, id, &d->text));
    *text = d->text.size ? d->text.data : "";
    *bytes = d->text.size;
    return LLS_OK;
}

void lls_detokenizer_free(lls_detokenizer *d) {
    if (!d) return;
    free(d->text.data);
    free(d);
}
