/* One request from start to end, its text streamed. Uses the public engine and the detokeniser. */
#include <stdlib.h>

#include "engine/exec/engine.h"
#include "engine/model/model.h"

typedef struct stream {
    lls_detokenizer *detok;
    lls_text_fn on_text;
    void *user;
} stream;

// Hands over what this id completes (-1: the end). *go_on is false when the callback wants to stop.
static lls_status deliver(stream *s, int32_t id, bool *go_on) {
    const char *text;
    size_t bytes;
    LLS_TRY(lls_detokenize(s->detok, id, &text, &bytes));
    *go_on = bytes == 0 || !s->on_text || s->on_text(text, bytes, s->user);
    return LLS_OK;
}

static lls_status run(lls_engine *engine, int64_t id, lls_event *events, size_t capacity, stream *s,
                      lls_generate_result *result) {
    bool go_on;
    while (!result->finish) {
        size_t count;
        LLS_TRY(lls_engine_step(engine, events, capacity, &count, NULL));
        for (size_t i = 0; i < count; i++) {
            const lls_event *event = &events[i];
            if (event->id != id) continue;
            result->finish = event->finish;
            if (event->token < 0) continue;
            result->new_tokens++;
            if (event->finish == LLS_FINISH_STOP) continue;
            LLS_TRY(deliver(s, event->token, &go_on));
            if (!go_on && !event->finish) LLS_TRY(lls_engine_cancel(engine, id));
        }
    }
    return deliver(s, -1, &go_on);
}

lls_status lls_generate(lls_engine *engine, const lls_request *request, lls_text_fn on_text, void *user,
                        lls_generate_result *result) {
    int64_t id;
    LLS_TRY(lls_engine_add(engine, request, &id));
    size_t capacity = lls__engine_event_capacity(engine);
    lls_event *events = malloc(capacity * sizeof *events);
    stream s = {.on_text = on_text, .user = user};
    lls_status status = events ? lls_detokenizer_create(lls__engine_model(engine), request->prompt,
                                                        request->prompt_tokens, false, &s.detok)
                               : lls__fail(LLS_ERR_MEMORY, "generate: out of memory");
    lls_generate_result outcome = {.prompt_tokens = (int64_t)(request->prompt_tokens ? request->prompt_tokens : 1)};
    if (!status) status = run(engine, id, events, capacity, &s, &outcome);
    else lls_engine_cancel(engine, id);
    lls_detokenizer_free(s.detok);
    free(events);
    if (result) *result = outcome;
    return status;
}
