/* The engine's behaviour on tiny models: chunking (E01), full contexts (E02), batches, preemption, stop tokens,
 * sampling, errors.
 *
 *     engine_test --golden DIR [--device cpu|cuda] */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check.h"
#include "run.h"

static lls_model *model; // tiny_llama.gguf
static lls_model_info info;

static lls_engine_options base_options(int32_t context) {
    lls_engine_options options = LLS_ENGINE_OPTIONS_INIT;
    options.device = test_device, options.context_length = context, options.page_size = 4, options.num_threads = 2;
    return options;
}

static void make_prompt(int32_t *ids, int32_t n, uint32_t seed) {
    for (int32_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)((seed >> 8) % (uint32_t)info.vocab_size);
    }
}

static lls_request base_request(const int32_t *prompt, int32_t n, int32_t max_new) {
    lls_request request = LLS_REQUEST_INIT;
    request.prompt = prompt, request.prompt_tokens = (size_t)n, request.max_new_tokens = max_new,
    request.ignore_stop_tokens = true;
    return request;
}

// E01: prompts computed in chunks of any size give the logits of one pass.
static void chunking(void) {
    static const int32_t chunks[] = {37, 16, 7, 1};
    int32_t prompt[37];
    make_prompt(prompt, 37, 1);
    float *whole = malloc((size_t)info.vocab_size * sizeof *whole),
          *got = malloc((size_t)info.vocab_size * sizeof *got);
    int32_t first = -1;
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        lls_engine_options options = base_options(64);
        options.chunk_tokens = chunks[i];
        lls_engine *engine = test_engine(model, options);
        lls_request request = base_request(prompt, 37, 1);
        test_run run;
        CHECK(test_request(engine, &request, &run, i ? got : whole, info.vocab_size) == LLS_OK && run.num_ids == 1,
              "chunk %d: %s", chunks[i], lls_last_error());
        if (i == 0) first = run.ids[0];
        double nmse = i ? test_nmse(got, whole, info.vocab_size) : 0;
        CHECK(nmse < 4e-6 && run.ids[0] == first, "chunk %d: NMSE %g to one pass, token %d and %d", chunks[i], nmse,
              run.ids[0], first);
        lls_engine_destroy(engine);
    }
    free(whole), free(got);
}

// E02: a context of 16 holds 16 tokens, prompt included.
static void context_edges(void) {
    static const struct {
        int32_t prompt, max_new;
        lls_status status;
        int32_t new_tokens;
        lls_finish finish;
    } rows[] = {
        {1, 0, LLS_OK, 0, LLS_FINISH_LENGTH},          {1, 1, LLS_OK, 1, LLS_FINISH_LENGTH},
        {1, 8, LLS_OK, 8, LLS_FINISH_LENGTH},          {15, 0, LLS_OK, 0, LLS_FINISH_LENGTH},
        {15, 1, LLS_OK, 1, LLS_FINISH_LENGTH},         {15, 8, LLS_OK, 1, LLS_FINISH_CONTEXT_FULL},
        {16, 0, LLS_OK, 0, LLS_FINISH_LENGTH},         {16, 1, LLS_OK, 0, LLS_FINISH_CONTEXT_FULL},
        {16, 8, LLS_OK, 0, LLS_FINISH_CONTEXT_FULL},   {17, 0, LLS_ERR_CONTEXT_FULL, 0, LLS_RUNNING},
        {17, 1, LLS_ERR_CONTEXT_FULL, 0, LLS_RUNNING}, {1000, 8, LLS_ERR_CONTEXT_FULL, 0, LLS_RUNNING},
        {8, -1, LLS_OK, 8, LLS_FINISH_CONTEXT_FULL},
    };
    int32_t prompt[1000];
    make_prompt(prompt, 1000, 2);
    lls_engine *engine = test_engine(model, base_options(16));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lls_request request = base_request(prompt, rows[i].prompt, rows[i].max_new);
        test_run run;
        lls_status status = test_request(engine, &request, &run, NULL, 0);
        CHECK(status == rows[i].status, "prompt %d: %s", rows[i].prompt, lls_status_name(status));
        CHECK(run.num_ids == rows[i].new_tokens && run.finish == rows[i].finish,
              "prompt %d, max_new %d: %d tokens, finish %d", rows[i].prompt, rows[i].max_new, run.num_ids,
              (int)run.finish);
        CHECK(lls_engine_get_stats(engine).kv_pages_used == 0, "prompt %d: pages are left in use", rows[i].prompt);
    }
    lls_request request = base_request(prompt, 17, 1);
    int64_t id;
    lls_engine_add(engine, &request, &id);
    CHECK(strstr(lls_last_error(), "17 tokens") && strstr(lls_last_error(), "holds 16"), "message: %s",
          lls_last_error());
    lls_engine_destroy(engine);
}

