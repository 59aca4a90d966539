#include "ops/gemm/tune.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

typedef struct line {
    char *key, *config; // of one allocation
} line;

static line *lines; // sorted by key
static size_t num_lines;
static pthread_once_t read_once = PTHREAD_ONCE_INIT;

static int by_key(const void *x, const void *y) {
    return strcmp(((const line *)x)->key, ((const line *)y)->key);
}

// "key words tile=...": splits at the configuration. False for anything else.
static bool split(char *text, line *out) {
    char *config = strstr(text, " tile=");
    if (!config || config == text) return false;
    *config = 0;
    config[1 + strcspn(config + 1, "\r\n")] = 0;
    *out = (line){text, config + 1};
    return true;
}

static void read_lines(FILE *file, const char *path) {
    size_t capacity = 0, size = 0;
    char *text = NULL;
    for (int number = 1; getline(&text, &size, file) >= 0; number++) {
        if (text[0] == '#' || text[strspn(text, " \t\r\n")] == 0) continue;
        if (num_lines == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            line *grown = realloc(lines, capacity * sizeof *lines);
            if (!grown) break;
            lines = grown;
        }
        if (!split(text, &lines[num_lines])) {
            lls__log(LLS_LOG_WARN, "%s:%d: not a line of a tuning file", path, number);
            continue;
        }
        num_lines++;
        text = NULL, size = 0; // the line keeps it
    }
    free(text);
    if (num_lines) qsort(lines, num_lines, sizeof *lines, by_key);
}

static void read_file(void) {
    const char *path = getenv("LLS_TUNE_FILE");
    if (!path || !*path) return;
    FILE *file = fopen(path, "r");
    if (!file) {
        lls__log(LLS_LOG_WARN, "LLS_TUNE_FILE: %s cannot be opened", path);
        return;
    }
    read_lines(file, path);
    fclose(file);
}

static char layout(int64_t line_step, int64_t k_step, char along_lines) {
    return k_step == 1 ? 'k' : line_step == 1 ? along_lines : '?';
}

void lls__gemm_tune_key_of(const lls_ctx *ctx, const lls__gemm_problem *p, char *text, size_t size) {
    snprintf(text, size, "sm%dx%d %s %s %s %c%c%s %s %lld %lld %lld %lld", ctx->sm, ctx->num_sms,
             lls_dtype_name(p->a.dtype), lls_dtype_name(p->b.dtype), lls_dtype_name(p->out.dtype),
             layout(p->a.row, p->a.col, 'm'), layout(p->b.col, p->b.row, 'n'), p->offsets ? "g" : "",
             lls__gemm_is_plain(p) ? "plain" : "fused", (long long)p->m, (long long)p->n, (long long)p->k,
             (long long)p->batch);
}

const char *lls__gemm_tuned(const lls_ctx *ctx, const lls__gemm_problem *p) {
    pthread_once(&read_once, read_file);
    if (num_lines == 0) return NULL;
    char key[LLS_GEMM_KEY_CHARS];
    lls__gemm_tune_key_of(ctx, p, key, sizeof key);
    const line *found = bsearch(&(line){.key = key}, lines, num_lines, sizeof *lines, by_key);
    return found ? found->config : NULL;
}
