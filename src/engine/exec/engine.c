/* The public engine: requests in, steps, events out. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/tensor.h"
#include "engine/exec/engine.h"
#include "engine/exec/forward.h"
#include "engine/sched/scheduler.h"
#include "llmspeed/engine.h"

enum { DEFAULT_CONTEXT = 4096, DEFAULT_PAGE = 32, DEFAULT_CHUNK = 512 };

struct lls_engine {
    const lls_model *model;
    lls_ctx *ctx;
    lls__weights *weights;
    lls__forward *forward;
    lls__scheduler scheduler;
    lls_engine_options options; // with defaults filled in
    int64_t next_id;
    int32_t *step_ids; // [max_sequences] what the last step sampled
    float *step_probs;
    int64_t *row_owner; // [max_sequences] request id of each logits row
    int32_t num_rows;
    lls_engine_stats stats;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- Creation ---- */

static lls_status check_range(const char *name, int64_t value, int64_t min, int64_t max) {
    if (value >= min && value <= max) return LLS_OK;
    return lls__fail(LLS_ERR_ARGUMENT, "engine_create: %s is %lld, must be %lld to %lld", name, (long long)value,
                     (long long)min, (long long)max);
}

static lls_status complete_options(const lls_model *model, lls_engine_options *o) {
    int32_t model_context = model->config.context_length;
    if (o->device.type == 0) o->device.type = LLS_CPU;
    if (o->context_length == 0) o->context_length = model_context < DEFAULT_CONTEXT ? model_context : DEFAULT_CONTEXT;
    if (o->max_sequences == 0) o->max_sequences = 1;
    if (o->kv_dtype == 0) o->kv_dtype = LLS_F16;
    if (o->page_size == 0) o->page_size = DEFAULT_PAGE;
    if (o->chunk_tokens == 0) o->chunk_tokens = DEFAULT_CHUNK;
    if (o->kv_tokens == 0)
        o->kv_tokens = (int64_t)o->max_sequences *
                       ((o->context_length + o->page_size - 1) / o->page_size * o->page_size);
    LLS_TRY(check_range("context_length", o->context_length, 1, model_context));
    LLS_TRY(check_range("max_sequences", o->max_sequences, 1, 4096));
    LLS_TRY(check_range("page_size", o->page_size, 1, 4096));
    LLS_TRY(check_range("chunk_tokens", o->chunk_tokens, 1, 65536));
    LLS_TRY(check_range("kv_tokens", o->kv_tokens, o->page_size, (int64_t)INT32_MAX));
    if (!lls__is_float(o->kv_dtype))
        return lls__fail(LLS_ERR_ARGUMENT, "engine_create: kv_dtype is %s, must be f32, f16 or bf16",
                         lls_dtype_name(o->kv_dtype));
    return LLS_OK;
}

static lls_status create_parts(lls_engine *e) {
    const lls_engine_options *o = &e->options;
    lls_ctx_options ctx_options = LLS_CTX_OPTIONS_INIT;
    ctx_options.device = o->device, ctx_options.num_threads = o->num_threads;
    int32_t num_pages = (int32_t)(o->kv_tokens / o->page_size);
    size_t n = (size_t)o->max_sequences;
    e->step_ids = calloc(n, sizeof *e->step_ids);
    e->step_probs = calloc(n, sizeof *e->step_probs);
    e->row_owner = calloc(n, sizeof *e->row_owner);
    if (!e->step_ids || !e->step_probs || !e->row_owner)
        return lls__fail(LLS_ERR_MEMORY, "engine_create: out of memory for %zu sequences", n);
    LLS_TRY(lls_ctx_create(&ctx_options, &e->ctx));
    LLS_TRY(lls__weights_load(e->model, e->ctx, &e->weights));
    lls__forward_limits limits = {
        // a step holds at most one token of each sequence beside the chunk, and never more than all contexts
        .max_tokens = o->chunk_tokens + o->max_sequences,
        .max_sequences = o->max_sequences,
        .context_length = o->context_length,
        .num_pages = num_pages,
        .page_size = o->page_size,
        .kv_dtype = o->kv_dtype,
        .f32_activations = o->f32_activations,
    };
    LLS_TRY(lls__forward_create(e->model, e->weights, e->ctx, &limits, &e->forward));
    return lls__scheduler_init(&e->scheduler, num_pages, o->page_size, o->max_sequences, o->chunk_tokens);
}