// An empty prompt starts from the begin-of-text token, and gives what that token as prompt gives.
static void empty_prompt(void) {
    lls_engine *engine = test_engine(model, base_options(16));
    lls_request request = base_request(NULL, 0, 4);
    test_run run, explicit_run;
    lls_status status = test_request(engine, &request, &run, NULL, 0);
    if (status == LLS_OK) {
        int32_t bos = 1;
        request = base_request(&bos, 1, 4);
        CHECK(test_request(engine, &request, &explicit_run, NULL, 0) == LLS_OK, "%s", lls_last_error());
        CHECK(run.num_ids == 4 && memcmp(run.ids, explicit_run.ids, 16) == 0, "an empty prompt differs from BOS alone");
    } else {
        CHECK(status == LLS_ERR_ARGUMENT && strstr(lls_last_error(), "begin-of-text"), "%s", lls_last_error());
    }
    lls_engine_destroy(engine);
}

typedef struct batch_result {
    int32_t ids[8][32], count[8];
    lls_finish finish[8];
} batch_result;

static void run_batch(lls_engine *engine, const lls_request *requests, int32_t n, batch_result *out) {
    int64_t ids[8];
    size_t active = 1;
    *out = (batch_result){0};
    for (int32_t i = 0; i < n; i++)
        CHECK(lls_engine_add(engine, &requests[i], &ids[i]) == LLS_OK, "%s", lls_last_error());
    for (int steps = 0; active && steps < 1000; steps++) {
        lls_event events[32];
        size_t count;
        lls_status status = lls_engine_step(engine, events, 32, &count, &active);
        CHECK(status == LLS_OK, "%s", lls_last_error());
        if (status) return;
        for (size_t e = 0; e < count; e++) {
            for (int32_t i = 0; i < n; i++) {
                if (ids[i] != events[e].id) continue;
                out->finish[i] = events[e].finish;
                if (events[e].token >= 0 && out->count[i] < 32) out->ids[i][out->count[i]++] = events[e].token;
            }
        }
    }
    CHECK(active == 0, "the batch does not end");
}

// Several sequences of different lengths in one step give each what it gets alone.
static void batching(void) {
    int32_t prompts[5][32];
    lls_request requests[5];
    for (int32_t i = 0; i < 5; i++) {
        make_prompt(prompts[i], 32, 10 + (uint32_t)i);
        requests[i] = base_request(prompts[i], 1 + 7 * i, 3 + 4 * i);
    }
    batch_result together, alone;
    lls_engine_options options = base_options(64);
    options.max_sequences = 5, options.chunk_tokens = 16;
    lls_engine *engine = test_engine(model, options);
    run_batch(engine, requests, 5, &together);
    for (int32_t i = 0; i < 5; i++) {
        run_batch(engine, &requests[i], 1, &alone);
        CHECK(alone.count[0] == together.count[i] &&
                  memcmp(alone.ids[0], together.ids[i], (size_t)alone.count[0] * 4) == 0,
              "sequence %d differs in a batch", i);
        CHECK(together.finish[i] == LLS_FINISH_LENGTH, "sequence %d ends with %d", i, (int)together.finish[i]);
    }
    lls_engine_destroy(engine);
}

