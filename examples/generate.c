/* Loads a GGUF model and continues a prompt: generate MODEL.gguf "Once upon a time" [TOKENS] */
#include <llmspeed/engine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool print_piece(const char *text, size_t bytes, void *user) {
    (void)user;
    return fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0;
}

// The ids of a text, which the caller frees.
static lls_status tokenize(const lls_model *model, const char *text, int32_t **ids, size_t *count) {
    lls_tokenize_options options = LLS_TOKENIZE_OPTIONS_INIT;
    options.add_special = true;
    lls_status status = lls_tokenize(model, text, strlen(text), &options, NULL, 0, count); // counts
    if (status) return status;
    *ids = malloc((*count + 1) * sizeof **ids);
    return *ids ? lls_tokenize(model, text, strlen(text), &options, *ids, *count, count) : LLS_ERR_MEMORY;
}

static lls_status generate(const char *path, const char *prompt, int32_t max_tokens) {
    lls_model *model = NULL;
    lls_engine *engine = NULL;
    int32_t *ids = NULL;
    lls_request request = LLS_REQUEST_INIT;
    lls_generate_result result = {LLS_RUNNING, 0, 0};
    lls_status status = lls_model_load(path, NULL, &model);
    if (!status) status = lls_engine_create(model, NULL, &engine);
    if (!status) status = tokenize(model, prompt, &ids, &request.prompt_tokens);
    if (!status) {
        request.prompt = ids;
        request.max_new_tokens = max_tokens; // sampling is left at its default: greedy
        fputs(prompt, stdout);
        status = lls_generate(engine, &request, print_piece, NULL, &result);
    }
    if (!status) {
        lls_engine_stats stats = lls_engine_get_stats(engine);
        fprintf(stderr, "\n%lld + %lld tokens, %.1f tokens/s\n", (long long)result.prompt_tokens, (long long)result.new_tokens,
                stats.decode_seconds > 0 ? (double)stats.decode_tokens / stats.decode_seconds : 0);
    }
    free(ids);
    lls_engine_destroy(engine);
    lls_model_free(model);
    return status;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s MODEL.gguf PROMPT [TOKENS]\n", argv[0]);
        return 2;
    }
    lls_status status = generate(argv[1], argv[2], argc > 3 ? atoi(argv[3]) : 64);
    if (status) fprintf(stderr, "%s: %s\n", lls_status_name(status), lls_last_error());
    return status != LLS_OK;
}
