#include "engine/text_fixture.h"

#include <stdio.h>

void check_status(lls_status got, lls_status want, const char *file, int line) {
    if (got == want) return;
    print_error("%s: %s, wanted %s\n", lls_status_name(got), lls_last_error(), lls_status_name(want));
    _fail(file, line);
}

text_lines load_lines(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", LLS_GOLDEN_DIR, name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot read %s", path);
    lls__bytes all = {0};
    char chunk[4096];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;) assert_int_equal(lls__bytes_append(&all, chunk, n), 0);
    fclose(f);

    text_lines lines = {.file = all.data};
    for (size_t i = 0; i < all.size; i++) lines.count += all.data[i] == '\n';
    lines.line = malloc((lines.count + 1) * sizeof *lines.line);
    assert_non_null(lines.line);
    const char *begin = all.data;
    for (size_t i = 0; i < lines.count; i++) {
        const char *end = memchr(begin, '\n', (size_t)(all.data + all.size - begin));
        lines.line[i] = (lls__str){begin, (size_t)(end - begin)};
        begin = end + 1;
    }
    return lines;
}

void free_lines(text_lines *lines) {
    free(lines->file);
    free(lines->line);
}

static void append_code_point(lls__bytes *out, unsigned c) {
    char b[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n - 1; i > 0; i--, c >>= 6) b[i] = (char)(0x80 | (c & 0x3F));
    b[0] = (char)(lead[n] | c);
    assert_int_equal(lls__bytes_append(out, b, n), LLS_OK);
}

lls__bytes unescape(lls__str line) {
    lls__bytes out = {0};
    for (size_t i = 0; i < line.size; i++) {
        unsigned c = (uint8_t)line.data[i];
        if (c == '\\' && line.data[i + 1] == 'u') {
            append_code_point(&out, (unsigned)strtoul(line.data + i + 3, NULL, 16));
            i = (size_t)((const char *)memchr(line.data + i, '}', line.size - i) - line.data);
            continue;
        }
        if (c == '\\') {
            c = (uint8_t)line.data[++i];
            c = c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c;
        }
        char byte = (char)c;
        assert_int_equal(lls__bytes_append(&out, &byte, 1), LLS_OK);
    }
    return out;
}

/* Reads "key value" lines up to the one with this key, and returns its number. */
static int32_t read_keys(const text_lines *lines, size_t *next, const char *last, lls__vocab *v, char model[32],
                         char pre[32]) {
    for (;;) {
        char key[32], value[32];
        assert_true(*next < lines->count);
        assert_int_equal(sscanf(lines->line[(*next)++].data, "%31s %31s", key, value), 2);
        if (strcmp(key, last) == 0) return atoi(value);
        if (strcmp(key, "model") == 0) v->model = strcpy(model, value);
        if (strcmp(key, "pre") == 0) v->pre = strcpy(pre, value);
        if (strcmp(key, "bos") == 0) v->bos = atoi(value);
        if (strcmp(key, "eos") == 0) v->eos = atoi(value);
        if (strcmp(key, "unk") == 0) v->unk = atoi(value);
        if (strcmp(key, "add_space_prefix") == 0) v->add_space_prefix = atoi(value);
    }
}

/* What stands behind the first `at` bytes of a line, unescaped. */
static lls__str field(lls__str line, int at) {
    lls__bytes text = unescape((lls__str){line.data + at, line.size - (size_t)at});
    return (lls__str){text.data, text.size};
}

static void free_strings(lls__str *s, int32_t count) {
    for (int32_t i = 0; i < count; i++) free((void *)s[i].data);
    free(s);
}

lls__tokenizer *load_tokenizer(const char *name) {
    char path[64], model[32], pre[32];
    snprintf(path, sizeof path, "text/%s.vocab", name);
    text_lines lines = load_lines(path);
    lls__vocab v = {.bos = -1, .eos = -1, .eot = -1, .unk = -1};
    size_t next = 0;

    v.num_tokens = read_keys(&lines, &next, "tokens", &v, model, pre);
    lls__str *text = calloc((size_t)v.num_tokens, sizeof *text);
    int32_t *type = calloc((size_t)v.num_tokens, sizeof *type);
    float *score = calloc((size_t)v.num_tokens, sizeof *score);
    for (int32_t i = 0; i < v.num_tokens; i++) {
        int at;
        lls__str line = lines.line[next++];
        assert_int_equal(sscanf(line.data, "%d %f %n", &type[i], &score[i], &at), 2);
        text[i] = field(line, at);
    }
    v.num_merges = read_keys(&lines, &next, "merges", &v, model, pre);
    lls__str *merges = calloc((size_t)v.num_merges + 1, sizeof *merges);
    for (int32_t i = 0; i < v.num_merges; i++) merges[i] = field(lines.line[next++], 0);
    v.text = text;
    v.type = type;
    v.scores = score;
    v.merges = merges;

    lls__tokenizer *t;
    assert_status(lls__tokenizer_create(&v, &t), LLS_OK);
    free_strings(text, v.num_tokens);
    free_strings(merges, v.num_merges);
    free(type);
    free(score);
    free_lines(&lines);
    return t;
}

lls__tokenizer *load_model_tokenizer(void) {
    const char *path = getenv("LLS_TEST_MODEL");
    if (!path || !*path) skip();
    lls__gguf *gguf;
    lls__vocab vocab;
    void *storage;
    lls__tokenizer *t;
    assert_status(lls__gguf_open(path, &gguf), LLS_OK);
    assert_status(lls__vocab_from_gguf(gguf, &vocab, &storage), LLS_OK);
    assert_status(lls__tokenizer_create(&vocab, &t), LLS_OK);
    free(storage);
    lls__gguf_close(gguf); // the tokenizer keeps nothing of the file
    return t;
}

static void print_ids(const char *what, const int32_t *ids, size_t n) {
    print_error("%s:", what);
    for (size_t i = 0; i < n; i++) print_error(" %d", ids[i]);
    print_error("\n");
}

void assert_ids(const lls__tokenizer *t, lls__str text, bool parse_special, const int32_t *want, size_t num_want) {
    lls__ids got = {0};
    assert_status(lls__tokenize(t, text.data, text.size, false, parse_special, &got), LLS_OK);
    if (got.size != num_want || (num_want && memcmp(got.data, want, num_want * sizeof *want) != 0)) {
        print_error("text: %.*s\n", (int)text.size, text.data);
        print_ids("got ", got.data, got.size);
        print_ids("want", want, num_want);
        fail();
    }
    free(got.data);
}
