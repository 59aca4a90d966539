#include "common.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

int cli_exit_code(lls_status status) {
    if (status == LLS_OK) return CLI_OK;
    if (status == LLS_ERR_CANCELLED) return CLI_INTERRUPTED;
    int code = (int)status / 100 + 2;
    return code >= CLI_ARGUMENT && code <= CLI_INTERNAL ? code : CLI_FAILED;
}

int cli_fail(lls_status status) {
    fflush(stdout);
    fprintf(stderr, "llmspeed: %s\n", lls_last_error());
    return cli_exit_code(status);
}

int cli_error(int code, const char *format, ...) {
    va_list list;
    fflush(stdout);
    fputs("llmspeed: ", stderr);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    return code;
}

int64_t cli_int(struct argp_state *state, const char *option, const char *arg, int64_t min, int64_t max) {
    char *end;
    errno = 0;
    long long value = strtoll(arg, &end, 10);
    if (end == arg || *end || errno || value < min || value > max) {
        argp_error(state, "%s is \"%s\", must be an integer from %lld to %lld", option, arg, (long long)min,
                   (long long)max);
    }
    return value;
}

double cli_real(struct argp_state *state, const char *option, const char *arg) {
    char *end;
    double value = strtod(arg, &end);
    if (end == arg || *end || !isfinite(value)) {
        argp_error(state, "%s is \"%s\", must be a finite number", option, arg);
    }
    return value;
}

double cli_positive(struct argp_state *state, const char *option, const char *arg) {
    double value = cli_real(state, option, arg);
    if (!(value > 0)) argp_error(state, "%s is \"%s\", must be above 0", option, arg);
    return value;
}

void cli_parse(const struct argp *argp, int argc, char **argv, void *input) {
    argp_err_exit_status = CLI_USAGE;
    error_t error = argp_parse(argp, argc, argv, 0, NULL, input);
    if (error) exit(cli_error(CLI_FAILED, "%s", strerror(error)));
}

double cli_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

lls_status cli_ceilings(lls_device device, int32_t threads, lls_ceilings *out) {
    lls_ctx_options options = LLS_CTX_OPTIONS_INIT;
    options.device = device, options.num_threads = threads;
    lls_ctx *ctx;
    *out = (lls_ceilings){0};
    lls_status status = lls_ctx_create(&options, &ctx);
    if (status) return status;
    status = lls_measure_ceilings(ctx, out);
    lls_ctx_destroy(ctx);
    return status;
}

int64_t cli_peak_memory(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (int64_t)usage.ru_maxrss * 1024;
}

char *cli_read_all(FILE *stream, size_t *bytes) {
    char *text = NULL;
    size_t used = 0, capacity = 0;
    do {
        if (used + 1 >= capacity) {
            char *grown = realloc(text, capacity = capacity ? 2 * capacity : 4096);
            if (!grown) goto failed;
            text = grown;
        }
        used += fread(text + used, 1, capacity - used - 1, stream);
        if (ferror(stream)) goto failed;
    } while (!feof(stream));
    text[used] = '\0';
    *bytes = used;
    return text;
failed:
    free(text);
    return NULL;
}

// Bytes of the UTF-8 character at `s`, at most `left`; 0 when it is not valid there. (Shortest form, no surrogates.)
static size_t character_bytes(const unsigned char *s, size_t left) {
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    if (n == 0 || n > left) return 0;
    if (n == 1) return 1;
    uint32_t code = s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6 != 2) return 0;
        code = code << 6 | (s[i] & 0x3f);
    }
    return code < smallest[n] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) ? 0 : n;
}

char *cli_escape(const char *text, size_t bytes, size_t limit) {
    char *out, *p;
    size_t shown = bytes < limit ? bytes : limit;
    if (!(out = p = malloc(4 * shown + 8))) return NULL;
    for (size_t i = 0; i < shown;) {
        unsigned char c = (unsigned char)text[i];
        size_t n = character_bytes((const unsigned char *)text + i, bytes - i);
        // C1 controls (U+0080 to U+009F) start escape sequences too.
        bool control = n == 1 ? c < 0x20 || c == 0x7f : n == 2 && c == 0xc2 && (unsigned char)text[i + 1] < 0xa0;
        if (n > 1 && i + n > shown) break;
        if (n == 0 || control) {
            static const char letters[] = {['\n'] = 'n', ['\t'] = 't', ['\r'] = 'r'};
            if (c < sizeof letters && letters[c]) p += sprintf(p, "\\%c", letters[c]);
            else p += sprintf(p, "\\x%02x", c);
            i++;
        } else {
            memcpy(p, text + i, n);
            p += n, i += n;
        }
    }
    strcpy(p, shown < bytes ? "..." : "");
    return out;
}

json_t *cli_json_string(const char *text, size_t bytes) {
    json_t *string = json_stringn(text, bytes);
    if (string) return string;
    char *escaped = cli_escape(text, bytes, bytes);
    string = escaped ? json_string(escaped) : NULL;
    free(escaped);
    return string;
}

int cli_finish_output(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return CLI_OK;
    return cli_error(CLI_FAILED, "standard output: %s", strerror(errno));
}

int cli_print_json(json_t *object, const char *path) {
    if (!object) return cli_error(CLI_RESOURCE, "no memory for the JSON result");
    FILE *file = path ? fopen(path, "w") : stdout;
    bool written = file && json_dumpf(object, file, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) == 0 &&
                   fputc('\n', file) != EOF && fflush(file) == 0;
    int error = errno;
    if (path && file) written = fclose(file) == 0 && written;
    json_decref(object);
    if (written) return CLI_OK;
    return cli_error(CLI_FAILED, "%s: %s", path ? path : "standard output", strerror(error));
}

cli_size cli_size_of(double bytes) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    int unit = 0;
    while (bytes >= 1000 && unit < 4) bytes /= 1000, unit++;
    cli_size size;
    snprintf(size.text, sizeof size.text, "%.*f %s", unit == 0 ? 0 : bytes < 10 ? 2 : 1, bytes, units[unit]);
    return size;
}
