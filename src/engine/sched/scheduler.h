/* Which tokens of which sequences the next step computes. Integers only: no model, no device.
 *
 * A sequence is its tokens, prompt and generated ones alike, of which the first `cached` have keys and values. What is
 * left is computed chunk by chunk; a step that reaches the last token samples the next one. So prefill, decode, and
 * recomputing a preempted sequence are one rule.
 *
 * Each step serves, in order of arrival, first the sequences that need one token, then the others with what remains of
 * the chunk budget. When the pool has no page for a sequence, the youngest running one gives up its pages and waits to
 * be recomputed, never the oldest: so the oldest always ends. */
#ifndef LLS_ENGINE_SCHEDULER_H
#define LLS_ENGINE_SCHEDULER_H

#include "engine/kv/pages.h"
#include "llmspeed/engine.h"

typedef struct lls__sequence {
    int64_t id;
    int32_t *tokens;    /* [context_length] */
    int32_t num_tokens; /* prompt and generated */
    int32_t num_prompt;
    int32_t cached; /* leading tokens whose keys and values are in the cache */
    int32_t *pages; /* [pages of a full context] */
    int32_t num_pages;
    int32_t max_new_tokens; /* -1: no limit */
    bool ignore_stop_tokens;
    int32_t *stop_tokens;
    size_t num_stop_tokens;
    lls_sampling sampling;
    lls_finish finish; /* LLS_RUNNING until it ended; the engine reports and removes it */
    bool admitted;     /* holds, or may hold, pages */
} lls__sequence;

typedef struct lls__schedule_entry {
    lls__sequence *sequence;
    int32_t num_tokens; /* computes tokens[cached .. cached + num_tokens) */
    bool samples;       /* reaches the last token */
} lls__schedule_entry;

typedef struct lls__scheduler {
    lls__pages pages;
    int32_t max_running;   /* sequences that hold pages at once */
    int32_t chunk_tokens;  /* tokens a step at most, decodes beyond it always included */
    lls__sequence **queue; /* all sequences, oldest first */
    size_t num_queued, cap_queued;
    lls__schedule_entry *plan; /* [max_running] */
    int32_t num_planned;
} lls__scheduler;

lls_status lls__scheduler_init(lls__scheduler *s, int32_t num_pages, int32_t page_size, int32_t max_running,
                               int32_t chunk_tokens);
/* Frees all sequences. */
void lls__scheduler_release(lls__scheduler *s);

/* Takes ownership of the sequence on success. */
lls_status lls__scheduler_add(lls__scheduler *s, lls__sequence *sequence);
lls__sequence *lls__scheduler_find(const lls__scheduler *s, int64_t id);
/* Gives the pages back and frees the sequence. */
void lls__scheduler_remove(lls__scheduler *s, lls__sequence *sequence);

/* Fills plan[0 .. num_planned) and takes the pages it needs. A sequence that alone outgrows the whole pool gets finish
 * = CONTEXT_FULL instead of an entry. */
void lls__scheduler_plan(lls__scheduler *s);

void lls__sequence_free(lls__sequence *sequence);

#endif