// A pool too small for all: sequences are preempted, recomputed, and end as if they had been alone.
static void preemption(void) {
    int32_t prompts[4][16];
    lls_request requests[4];
    for (int32_t i = 0; i < 4; i++) {
        make_prompt(prompts[i], 16, 20 + (uint32_t)i);
        requests[i] = base_request(prompts[i], 6, 20);
    }
    lls_engine_options options = base_options(32);
    options.max_sequences = 4;
    lls_engine *roomy = test_engine(model, options);
    options.kv_tokens = 40; // 10 pages of 4; four sequences of 26 tokens want 28
    lls_engine *tight = test_engine(model, options);
    batch_result want, got;
    run_batch(roomy, requests, 4, &want);
    run_batch(tight, requests, 4, &got);
    for (int32_t i = 0; i < 4; i++) {
        CHECK(got.count[i] == 20 && memcmp(got.ids[i], want.ids[i], 80) == 0,
              "sequence %d: %d tokens, or others than with room", i, got.count[i]);
    }
    CHECK(lls_engine_get_stats(tight).kv_pages_used == 0, "pages are left in use");
    lls_engine_destroy(tight);
    options.kv_tokens = 12; // even one sequence does not fit: it ends, it does not hang
    tight = test_engine(model, options);
    run_batch(tight, requests, 1, &got);
    CHECK(got.finish[0] == LLS_FINISH_CONTEXT_FULL && got.count[0] == 7, "finish %d after %d tokens",
          (int)got.finish[0], got.count[0]);
    lls_engine_destroy(tight);
    lls_engine_destroy(roomy);
}

static void stop_tokens(void) {
    int32_t prompt[8];
    make_prompt(prompt, 8, 3);
    lls_engine *engine = test_engine(model, base_options(64));
    lls_request request = base_request(prompt, 8, 16);
    test_run plain, stopped;
    CHECK(test_request(engine, &request, &plain, NULL, 0) == LLS_OK && plain.num_ids == 16, "%s", lls_last_error());
    request.ignore_stop_tokens = false;
    request.stop_tokens = &plain.ids[5], request.num_stop_tokens = 1;
    CHECK(test_request(engine, &request, &stopped, NULL, 0) == LLS_OK, "%s", lls_last_error());
    int32_t expected = 0;
    while (plain.ids[expected] != plain.ids[5]) expected++;
    CHECK(stopped.finish == LLS_FINISH_STOP && stopped.num_ids == expected + 1,
          "finish %d after %d tokens, expected %d", (int)stopped.finish, stopped.num_ids, expected + 1);
    lls_engine_destroy(engine);
}

// A request's draws depend on its seed, not on its neighbours or on chunking.
static void sampling(void) {
    int32_t prompt[12];
    make_prompt(prompt, 12, 4);
    lls_request requests[3];
    for (int32_t i = 0; i < 3; i++) {
        requests[i] = base_request(prompt, 12, 12);
        requests[i].sampling = (lls_sampling){.temperature = 1.2f,
                                              .top_k = 50,
                                              .top_p = 0.95f,
                                              .min_p = 0.01f,
                                              .repetition_penalty = 1.1f,
                                              .seed = i == 2 ? 7 : 42};
    }
    lls_engine_options options = base_options(64);
    options.max_sequences = 3;
    lls_engine *engine = test_engine(model, options);
    batch_result r;
    run_batch(engine, requests, 3, &r);
    CHECK(memcmp(r.ids[0], r.ids[1], 48) == 0, "two requests with one seed differ");
    CHECK(memcmp(r.ids[0], r.ids[2], 48) != 0, "two seeds give the same 12 tokens");
    lls_engine_destroy(engine);
}

