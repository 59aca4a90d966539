/* Models that are wrong in one place: the error names the tensor, nothing leaks, and the next load is fine.
 *
 *     load_test --golden DIR [--device cpu|cuda]
 *
 * Each case patches a copy of tiny_llama.gguf. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/check.h"
#include "run.h"

typedef struct file_copy {
    char *bytes;
    size_t size;
    char path[64];
} file_copy;

static file_copy read_model(void) {
    file_copy f = {.path = "/tmp/llmspeed_load_test_XXXXXX"};
    const char *path = test_golden_path("tiny_llama.gguf");
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) {
        fprintf(stderr, "load_test: cannot read %s\n", path);
        exit(2);
    }
    f.size = (size_t)ftell(file);
    f.bytes = malloc(f.size);
    rewind(file);
    if (fread(f.bytes, 1, f.size, file) != f.size) exit(2);
    fclose(file);
    return f;
}

// Where `name` stands as a tensor's name (its length as u64 in front); the bytes behind it are u32 n_dims, u64 dims,
// u32 type, u64 offset.
static char *find_tensor(const file_copy *f, const char *name) {
    uint64_t length = strlen(name);
    for (size_t i = 0; i + 8 + length <= f->size; i++) {
        if (memcmp(f->bytes + i, &length, 8) == 0 && memcmp(f->bytes + i + 8, name, length) == 0)
            return f->bytes + i + 8;
    }
    fprintf(stderr, "load_test: no tensor %s\n", name);
    exit(2);
}

static void set_dim(const file_copy *f, const char *name, int dim, uint64_t value) {
    memcpy(find_tensor(f, name) + strlen(name) + 4 + 8 * dim, &value, 8);
}

// Puts the bytes into a temporary file; the caller unlinks it.
static void write_file(file_copy *f) {
    int fd = mkstemp(f->path);
    if (fd < 0 || write(fd, f->bytes, f->size) != (ssize_t)f->size) {
        fprintf(stderr, "load_test: cannot write %s\n", f->path);
        exit(2);
    }
    close(fd);
}

// Loads the patched file and makes an engine: the outcome of both.
static lls_status try_engine(file_copy *f, lls_engine **engine, lls_model **model) {
    *engine = NULL, *model = NULL;
    write_file(f);
    lls_engine_options options = LLS_ENGINE_OPTIONS_INIT;
    options.device = test_device, options.context_length = 32;
    lls_status status = lls_model_load(f->path, NULL, model);
    if (!status) status = lls_engine_create(*model, &options, engine);
    unlink(f->path);
    free(f->bytes);
    return status;
}

static void expect_refused(file_copy f, lls_status want, const char *part) {
    lls_engine *engine;
    lls_model *model;
    lls_status status = try_engine(&f, &engine, &model);
    CHECK(status == want && strstr(lls_last_error(), part), "%s: \"%s\", wanted %s with \"%s\"",
          lls_status_name(status), status ? lls_last_error() : "", lls_status_name(want), part);
    CHECK(!engine, "an engine came out of a bad model");
    lls_engine_destroy(engine);
    lls_model_free(model);
}

static void missing_tensor(void) {
    file_copy f = read_model();
    memcpy(find_tensor(&f, "blk.1.ffn_up.weight"), "blk.1.ffn_uq.weight", 19);
    expect_refused(f, LLS_ERR_MODEL, "tensor blk.1.ffn_up.weight is missing");
}

static void unknown_tensor(void) {
    file_copy f = read_model();
    char *name = find_tensor(&f, "rope_freqs.weight");
    memcpy(name, "rope_freqz.weight", 17);
    expect_refused(f, LLS_ERR_MODEL, "tensor rope_freqz.weight is not part of a llama model");
}

static void wrong_shape(void) { // E04: q's rows do not fit heads x head_dim
    file_copy f = read_model();
    uint64_t rows;
    memcpy(&rows, find_tensor(&f, "blk.0.attn_q.weight") + 19 + 4 + 8, 8);
    set_dim(&f, "blk.0.attn_q.weight", 1, rows / 2);
    expect_refused(f, LLS_ERR_MODEL, "tensor blk.0.attn_q.weight has shape [");
}

static void wrong_vector(void) {
    file_copy f = read_model();
    set_dim(&f, "blk.0.attn_norm.weight", 0, 3);
    expect_refused(f, LLS_ERR_MODEL, "tensor blk.0.attn_norm.weight has shape [3], must be [");
}

static void truncated(void) {
    file_copy f = read_model();
    f.size -= 1;
    expect_refused(f, LLS_ERR_FORMAT, "");
}

static void not_a_model(void) {
    file_copy f = read_model();
    memcpy(f.bytes, "GGML", 4);
    expect_refused(f, LLS_ERR_FORMAT, "GGUF");
}

// Where a tensor's data begins in the file.
static size_t data_of(const char *name) {
    file_copy f = read_model();
    write_file(&f);
    lls_gguf *gguf;
    lls_gguf_tensor t = {0};
    CHECK(lls_gguf_open(f.path, &gguf) == LLS_OK, "%s", lls_last_error());
    for (int64_t i = 0; lls_gguf_tensor_at(gguf, i, &t) && strcmp(t.name, name) != 0;) i++;
    size_t offset = (size_t)t.offset;
    lls_gguf_close(gguf);
    unlink(f.path);
    free(f.bytes);
    return offset;
}

// Weights of NaN: generation ends and says why, it does not invent tokens.
static void nan_weights(void) {
    file_copy f = read_model();
    memset(f.bytes + data_of("output_norm.weight"), 0xFF, 4);
    lls_engine *engine;
    lls_model *model;
    CHECK(try_engine(&f, &engine, &model) == LLS_OK, "%s", lls_last_error());
    if (!engine) return;
    int32_t prompt[3] = {1, 5, 9};
    lls_request request = LLS_REQUEST_INIT;
    request.prompt = prompt, request.prompt_tokens = 3, request.max_new_tokens = 5;
    test_run run;
    CHECK(test_request(engine, &request, &run, NULL, 0) == LLS_OK && run.finish == LLS_FINISH_NUMERIC &&
              run.num_ids == 0,
          "finish %d with %d tokens", (int)run.finish, run.num_ids);
    lls_engine_destroy(engine);
    lls_model_free(model);
}

static void good(void) {
    lls_engine *engine;
    lls_model *model;
    file_copy f = read_model();
    CHECK(try_engine(&f, &engine, &model) == LLS_OK && engine, "%s", lls_last_error());
    lls_engine_destroy(engine);
    lls_model_free(model);
}

int main(int argc, char **argv) {
    test_arguments(argc, argv, "Loads models that are wrong in one place.");
    run_test("a tensor is missing", missing_tensor);
    run_test("a tensor that no llama model has", unknown_tensor);
    run_test("E04 a matrix of the wrong shape", wrong_shape);
    run_test("a vector of the wrong shape", wrong_vector);
    run_test("the last byte is missing", truncated);
    run_test("another kind of file", not_a_model);
    run_test("weights that are not numbers", nan_weights);
    run_test("the good file still loads", good);
    return check_summary();
}