lls_status lls_engine_create(const lls_model *model, const lls_engine_options *options, lls_engine **out) {
    if (!model || !out) return lls__fail(LLS_ERR_ARGUMENT, "engine_create: %s is NULL", model ? "out" : "model");
    *out = NULL;
    lls_engine *e = calloc(1, sizeof *e);
    if (!e) return lls__fail(LLS_ERR_MEMORY, "engine_create: out of memory");
    e->model = model;
    e->options = (lls_engine_options)LLS_ENGINE_OPTIONS_INIT;
    lls_status status = options ? lls__copy_args("engine_create", &e->options, sizeof e->options, options) : LLS_OK;
    if (!status) status = complete_options(model, &e->options);
    if (!status) status = create_parts(e);
    if (status) {
        lls_engine_destroy(e);
        return status;
    }
    *out = e;
    return LLS_OK;
}

void lls_engine_destroy(lls_engine *e) {
    if (!e) return;
    lls__scheduler_release(&e->scheduler);
    lls__forward_destroy(e->forward);
    lls__weights_free(e->weights);
    lls_ctx_destroy(e->ctx);
    free(e->row_owner);
    free(e->step_probs);
    free(e->step_ids);
    free(e);
}

/* ---- Requests ---- */

static lls_status check_sampling(const lls_sampling *s) {
    const struct {
        const char *name;
        double value, min, max;
    } ranges[] = {
        {"temperature", (double)s->temperature, 0, 1e6},
        {"top_k", s->top_k, 0, INT32_MAX},
        {"top_p", (double)s->top_p, 0, 1},
        {"min_p", (double)s->min_p, 0, 1},
        {"repetition_penalty", (double)s->repetition_penalty, 0, 1e6},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (!(ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max)) {
            return lls__fail(LLS_ERR_ARGUMENT, "request: sampling.%s is %g, must be %g to %g", ranges[i].name,
                             ranges[i].value, ranges[i].min, ranges[i].max);
        }
    }
    return LLS_OK;
}

static lls_status check_request(const lls_engine *e, const lls_request *r) {
    if ((!r->prompt && r->prompt_tokens) || (!r->stop_tokens && r->num_stop_tokens)) {
        return lls__fail(LLS_ERR_ARGUMENT, "request: %s is NULL",
                         !r->prompt && r->prompt_tokens ? "prompt" : "stop_tokens");
    }
    if (r->prompt_tokens == 0 && lls__tokenizer_bos(e->model->tokenizer) == LLS__VOCAB_NONE) {
        return lls__fail(LLS_ERR_ARGUMENT,
                         "request: the prompt has 0 tokens and the model has no begin-of-text token to start from");
    }
    if (r->prompt_tokens > (size_t)e->options.context_length) {
        return lls__fail(LLS_ERR_CONTEXT_FULL, "request: the prompt has %zu tokens, the context holds %d",
                         r->prompt_tokens, e->options.context_length);
    }
    if (r->max_new_tokens < -1)
        return lls__fail(LLS_ERR_ARGUMENT, "request: max_new_tokens is %d, must be -1 or more", r->max_new_tokens);
    for (size_t i = 0; i < r->prompt_tokens; i++) {
        if (r->prompt[i] < 0 || r->prompt[i] >= e->model->config.vocab_size) {
            return lls__fail(LLS_ERR_ARGUMENT, "request: prompt[%zu] is %d, must be 0 to %d", i, r->prompt[i],
                             e->model->config.vocab_size - 1);
        }
    }
    return check_sampling(&r->sampling);
}

static lls__sequence *new_sequence(const lls_engine *e, const lls_request *r) {
    lls__sequence *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->tokens = malloc((size_t)e->options.context_length * sizeof *s->tokens);
    s->pages = malloc((size_t)lls__forward_max_pages(e->forward) * sizeof *s->pages);
    s->stop_tokens = malloc(r->num_stop_tokens * sizeof *s->stop_tokens + 1);
    if (!s->tokens || !s->pages || !s->stop_tokens) {
        lls__sequence_free(s);
        return NULL;
    }
    if (r->prompt_tokens) memcpy(s->tokens, r->prompt, r->prompt_tokens * sizeof *s->tokens);
    else s->tokens[0] = lls__tokenizer_bos(e->model->tokenizer);
    s->num_tokens = s->num_prompt = r->prompt_tokens ? (int32_t)r->prompt_tokens : 1;
    s->max_new_tokens = r->max_new_tokens;
    s->ignore_stop_tokens = r->ignore_stop_tokens;
    if (r->num_stop_tokens) memcpy(s->stop_tokens, r->stop_tokens, r->num_stop_tokens * sizeof *s->stop_tokens);
    s->num_stop_tokens = r->num_stop_tokens;
    s->sampling = r->sampling;
    return s;
}