static void cancel(void) {
    int32_t prompt[4];
    make_prompt(prompt, 4, 5);
    lls_engine *engine = test_engine(model, base_options(64));
    lls_request request = base_request(prompt, 4, 50);
    int64_t id;
    lls_event events[8];
    size_t count, active;
    CHECK(lls_engine_add(engine, &request, &id) == LLS_OK &&
              lls_engine_step(engine, events, 8, &count, &active) == LLS_OK && active == 1,
          "%s", lls_last_error());
    CHECK(lls_engine_cancel(engine, id) == LLS_OK, "%s", lls_last_error());
    CHECK(lls_engine_step(engine, events, 8, &count, &active) == LLS_OK && count == 1 &&
              events[0].finish == LLS_FINISH_CANCELLED && active == 0,
          "not cancelled");
    CHECK(lls_engine_cancel(engine, id) == LLS_ERR_ARGUMENT, "a second cancel succeeds");
    CHECK(lls_engine_get_stats(engine).kv_pages_used == 0, "pages are left in use");
    lls_engine_destroy(engine);
}

static void expect_refused(lls_engine *engine, lls_request request, const char *part) {
    int64_t id;
    lls_status status = lls_engine_add(engine, &request, &id);
    CHECK(status == LLS_ERR_ARGUMENT && strstr(lls_last_error(), part), "%s: %s (wanted \"%s\")",
          lls_status_name(status), status ? lls_last_error() : "", part);
}

static void bad_requests(void) {
    int32_t prompt[4] = {1, 2, 3, 4}, outside[2] = {1, info.vocab_size};
    lls_engine *engine = test_engine(model, base_options(64));
    lls_request good = base_request(prompt, 4, 2), bad = good;
    expect_refused(engine, base_request(outside, 2, 2), "prompt[1]");
    bad.max_new_tokens = -2, expect_refused(engine, bad, "max_new_tokens is -2");
    bad = good, bad.sampling.temperature = -1, expect_refused(engine, bad, "temperature is -1");
    bad = good, bad.sampling.temperature = NAN, expect_refused(engine, bad, "temperature");
    bad = good, bad.sampling.top_k = -3, expect_refused(engine, bad, "top_k is -3");
    bad = good, bad.sampling.top_p = 1.5f, expect_refused(engine, bad, "top_p is 1.5");
    bad = good, bad.sampling.min_p = -0.5f, expect_refused(engine, bad, "min_p is -0.5");
    bad = good, bad.sampling.repetition_penalty = -1, expect_refused(engine, bad, "repetition_penalty is -1");
    bad = good, bad.prompt = NULL, expect_refused(engine, bad, "prompt is NULL");
    test_run run;
    CHECK(test_request(engine, &good, &run, NULL, 0) == LLS_OK && run.num_ids == 2,
          "the engine does not go on after errors");
    lls_engine_destroy(engine);

    lls_engine_options options = base_options(0);
    options.context_length = info.context_length + 1;
    CHECK(lls_engine_create(model, &options, &engine) == LLS_ERR_ARGUMENT && !engine &&
              strstr(lls_last_error(), "context_length"),
          "%s", lls_last_error());
    options = base_options(16), options.kv_dtype = LLS_Q4_0;
    CHECK(lls_engine_create(model, &options, &engine) == LLS_ERR_ARGUMENT &&
              strstr(lls_last_error(), "kv_dtype is q4_0"),
          "%s", lls_last_error());
}

// Greedy ids do not depend on the number of threads or the size of pages.
static void threads_and_pages(void) {
    int32_t prompt[20];
    make_prompt(prompt, 20, 6);
    test_run first, run;
    for (int32_t i = 0; i < 6; i++) {
        lls_engine_options options = base_options(64);
        options.num_threads = 1 + i % 3, options.page_size = (int32_t[]){4, 1, 7, 16, 64, 32}[i];
        lls_engine *engine = test_engine(model, options);
        lls_request request = base_request(prompt, 20, 24);
        CHECK(test_request(engine, &request, &run, NULL, 0) == LLS_OK, "%s", lls_last_error());
        if (i == 0) first = run;
        CHECK(memcmp(run.ids, first.ids, 24 * 4) == 0, "%d threads, pages of %d: other tokens", options.num_threads,
              options.page_size);
        lls_engine_destroy(engine);
    }
}

