/* llmspeed inspect: metadata and tensors of a model file, and whether this library runs it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common.h"
#include "verbs.h"

enum { SHOWN_ELEMENTS = 4, SHOWN_BYTES = 72 };

typedef struct flags {
    const char *file;
    bool json;
} flags;

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "one JSON object instead of text; arrays are cut after a few elements", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state) {
    flags *f = state->input;
    switch (key) {
    case 'j': f->json = true; break;
    case ARGP_KEY_ARG:
        if (f->file) argp_error(state, "a second file \"%s\", must be one", arg);
        f->file = arg;
        break;
    case ARGP_KEY_NO_ARGS: argp_error(state, "no file given"); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static void print_value(const lls_gguf_entry *e, const lls_gguf_value *v) {
    char *text;
    switch (e->kind) {
    case LLS_GGUF_FLOAT: printf("%.9g", v->real); break;
    case LLS_GGUF_BOOL: fputs(v->integer ? "true" : "false", stdout); break;
    case LLS_GGUF_STRING:
        text = cli_escape(v->string, v->string_bytes, SHOWN_BYTES);
        printf(e->is_array ? "\"%s\"" : "%s", text ? text : "");
        free(text);
        break;
    default: printf("%" PRId64, v->integer);
    }
}

static void print_entry(const lls_gguf *file, int64_t index, const lls_gguf_entry *e) {
    lls_gguf_value v;
    char *key = cli_escape(e->key, e->key_bytes, SHOWN_BYTES);
    printf("  %-40s ", key ? key : "");
    free(key);
    if (e->is_array) printf("%s[%" PRId64 "] ", e->type, e->count);
    for (int64_t i = 0; i < e->count && i < SHOWN_ELEMENTS && lls_gguf_value_at(file, index, i, &v); i++) {
        if (i > 0) fputs(", ", stdout);
        print_value(e, &v);
    }
    puts(e->count > SHOWN_ELEMENTS ? ", ..." : "");
}

static json_t *value_json(const lls_gguf_entry *e, const lls_gguf_value *v) {
    switch (e->kind) {
    case LLS_GGUF_FLOAT: {
        json_t *real = json_real(v->real); // NULL for NaN and infinities, which JSON lacks
        return real ? real : json_null();
    }
    case LLS_GGUF_BOOL: return json_boolean(v->integer != 0);
    case LLS_GGUF_STRING: return cli_json_string(v->string, v->string_bytes);
    default: return json_integer(v->integer);
    }
}

static json_t *entry_json(const lls_gguf *file, int64_t index, const lls_gguf_entry *e) {
    lls_gguf_value v;
    json_t *entry = json_pack("{s:o, s:s, s:b}", "key", cli_json_string(e->key, e->key_bytes), "type", e->type,
                              "array", e->is_array);
    if (!e->is_array) {
        if (lls_gguf_value_at(file, index, 0, &v)) json_object_set_new(entry, "value", value_json(e, &v));
        return entry;
    }
    json_t *first = json_array();
    for (int64_t i = 0; i < e->count && i < SHOWN_ELEMENTS && lls_gguf_value_at(file, index, i, &v); i++) {
        json_array_append_new(first, value_json(e, &v));
    }
    json_object_set_new(entry, "count", json_integer(e->count));
    json_object_set_new(entry, "first", first);
    return entry;
}

static json_t *tensor_json(const lls_gguf_tensor *t) {
    json_t *shape = json_array();
    for (int32_t i = 0; i < t->ndim; i++) json_array_append_new(shape, json_integer(t->shape[i]));
    return json_pack("{s:s, s:s, s:o, s:I, s:I}", "name", t->name, "dtype", lls_dtype_name(t->dtype), "shape", shape,
                     "bytes", (json_int_t)t->bytes, "offset", (json_int_t)t->offset);
}

// NULL when an engine can be made of the file as far as its metadata says; otherwise why not.
static const char *why_not_run(const char *path) {
    lls_model *model;
    if (lls_model_load(path, NULL, &model)) return lls_last_error();
    lls_model_free(model);
    return NULL;
}

static int print_json(const flags *f, const lls_gguf *file) {
    lls_gguf_info info = lls_gguf_describe(file);
    lls_gguf_entry e;
    lls_gguf_tensor t;
    json_t *entries = json_array(), *tensors = json_array();
    for (int64_t i = 0; lls_gguf_entry_at(file, i, &e); i++) json_array_append_new(entries, entry_json(file, i, &e));
    for (int64_t i = 0; lls_gguf_tensor_at(file, i, &t); i++) json_array_append_new(tensors, tensor_json(&t));
    return cli_print_json(json_pack("{s:s, s:i, s:I, s:I, s:s?, s:o, s:o}", "format", "gguf", "version", info.version,
                                    "file_bytes", (json_int_t)info.file_bytes, "data_offset",
                                    (json_int_t)info.data_offset, "unsupported", why_not_run(f->file), "metadata",
                                    entries, "tensors", tensors),
                          NULL);
}

static int print_text(const flags *f, const lls_gguf *file) {
    lls_gguf_info info = lls_gguf_describe(file);
    lls_gguf_entry e;
    lls_gguf_tensor t;
    struct { int64_t count, bytes; } totals[LLS_Q6_K + 1] = {{0}};
    const char *why = why_not_run(f->file);
    printf("GGUF version %d, %s, %" PRId64 " metadata entries, %" PRId64 " tensors\n", info.version,
           cli_size_of((double)info.file_bytes).text, info.num_entries, info.num_tensors);
    printf(why ? "does not run here: %s\n" : "runs here\n", why);
    printf("\nmetadata\n");
    for (int64_t i = 0; lls_gguf_entry_at(file, i, &e); i++) print_entry(file, i, &e);
    printf("\ntensors\n");
    for (int64_t i = 0; lls_gguf_tensor_at(file, i, &t); i++) {
        char shape[96] = "";
        for (int32_t d = 0, used = 0; d < t.ndim; d++) {
            used += snprintf(shape + used, sizeof shape - (size_t)used, "%s%" PRId64, d ? " x " : "", t.shape[d]);
        }
        printf("  %-40s %-5s %-24s %s\n", t.name, lls_dtype_name(t.dtype), shape, cli_size_of((double)t.bytes).text);
        totals[t.dtype].count++, totals[t.dtype].bytes += t.bytes;
    }
    printf("\ntotals\n");
    for (int d = 0; d <= LLS_Q6_K; d++) {
        if (totals[d].count == 0) continue;
        printf("  %-5s %5" PRId64 " tensors %12s\n", lls_dtype_name((lls_dtype)d), totals[d].count,
               cli_size_of((double)totals[d].bytes).text);
    }
    return cli_finish_output();
}

int verb_inspect(int argc, char **argv) {
    static const struct argp argp = {
        options, parse, "FILE",
        "Shows what a model file (GGUF) holds.\vExamples:\n  llmspeed inspect model.gguf\n"
        "  llmspeed inspect --json model.gguf | jq '.tensors[].dtype' | sort | uniq -c\n",
        NULL, NULL, NULL};
    flags f = {0};
    cli_parse(&argp, argc, argv, &f);
    lls_gguf *file;
    lls_status status = lls_gguf_open(f.file, &file);
    if (status) return cli_fail(status);
    int code = f.json ? print_json(&f, file) : print_text(&f, file);
    lls_gguf_close(file);
    return code;
}