lls_status lls_engine_add(lls_engine *e, const lls_request *request, int64_t *id) {
    if (!e || !id) return lls__fail(LLS_ERR_ARGUMENT, "engine_add: %s is NULL", e ? "id" : "engine");
    lls_request r;
    LLS_TRY(lls__copy_args("engine_add", &r, sizeof r, request));
    LLS_TRY(check_request(e, &r));
    lls__sequence *s = new_sequence(e, &r);
    if (!s)
        return lls__fail(LLS_ERR_MEMORY, "engine_add: out of memory for a sequence of %d tokens",
                         e->options.context_length);
    s->id = e->next_id;
    // What has nothing to sample ends in the first step: after the prompt was computed (max_new_tokens 0), or at once
    // (context full).
    if (s->max_new_tokens != 0 && s->num_tokens == e->options.context_length) s->finish = LLS_FINISH_CONTEXT_FULL;
    lls_status status = lls__scheduler_add(&e->scheduler, s);
    if (status) {
        lls__sequence_free(s);
        return status;
    }
    *id = e->next_id++;
    return LLS_OK;
}

lls_status lls_engine_cancel(lls_engine *e, int64_t id) {
    lls__sequence *s = lls__scheduler_find(&e->scheduler, id);
    if (!s) return lls__fail(LLS_ERR_ARGUMENT, "engine_cancel: id is %lld, no such request is running", (long long)id);
    s->finish = LLS_FINISH_CANCELLED;
    return LLS_OK;
}

const lls_model *lls__engine_model(const lls_engine *e) {
    return e->model;
}

size_t lls__engine_event_capacity(const lls_engine *e) {
    return 2 * (size_t)e->options.max_sequences;
}

void *lls__engine_kv(const lls_engine *e, size_t *bytes, lls_ctx **ctx) {
    *bytes = (size_t)lls__forward_kv_bytes(e->forward);
    *ctx = e->ctx;
    return lls__forward_kv(e->forward);
}

/* ---- A step ---- */

static void add_row(lls_engine *e, lls__batch *b, const lls__sequence *s) {
    int32_t row = b->num_rows++;
    const lls_sampling *p = &s->sampling;
    e->row_owner[row] = s->id;
    b->rows[row] = b->num_tokens - 1;
    b->temperature[row] = p->temperature;
    b->top_k[row] = p->top_k;
    b->top_p[row] = p->top_p > 0 ? p->top_p : 1;
    b->min_p[row] = p->min_p;
    b->penalty[row] = p->repetition_penalty > 0 ? p->repetition_penalty : 1;
    b->seed[row] = p->seed;
    b->step[row] = s->num_tokens - s->num_prompt;
    b->history_lens[row] = 0;
    if (b->penalty[row] == 1) return;
    b->use_history = true;
    b->history_lens[row] = s->num_tokens;
    memcpy(b->history + (int64_t)row * e->options.context_length, s->tokens, (size_t)s->num_tokens * sizeof *s->tokens);
}

static void add_sequence(lls_engine *e, lls__batch *b, const lls__schedule_entry *entry) {
    const lls__sequence *s = entry->sequence;
    int32_t page_size = e->options.page_size, max_pages = lls__forward_max_pages(e->forward),
            index = b->num_sequences++;
    for (int32_t i = 0; i < entry->num_tokens; i++) {
        int32_t position = s->cached + i, t = b->num_tokens++;
        b->ids[t] = s->tokens[position];
        b->positions[t] = position;
        b->slots[t] = (int64_t)s->pages[position / page_size] * page_size + position % page_size;
    }
    b->cu_seqlens[index + 1] = b->num_tokens;
    b->kv_lens[index] = s->cached + entry->num_tokens;
    if (entry->num_tokens > b->max_q_len) b->max_q_len = entry->num_tokens;
    memcpy(b->page_table + (int64_t)index * max_pages, s->pages, (size_t)s->num_pages * sizeof *s->pages);
    for (int32_t i = s->num_pages; i < max_pages; i++) b->page_table[(int64_t)index * max_pages + i] = -1;
    if (entry->samples && s->max_new_tokens != 0) add_row(e, b, s);
}

static void build_batch(lls_engine *e) {
    lls__batch *b = lls__forward_batch(e->forward);
    b->num_sequences = b->num_tokens = b->num_rows = b->max_q_len = 0;
    b->cu_seqlens[0] = 0;
    b->use_history = false;
    for (int32_t i = 0; i < e->scheduler.num_planned; i++) add_sequence(e, b, &e->scheduler.plan[i]);
    e->num_rows = b->num_rows;
}

static bool stops(const lls_engine *e, const lls__sequence *s, int32_t token) {
    if (s->ignore_stop_tokens) return false;
    for (size_t i = 0; i < s->num_stop_tokens; i++) {
        if (s->stop_tokens[i] == token) return true;
    }
    return lls__model_is_stop(e->model, token);
}

