/* One request from start to end, its text streamed. Uses the public engine and the detokeniser. */
#include <stdlib.h>

#include "engine/exec/engine.h"
#include "engine/model/model.h"
#include "engine/text/detok.h"

typedef struct stream {
    lls__detok detok;
    lls__bytes text; // what the last tokens completed
    lls_text_fn on_text;
    void *user;
} stream;

// Hands over what is complete; false: the callback wants to stop.
static bool deliver(stream *s) {
    bool go_on = s->text.size == 0 || !s->on_text || s->on_text(s->text.data, s->text.size, s->user);
    s->text.size = 0;
    return go_on;
}

static lls_status run(lls_engine *engine, int64_t id, lls_event *events, size_t capacity, stream *s,
                      lls_generate_result *result) {
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
            LLS_TRY(lls__detok_push(&s->detok, event->token, &s->text));
            if (!deliver(s) && !event->finish) LLS_TRY(lls_engine_cancel(engine, id));
        }
    }
    LLS_TRY(lls__detok_flush(&s->detok, &s->text));
    deliver(s);
    return LLS_OK;
}

lls_status lls_generate(lls_engine *engine, const lls_request *request, lls_text_fn on_text, void *user,
                        lls_generate_result *result) {
    int64_t id;
    LLS_TRY(lls_engine_add(engine, request, &id));
    const lls_model *model = lls__engine_model(engine);
    size_t capacity = lls__engine_event_capacity(engine);
    lls_event *events = malloc(capacity * sizeof *events);
    if (!events) {
        lls_engine_cancel(engine, id);
        return lls__fail(LLS_ERR_MEMORY, "generate: out of memory");
    }
    stream s = {.on_text = on_text, .user = user};
    // Behind text, a space that begins the answer is the answer's own; behind a control token a SentencePiece
    // vocabulary put it there.
    bool continues = request->prompt_tokens &&
                     !lls__token_is_control(model->tokenizer, request->prompt[request->prompt_tokens - 1]);
    lls__detok_init(&s.detok, model->tokenizer, continues ? LLS__DETOK_CONTINUE : 0);
    lls_generate_result outcome = {.prompt_tokens = (int64_t)(request->prompt_tokens ? request->prompt_tokens : 1)};
    lls_status status = run(engine, id, events, capacity, &s, &outcome);
    free(s.text.data);
    free(events);
    if (result) *result = outcome;
    return status;
}
