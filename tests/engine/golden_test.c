/* The engine against an independent float64 forward of the same weights (tools/golden_forward.py wrote the fixtures).
 *
 *     golden_test --golden DIR [--model FILE] [--device cpu|cuda]
 *
 * Tiny models of every architecture: logits at each position. With --model (SmolLM2-135M-Instruct Q4_1): six prompts x
 * 64 greedy tokens. With fp32 activations the ids must be identical. With integer activations and an f16 cache an id
 * may differ where the float64 run's best two are within 0.3 nat; the test says where, and goes on from the float64
 * run's token. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check.h"
#include "run.h"

enum { STEPS = 64 };
static const double NMSE_F32 = 1e-6, NMSE_INTEGER = 1e-3, MAX_GAP = 0.3;

static json_t *load_json(const char *name) {
    const char *path = test_golden_path(name);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (!root) {
        fprintf(stderr, "%s: %s\n", path, error.text);
        exit(2);
    }
    return root;
}

static float *load_floats(const char *name) {
    const char *path = test_golden_path(name);
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(2);
    }
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    float *values = malloc(bytes);
    if (fread(values, 1, bytes, file) != bytes) exit(2);
    fclose(file);
    return values;
}

static int32_t read_ids(const json_t *array, int32_t *ids) {
    for (size_t i = 0; i < json_array_size(array); i++) ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return (int32_t)json_array_size(array);
}

static lls_engine_options engine_options(int32_t context, bool f32) {
    lls_engine_options options = LLS_ENGINE_OPTIONS_INIT;
    options.device = test_device, options.context_length = context;
    options.f32_activations = f32, options.kv_dtype = f32 ? LLS_F32 : LLS_F16;
    return options;
}

/* ---- Tiny models ---- */

static void tiny_model(const json_t *entry, const float *logits, bool f32) {
    const char *file = json_string_value(json_object_get(entry, "file"));
    int32_t ids[256], vocab = (int32_t)json_integer_value(json_object_get(entry, "vocab_size")),
                      n = read_ids(json_object_get(entry, "ids"), ids);
    logits += json_integer_value(json_object_get(entry, "offset"));
    lls_model *model = test_model(test_golden_path(file));
    lls_engine *engine = test_engine(model, engine_options(n + 1, f32));
    float *got = malloc((size_t)vocab * sizeof *got);
    double worst = 0;
    for (int32_t i = 0; i < n; i++) {
        lls_request request = LLS_REQUEST_INIT;
        request.prompt = ids, request.prompt_tokens = (size_t)i + 1, request.max_new_tokens = 1;
        test_run run;
        CHECK(test_request(engine, &request, &run, got, vocab) == LLS_OK, "%s: %s", file, lls_last_error());
        double nmse = test_nmse(got, logits + (int64_t)i * vocab, vocab);
        if (!(nmse <= worst)) worst = nmse;
    }
    double bound = f32 ? NMSE_F32 : NMSE_INTEGER;
    CHECK(worst < bound, "%s: worst logits NMSE %.3g, must be below %.3g", file, worst, bound);
    printf("  %s, %s activations: worst logits NMSE %.2g\n", file, f32 ? "fp32" : "default", worst);
    free(got);
    lls_engine_destroy(engine);
    lls_model_free(model);
}

static void tiny_models(bool f32) {
    json_t *root = load_json("tiny.json"), *entry;
    float *logits = load_floats(json_string_value(json_object_get(root, "logits_file")));
    size_t i;
    json_array_foreach(json_object_get(root, "models"), i, entry) tiny_model(entry, logits, f32);
    free(logits);
    json_decref(root);
}

static void tiny_f32(void) {
    tiny_models(true);
}

static void tiny_default(void) {
    tiny_models(false);
}

/* ---- The real model ---- */

typedef struct golden_prompt {
    const char *name;
    int32_t ids[4096], num_ids, greedy[STEPS];
    double gap[STEPS];
    const json_t *logits;
} golden_prompt;

static const float *golden_logits(const golden_prompt *p, const float *all, int32_t step) {
    json_t *entry;
    size_t i;
    json_array_foreach(p->logits, i, entry) {
        if (json_integer_value(json_object_get(entry, "step")) == step)
            return all + json_integer_value(json_object_get(entry, "offset"));
    }
    return NULL;
}

