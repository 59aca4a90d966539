#include "engine/sched/scheduler.h"

#include <stdlib.h>
#include <string.h>

#include "engine/text/buffers.h"

lls_status lls__scheduler_init(lls__scheduler *s, int32_t num_pages, int32_t page_size, int32_t max_running,
                               int32_t chunk_tokens) {
    *s = (lls__scheduler){.max_running = max_running, .chunk_tokens = chunk_tokens};
    LLS_TRY(lls__pages_init(&s->pages, num_pages, page_size));
    s->plan = calloc((size_t)max_running, sizeof *s->plan);
    if (s->plan) return LLS_OK;
    lls__pages_release(&s->pages);
    return lls__fail(LLS_ERR_MEMORY, "scheduler: out of memory for %d sequences", max_running);
}

void lls__sequence_free(lls__sequence *sequence) {
    if (!sequence) return;
    free(sequence->tokens);
    free(sequence->pages);
    free(sequence->stop_tokens);
    free(sequence);
}

void lls__scheduler_release(lls__scheduler *s) {
    for (size_t i = 0; i < s->num_queued; i++) lls__sequence_free(s->queue[i]);
    free(s->queue);
    free(s->plan);
    lls__pages_release(&s->pages);
    *s = (lls__scheduler){0};
}

lls_status lls__scheduler_add(lls__scheduler *s, lls__sequence *sequence) {
    if (s->num_queued == s->cap_queued) {
        lls__sequence **grown = lls__grown(s->queue, &s->cap_queued, s->num_queued + 1, sizeof *grown);
        if (!grown) return LLS_ERR_MEMORY;
        s->queue = grown;
    }
    s->queue[s->num_queued++] = sequence;
    return LLS_OK;
}

lls__sequence *lls__scheduler_find(const lls__scheduler *s, int64_t id) {
    for (size_t i = 0; i < s->num_queued; i++) {
        if (s->queue[i]->id == id) return s->queue[i];
    }
    return NULL;
}

static void preempt(lls__scheduler *s, lls__sequence *sequence) {
    lls__pages_take_back(&s->pages, sequence->pages, &sequence->num_pages);
    sequence->cached = 0;
    sequence->admitted = false;
}

void lls__scheduler_remove(lls__scheduler *s, lls__sequence *sequence) {
    preempt(s, sequence);
    for (size_t i = 0; i < s->num_queued; i++) {
        if (s->queue[i] != sequence) continue;
        memmove(&s->queue[i], &s->queue[i + 1], (s->num_queued - i - 1) * sizeof *s->queue);
        s->num_queued--;
        break;
    }
    lls__sequence_free(sequence);
}

// The youngest sequence behind `index` that holds pages and is not in the plan; NULL when there is none.
static lls__sequence *victim_behind(const lls__scheduler *s, size_t index) {
    for (size_t i = s->num_queued; i-- > index + 1;) {
        lls__sequence *candidate = s->queue[i];
        bool planned = false;
        for (int32_t j = 0; j < s->num_planned; j++) planned |= s->plan[j].sequence == candidate;
        if (candidate->admitted && candidate->num_pages > 0 && !planned) return candidate;
    }
    return NULL;
}

// Pages for tokens [0, upto) of queue[index], at the cost of younger sequences if need be.
static bool make_room(lls__scheduler *s, size_t index, int32_t upto) {
    lls__sequence *sequence = s->queue[index];
    while (!lls__pages_extend(&s->pages, sequence->pages, &sequence->num_pages, lls__pages_for(&s->pages, upto))) {
        lls__sequence *victim = victim_behind(s, index);
        if (!victim) return false;
        preempt(s, victim);
    }
    return true;
}

static int32_t pending(const lls__sequence *sequence) {
    return sequence->num_tokens - sequence->cached;
}

static void plan_entry(lls__scheduler *s, lls__sequence *sequence, int32_t n) {
    s->plan[s->num_planned++] = (lls__schedule_entry){sequence, n, n == pending(sequence)};
}

// Sequences that run and need one token: all of them, whatever the budget, oldest first.
static void plan_decodes(lls__scheduler *s) {
    for (size_t i = 0; i < s->num_queued; i++) {
        lls__sequence *sequence = s->queue[i];
        if (!sequence->admitted || sequence->finish || pending(sequence) != 1) continue;
        if (make_room(s, i, sequence->num_tokens)) plan_entry(s, sequence, 1);
        else if (sequence->num_pages < s->pages.num_pages)
            preempt(s, sequence); // older ones hold the rest: wait for them
        else sequence->finish = LLS_FINISH_CONTEXT_FULL;
    }
}

static int32_t num_admitted(const lls__scheduler *s) {
    int32_t n = 0;
    for (size_t i = 0; i < s->num_queued; i++) n += s->queue[i]->admitted;
    return n;
}

// The others, oldest first, with what is left of the budget. One is admitted only when its whole context fits now, and
// never at the cost of one that runs:
// else two could throw each other out for ever.
static void plan_chunks(lls__scheduler *s, int32_t budget) {
    for (size_t i = 0; i < s->num_queued && budget > 0; i++) {
        lls__sequence *sequence = s->queue[i];
        if (sequence->finish || (sequence->admitted && pending(sequence) == 1)) continue;
        if (!sequence->admitted) {
            if (lls__pages_for(&s->pages, sequence->num_tokens) > s->pages.num_pages) {
                sequence->finish = LLS_FINISH_CONTEXT_FULL;
                continue;
            }
            if (num_admitted(s) == s->max_running ||
                !lls__pages_extend(&s->pages, sequence->pages, &sequence->num_pages,
                                   lls__pages_for(&s->pages, sequence->num_tokens))) {
                return; // in order of arrival: a younger, smaller one does not overtake
            }
            sequence->admitted = true;
        }
        int32_t n = pending(sequence) < budget ? pending(sequence) : budget;
        budget -= n;
        plan_entry(s, sequence, n);
    }
}

void lls__scheduler_plan(lls__scheduler *s) {
    s->num_planned = 0;
    plan_decodes(s);
    plan_chunks(s, s->chunk_tokens - s->num_planned);
}
