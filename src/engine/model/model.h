/* The model behind lls_model: a checked file, its hyperparameters, its text side. Read only once made. */
#ifndef LLS_ENGINE_MODEL_H
#define LLS_ENGINE_MODEL_H

#include "engine/model/config.h"
#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"
#include "llmspeed/engine.h"

struct lls_model {
    lls__gguf *gguf;
    lls__model_config config;
    lls__tokenizer *tokenizer;
    lls__chat *chat;     /* NULL: no template in the file, or one that is not recognised */
    char *chat_missing;  /* why chat is NULL, for the message of a caller who needs it */
    char *name;          /* general.name */
    int32_t turn_end_id; /* token with which the chat format ends an answer; -1 */
    lls_progress_fn progress;
    void *progress_user;
};

/* Ends a text: the file's eos or eot, or the chat format's end of turn. */
bool lls__model_is_stop(const lls_model *model, int32_t id);

#endif