// Greedy tokens from step `from` on, given the float64 run's tokens before it. Returns the first step that differs,
// STEPS if none does.
static int32_t follow(lls_engine *engine, const golden_prompt *p, int32_t from, float *last_logits, int32_t vocab) {
    static int32_t prompt[4096 + STEPS];
    memcpy(prompt, p->ids, (size_t)p->num_ids * sizeof *prompt);
    memcpy(prompt + p->num_ids, p->greedy, (size_t)from * sizeof *prompt);
    lls_request request = LLS_REQUEST_INIT;
    request.prompt = prompt, request.prompt_tokens = (size_t)(p->num_ids + from);
    request.max_new_tokens = STEPS - from, request.ignore_stop_tokens = true;
    test_run run;
    CHECK(test_request(engine, &request, &run, last_logits, vocab) == LLS_OK, "%s: %s", p->name, lls_last_error());
    for (int32_t i = 0; i < run.num_ids; i++) {
        if (run.ids[i] != p->greedy[from + i]) return from + i;
    }
    CHECK(run.num_ids == STEPS - from, "%s: %d tokens instead of %d", p->name, run.num_ids, STEPS - from);
    return STEPS;
}

static double nmse_at(lls_engine *engine, const golden_prompt *p, const float *all, int32_t step, float *got,
                      int32_t vocab) {
    static int32_t prompt[4096 + STEPS];
    memcpy(prompt, p->ids, (size_t)p->num_ids * sizeof *prompt);
    memcpy(prompt + p->num_ids, p->greedy, (size_t)step * sizeof *prompt);
    lls_request request = LLS_REQUEST_INIT;
    request.prompt = prompt, request.prompt_tokens = (size_t)(p->num_ids + step), request.max_new_tokens = 1;
    test_run run;
    CHECK(test_request(engine, &request, &run, got, vocab) == LLS_OK, "%s: %s", p->name, lls_last_error());
    return test_nmse(got, golden_logits(p, all, step), vocab);
}

static void check_prompt(lls_engine *engine, const golden_prompt *p, const float *all, bool exact, double bound,
                         int32_t vocab) {
    float *got = malloc((size_t)vocab * sizeof *got);
    int32_t differing = 0;
    for (int32_t step = 0; (step = follow(engine, p, step, got, vocab)) < STEPS; step++) {
        differing++;
        if (exact) CHECK(false, "%s: token %d differs from the float64 run", p->name, step);
        else
            CHECK(p->gap[step] < MAX_GAP, "%s: token %d differs where the float64 run's best two are %.3f nat apart",
                  p->name, step, p->gap[step]);
        printf("  %s: token %d differs, float64 gap %.3f nat\n", p->name, step, p->gap[step]);
    }
    double first = nmse_at(engine, p, all, 0, got, vocab), last = nmse_at(engine, p, all, STEPS - 1, got, vocab);
    CHECK(first < bound && last < bound, "%s: logits NMSE %.3g and %.3g, must be below %.3g", p->name, first, last,
          bound);
    printf("  %s: %d of %d ids equal, logits NMSE %.2g (first), %.2g (last)\n", p->name, STEPS - differing, STEPS,
           first, last);
    free(got);
}

static void real_model(bool f32) {
    json_t *root = load_json("smollm2.json"), *entry;
    int32_t vocab = (int32_t)json_integer_value(json_object_get(root, "vocab_size"));
    float *logits = load_floats(json_string_value(json_object_get(root, "logits_file")));
    lls_model *model = test_model(test_model_path);
    lls_engine *engine = test_engine(model, engine_options(2048, f32));
    bool exact = f32 || test_device.type == LLS_CUDA;
    size_t i;
    json_array_foreach(json_object_get(root, "prompts"), i, entry) {
        static golden_prompt p;
        p.name = json_string_value(json_object_get(entry, "name"));
        p.num_ids = read_ids(json_object_get(entry, "prompt_ids"), p.ids);
        read_ids(json_object_get(entry, "greedy_ids"), p.greedy);
        for (size_t s = 0; s < STEPS; s++)
            p.gap[s] = json_real_value(json_array_get(json_object_get(entry, "top2_gap"), s));
        p.logits = json_object_get(entry, "logits");
        check_prompt(engine, &p, logits, exact, f32 ? NMSE_F32 : NMSE_INTEGER, vocab);
    }
    lls_engine_destroy(engine);
    lls_model_free(model);
    free(logits);
    json_decref(root);
}

static void real_f32(void) {
    real_model(true);
}

static void real_default(void) {
    real_model(false);
}

int main(int argc, char **argv) {
    test_arguments(argc, argv, "Checks the engine against a float64 forward.");
    run_test("tiny models, fp32 activations", tiny_f32);
    run_test("tiny models, default activations", tiny_default);
    if (test_model_path) {
        run_test("SmolLM2, fp32 activations and cache", real_f32);
        run_test("SmolLM2, default activations and cache", real_default);
    } else {
        skip_test("SmolLM2", "no --model");
    }
    return check_summary();
}
