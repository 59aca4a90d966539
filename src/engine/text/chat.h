/* Chats to prompts. A model file brings a chat template, which is a Jinja program; it is not run, but recognised as
 * one of the formats that most models use, and the parts in which models of a format differ are read out of it:
 *
 *   chatml    <|im_start|>ROLE\n CONTENT <|im_end|>\n                          SmolLM2, Qwen2, ...; with their default
 *                                                                             system message, if the template has one
 *   llama3    <|start_header_id|>ROLE<|end_header_id|>\n\n CONTENT <|eot_id|>  with the date lines of 3.1 and later
 *   mistral   [INST] CONTENT [/INST] ANSWER EOS                               Mistral and Llama-2; spaces as written
 *   zephyr    <|ROLE|>\n CONTENT EOS\n                                        Zephyr, TinyLlama
 *
 * Tools, images and the dropping of earlier thoughts are not covered. A prompt is a list of parts, of which only those
 * that come from the template may contain control tokens: "<|im_end|>" in a message stays text. */
#ifndef LLS_ENGINE_TEXT_CHAT_H
#define LLS_ENGINE_TEXT_CHAT_H

#include "engine/text/tokenizer.h"

typedef struct lls__chat lls__chat;

/* `chat_template` is the file's text, or the name of a format above for a model without one. bos and eos are the
 * spellings of those tokens ("<s>"), empty where there is none. Everything is copied. LLS_ERR_MODEL: the template is
 * empty or of no known format; the message shows how it begins. */
lls_status lls__chat_create(lls__str chat_template, lls__str bos, lls__str eos, lls__chat **out);
void lls__chat_destroy(lls__chat *chat); /* NULL is fine */

/* "chatml", ... */
const char *lls__chat_format(const lls__chat *chat);
/* Spelling of the token with which the model ends its answer. */
lls__str lls__chat_end_of_turn(const lls__chat *chat);

typedef struct lls__message {
    lls__str role; /* "system", "user" or "assistant" */
    lls__str content;
} lls__message;

typedef struct lls__prompt {
    lls__text_part *parts; /* point into the chat and into the messages, which must outlive them */
    size_t num_parts, cap;
} lls__prompt;

/* The whole chat as a prompt for lls__tokenize_parts with add_special false (bos is part of the format).
 * add_generation_prompt: end with the begin of an answer. LLS_ERR_ARGUMENT: no messages, a role that is not known, or
 * an order that the format cannot express (mistral: a system message first or none, then user and assistant in turn).
 * On failure *prompt is untouched; on success the caller frees it. */
lls_status lls__chat_render(const lls__chat *chat, const lls__message *messages, size_t num_messages,
                            bool add_generation_prompt, lls__prompt *prompt);
void lls__prompt_free(lls__prompt *prompt);

#endif
