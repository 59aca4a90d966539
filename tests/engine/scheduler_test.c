/* The scheduler under random streams of requests, without a model: after every step no page has two owners, no budget
 * is exceeded, every sequence has the pages that its plan needs, and in the end all have finished and all pages are
 * free. */
#include <stdlib.h>
#include <string.h>

#include "engine/sched/scheduler.h"
#include "harness/check.h"

enum { CONTEXT = 64, TRIALS = 300, MAX_STEPS = 20000 };

static uint32_t seed;

static int32_t below(int32_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (int32_t)((seed >> 8) % (uint32_t)n);
}

static lls__sequence *new_sequence(int64_t id, int32_t prompt, int32_t max_new) {
    lls__sequence *s = calloc(1, sizeof *s);
    s->tokens = calloc(CONTEXT, sizeof *s->tokens);
    s->pages = calloc(CONTEXT, sizeof *s->pages);
    s->id = id, s->num_tokens = s->num_prompt = prompt, s->max_new_tokens = max_new;
    return s;
}

static void check_pages(const lls__scheduler *s) {
    int32_t owned = 0;
    char *owners = calloc((size_t)s->pages.num_pages, 1);
    for (int32_t i = 0; i < s->pages.num_free; i++) owners[s->pages.free_list[i]]++;
    for (size_t i = 0; i < s->num_queued; i++) {
        for (int32_t j = 0; j < s->queue[i]->num_pages; j++) owners[s->queue[i]->pages[j]]++, owned++;
    }
    for (int32_t i = 0; i < s->pages.num_pages; i++) CHECK(owners[i] == 1, "page %d has %d owners", i, owners[i]);
    CHECK(owned + s->pages.num_free == s->pages.num_pages, "%d pages owned, %d free, of %d", owned, s->pages.num_free,
          s->pages.num_pages);
    free(owners);
}

static void check_plan(const lls__scheduler *s, int32_t max_running, int32_t chunk) {
    int32_t total = 0, singles = 0;
    CHECK(s->num_planned <= max_running, "%d sequences in a step, %d allowed", s->num_planned, max_running);
    for (int32_t i = 0; i < s->num_planned; i++) {
        const lls__schedule_entry *e = &s->plan[i];
        total += e->num_tokens, singles += e->num_tokens == 1;
        CHECK(e->num_tokens > 0 && e->sequence->cached + e->num_tokens <= e->sequence->num_tokens,
              "an entry of %d tokens", e->num_tokens);
        CHECK((int64_t)e->sequence->num_pages * s->pages.page_size >= e->sequence->cached + e->num_tokens,
              "an entry without its pages");
        CHECK(e->samples == (e->sequence->cached + e->num_tokens == e->sequence->num_tokens), "samples is wrong");
        for (int32_t j = 0; j < i; j++) CHECK(s->plan[j].sequence != e->sequence, "a sequence twice in a step");
    }
    CHECK(total <= (chunk > singles ? chunk : singles), "%d tokens in a step, chunk %d", total, chunk);
}

// What the engine does with a plan: all entries computed, one token sampled for those that reach their end.
static void execute(lls__scheduler *s) {
    for (int32_t i = 0; i < s->num_planned; i++) {
        lls__sequence *q = s->plan[i].sequence;
        q->cached += s->plan[i].num_tokens;
        if (!s->plan[i].samples) continue;
        q->num_tokens++;
        if (q->num_tokens - q->num_prompt == q->max_new_tokens) q->finish = LLS_FINISH_LENGTH;
        else if (q->num_tokens == CONTEXT) q->finish = LLS_FINISH_CONTEXT_FULL;
    }
}

static int32_t remove_finished(lls__scheduler *s) {
    int32_t removed = 0;
    for (size_t i = 0; i < s->num_queued;) {
        if (!s->queue[i]->finish) i++;
        else lls__scheduler_remove(s, s->queue[i]), removed++;
    }
    return removed;
}

static void trial(void) {
    int32_t page = 1 + below(9), num_pages = 2 + below(40), running = 1 + below(6), chunk = 1 + below(40),
            requests = 1 + below(12), finished = 0;
    lls__scheduler s;
    CHECK(lls__scheduler_init(&s, num_pages, page, running, chunk) == LLS_OK, "%s", lls_last_error());
    int32_t added = 0, steps = 0;
    while ((added < requests || s.num_queued) && steps < MAX_STEPS && !test_failed) {
        while (added < requests && below(3)) {
            int32_t prompt = 1 + below(CONTEXT - 1);
            lls__scheduler_add(&s, new_sequence(added++, prompt, 1 + below(CONTEXT)));
        }
        if (s.num_queued && below(40) == 0) s.queue[below((int32_t)s.num_queued)]->finish = LLS_FINISH_CANCELLED;
        lls__scheduler_plan(&s);
        check_plan(&s, running, chunk);
        check_pages(&s);
        execute(&s);
        finished += remove_finished(&s);
        steps++;
    }
    CHECK(finished == requests, "%d of %d requests ended in %d steps (pages %d of %d, %d running, chunk %d)", finished,
          requests, steps, num_pages, page, running, chunk);
    CHECK(s.pages.num_free == s.pages.num_pages, "%d of %d pages free at the end", s.pages.num_free, s.pages.num_pages);
    lls__scheduler_release(&s);
}

static void random_streams(void) {
    for (int i = 0; i < TRIALS && !test_failed; i++) {
        seed = 1000u + (uint32_t)i;
        trial();
    }
}

// The oldest sequence is never the one that gives way.
static void oldest_first(void) {
    lls__scheduler s;
    CHECK(lls__scheduler_init(&s, 4, 4, 2, 8) == LLS_OK, "%s", lls_last_error());
    lls__scheduler_add(&s, new_sequence(0, 4, 12));
    lls__scheduler_add(&s, new_sequence(1, 4, 12));
    int64_t order[2];
    int ended = 0;
    for (int step = 0; step < 100 && s.num_queued; step++) {
        lls__scheduler_plan(&s);
        CHECK(s.num_planned > 0 && s.plan[0].sequence->id == s.queue[0]->id, "step %d does not serve the oldest", step);
        execute(&s);
        for (size_t i = 0; i < s.num_queued; i++) {
            if (s.queue[i]->finish && ended < 2) order[ended++] = s.queue[i]->id;
        }
        remove_finished(&s);
    }
    CHECK(ended == 2 && order[0] == 0 && order[1] == 1, "the younger one ended first");
    lls__scheduler_release(&s);
}

int main(void) {
    run_test("random streams of requests", random_streams);
    run_test("the oldest ends first", oldest_first);
    return check_summary();
}