// Appends what was sampled and decides whether the sequence ends.
static lls_event take_token(const lls_engine *e, lls__sequence *s, int32_t token, float probability) {
    lls_event event = {.id = s->id, .token = token, .probability = probability};
    if (token < 0) {
        s->finish = LLS_FINISH_NUMERIC;
    } else {
        s->tokens[s->num_tokens++] = token;
        int32_t new_tokens = s->num_tokens - s->num_prompt;
        if (stops(e, s, token)) s->finish = LLS_FINISH_STOP;
        else if (s->max_new_tokens >= 0 && new_tokens >= s->max_new_tokens) s->finish = LLS_FINISH_LENGTH;
        else if (s->num_tokens == e->options.context_length) s->finish = LLS_FINISH_CONTEXT_FULL;
    }
    event.finish = s->finish;
    return event;
}

typedef struct event_list {
    lls_event *events;
    size_t capacity, count;
} event_list;

// Reports what ended without a token of its own (cancelled, context full, a prompt that asked for no token), and
// forgets all that ended.
static void retire(lls_engine *e, event_list *list) {
    for (size_t i = 0; i < e->scheduler.num_queued;) {
        lls__sequence *s = e->scheduler.queue[i];
        bool reported = false;
        for (size_t j = 0; j < list->count; j++) reported |= list->events[j].id == s->id && list->events[j].finish;
        bool room = reported || list->count < list->capacity; // else it is reported in the next step
        if (!s->finish || !room) {
            i++;
            continue;
        }
        if (!reported) list->events[list->count++] = (lls_event){.id = s->id, .token = -1, .finish = s->finish};
        lls__scheduler_remove(&e->scheduler, s);
    }
}

static void count_time(lls_engine *e, double seconds) {
    const lls__batch *b = lls__forward_batch(e->forward);
    bool decode = b->num_tokens == b->num_sequences && b->num_rows == b->num_sequences;
    for (int32_t i = 0; i < e->scheduler.num_planned && decode; i++) {
        decode = e->scheduler.plan[i].sequence->num_tokens > e->scheduler.plan[i].sequence->num_prompt;
    }
    if (decode) e->stats.decode_tokens += b->num_tokens, e->stats.decode_seconds += seconds;
    else e->stats.prefill_tokens += b->num_tokens, e->stats.prefill_seconds += seconds;
}

lls_status lls_engine_step(lls_engine *e, lls_event *events, size_t capacity, size_t *count, size_t *active) {
    if (!e || !events || !count)
        return lls__fail(LLS_ERR_ARGUMENT, "engine_step: %s is NULL", !e ? "engine" : !events ? "events" : "count");
    size_t most = lls__engine_event_capacity(e);
    if (capacity < most)
        return lls__fail(LLS_ERR_ARGUMENT, "engine_step: capacity is %zu, must be at least %zu", capacity, most);
    event_list list = {events, capacity, 0};
    lls__scheduler_plan(&e->scheduler);
    e->num_rows = 0;
    if (e->scheduler.num_planned > 0) {
        build_batch(e);
        double start = now();
        LLS_TRY(lls__forward_run(e->forward, e->step_ids, e->step_probs));
        count_time(e, now() - start);
        for (int32_t i = 0, row = 0; i < e->scheduler.num_planned; i++) {
            const lls__schedule_entry *entry = &e->scheduler.plan[i];
            lls__sequence *s = entry->sequence;
            s->cached += entry->num_tokens;
            if (!entry->samples) continue;
            if (s->max_new_tokens == 0) s->finish = LLS_FINISH_LENGTH;
            else list.events[list.count++] = take_token(e, s, e->step_ids[row], e->step_probs[row]), row++;
        }
    }
    retire(e, &list);
    *count = list.count;
    if (active) *active = e->scheduler.num_queued;
    return LLS_OK;
}

const float *lls_engine_logits(lls_engine *e, int64_t id) {
    const float *logits = NULL;
    for (int32_t row = 0; row < e->num_rows && !logits; row++) {
        if (e->row_owner[row] == id && lls__forward_logits(e->forward, row, &logits)) return NULL;
    }
    return logits;
}

lls_engine_stats lls_engine_get_stats(const lls_engine *e) {
    lls_engine_stats stats = e->stats;
    stats.weight_bytes = e->weights->total_bytes;
    stats.kv_bytes = lls__forward_kv_bytes(e->forward);
    stats.kv_pages = e->scheduler.pages.num_pages;
    stats.kv_pages_used = e->scheduler.pages.num_pages - e->scheduler.pages.num_free;
    stats.bytes_per_decode_token = e->weights->bytes_per_token;
    return stats;
}

void lls_engine_reset_stats(lls_engine *e) {
    e->stats = (lls_engine_stats){0};
}