static bool collect(const char *text, size_t bytes, void *user) {
    char *all = user;
    strncat(all, text, bytes);
    return strlen(all) < 400;
}

static bool refuse(const char *text, size_t bytes, void *user) {
    (void)text, (void)bytes, (void)user;
    return false;
}

static void generate(void) {
    int32_t prompt[4];
    make_prompt(prompt, 4, 8);
    char text[2048] = "";
    lls_engine *engine = test_engine(model, base_options(64));
    lls_request request = base_request(prompt, 4, 20);
    lls_generate_result result;
    CHECK(lls_generate(engine, &request, collect, text, &result) == LLS_OK, "%s", lls_last_error());
    CHECK(result.prompt_tokens == 4 && result.new_tokens == 20 && result.finish == LLS_FINISH_LENGTH, "%lld tokens",
          (long long)result.new_tokens);
    CHECK(strlen(text) > 0, "20 tokens without text");
    CHECK(lls_generate(engine, &request, refuse, NULL, &result) == LLS_OK, "%s", lls_last_error());
    CHECK(result.finish == LLS_FINISH_CANCELLED && result.new_tokens < 20, "a callback that says no does not stop it");
    lls_engine_destroy(engine);
}

// Feeds ids and the end; false when a call fails.
static bool detokenize(const int32_t *prompt, size_t prompt_tokens, const int32_t *ids, size_t n, char *all) {
    lls_detokenizer *d;
    lls_status status = lls_detokenizer_create(model, prompt, prompt_tokens, false, &d);
    all[0] = '\0';
    for (size_t i = 0; i <= n && !status; i++) {
        const char *text;
        size_t bytes;
        status = lls_detokenize(d, i < n ? ids[i] : -1, &text, &bytes);
        if (!status) strncat(all, text, bytes);
    }
    lls_detokenizer_free(d);
    return status == LLS_OK;
}

static void detokenizing(void) {
    static const char text[] = "na\u00EFve \U0001F999";
    int32_t ids[64];
    size_t n;
    char all[256];
    CHECK(lls_tokenize(model, text, strlen(text), NULL, ids, 64, &n) == LLS_OK && n > 4, "%s", lls_last_error());
    CHECK(detokenize(NULL, 0, ids, n, all) && strcmp(all, text) == 0, "\"%s\" came back as \"%s\"", text, all);
    CHECK(detokenize(ids, 1, ids + 1, n - 2, all) && strstr(all, "\uFFFD"), "half a character at the end: \"%s\"", all);
    ids[0] = info.vocab_size;
    CHECK(!detokenize(NULL, 0, ids, 1, all) && strstr(lls_last_error(), "id is"), "an id outside the vocabulary");
    CHECK(lls_detokenizer_create(model, NULL, 1, false, NULL) == LLS_ERR_ARGUMENT, "arguments that are NULL");
}

int main(int argc, char **argv) {
    test_arguments(argc, argv, "Checks the engine's behaviour on tiny models.");
    model = test_model(test_golden_path("tiny_llama.gguf"));
    info = lls_model_describe(model);
    run_test("E01 chunked prefill equals one pass", chunking);
    run_test("E02 context exactly full, too long, nothing to generate", context_edges);
    run_test("empty prompt", empty_prompt);
    run_test("a batch gives what each gets alone", batching);
    run_test("preemption and recompute", preemption);
    run_test("stop tokens", stop_tokens);
    run_test("seeds", sampling);
    run_test("cancel", cancel);
    run_test("bad requests and options", bad_requests);
    run_test("threads and page sizes", threads_and_pages);
    run_test("generate", generate);
    run_test("tokens to text", detokenizing);
    lls_model_free(model);
    return check_summary();
}
