/* What the text of a chat template says about its format; chat.c renders by it. */
#ifndef LLS_ENGINE_TEXT_CHAT_FORMAT_H
#define LLS_ENGINE_TEXT_CHAT_FORMAT_H

#include "engine/text/buffers.h"

typedef enum lls__role { LLS__SYSTEM, LLS__USER, LLS__ASSISTANT, LLS__NUM_ROLES } lls__role;

/* Where the system message goes when the format has no turn for it. */
typedef enum lls__system_place {
    LLS__SYSTEM_OWN_TURN,
    LLS__SYSTEM_IN_FIRST_USER, /* in front of the content of the first user message */
    LLS__SYSTEM_IN_LAST_USER
} lls__system_place;

/* All bytes are owned. */
typedef struct lls__chat_rules {
    const char *name;
    lls__bytes head;                   /* once, before everything */
    lls__bytes before[LLS__NUM_ROLES]; /* around the content of a message */
    lls__bytes after[LLS__NUM_ROLES];
    bool trim[LLS__NUM_ROLES]; /* white space around the content goes */
    lls__bytes answer;         /* what an answer to be generated begins with */
    lls__bytes end_of_turn;

    lls__system_place system_place;
    bool has_default_system; /* a chat that does not begin with a system message gets this one */
    lls__bytes default_system;
} lls__chat_rules;

/* Recognises a template, or the name of a format; see chat.h. On failure *rules holds nothing. */
lls_status lls__chat_rules_from_template(lls__str chat_template, lls__str bos, lls__str eos, lls__chat_rules *rules);
void lls__chat_rules_free(lls__chat_rules *rules);

#endif
