/* What the verbs of the llmspeed command share: exit codes, messages, option parsing, model and engine set-up.
 * The command is a user of the public headers like any other program. */
#ifndef CLI_COMMON_H
#define CLI_COMMON_H

#include <argp.h>
#include <jansson.h>

#include "llmspeed/llmspeed.h"

/* ---- Exit codes ------------------------------------------------------------------------------ */

/* 3 to 8 are the categories of lls_status: status / 100 + 2. */
enum {
    CLI_OK = 0,
    CLI_FAILED = 1,       /* none of the below: output could not be written, a check failed */
    CLI_USAGE = 2,        /* the command line cannot be parsed */
    CLI_ARGUMENT = 3,     /* a value is out of range */
    CLI_UNSUPPORTED = 4,
    CLI_DEVICE = 5,
    CLI_RESOURCE = 6,     /* memory, context length */
    CLI_FILE = 7,         /* cannot be read, malformed, no known model, not UTF-8 */
    CLI_INTERNAL = 8,
    CLI_INTERRUPTED = 130 /* 128 + SIGINT, as shells have it */
};

int cli_exit_code(lls_status status);
/* Prints lls_last_error() as "llmspeed: ..." and returns the exit code. */
int cli_fail(lls_status status);
/* Prints "llmspeed: ..." and returns `code`. */
int cli_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- Option values: a bad one ends the program with a usage error that names option and value ---- */

int64_t cli_int(struct argp_state *state, const char *option, const char *arg, int64_t min, int64_t max);
double cli_real(struct argp_state *state, const char *option, const char *arg);
double cli_positive(struct argp_state *state, const char *option, const char *arg);

/* Runs argp with the exit status 2 for usage errors. */
void cli_parse(const struct argp *argp, int argc, char **argv, void *input);

/* ---- Model and engine ------------------------------------------------------------------------ */

/* -m, --device, -t, --context, --kv-dtype, --f32-activations; a child parser of `generate` and `bench model`. */
typedef struct cli_engine_flags {
    const char *model;
    lls_device device; /* {0} until cli_engine_open resolves "auto" */
    int32_t threads;
    int32_t context;
    lls_dtype kv_dtype;
    bool f32_activations;
} cli_engine_flags;
extern const struct argp cli_engine_argp;

/* "cpu", "cuda", "cuda:N"; "auto" gives {0}. */
lls_device cli_device(struct argp_state *state, const char *arg);
/* {0} becomes the first GPU with a working driver, or the CPU. */
lls_device cli_resolve_device(lls_device device);
/* What num_threads = 0 means: the cores that this process may use. */
int32_t cli_threads(int32_t asked);

/* Loads the model and makes the engine, with a bar on standard error when that is a terminal. Prints on failure and
 * returns the exit code, 0 for success; flags->device is resolved. */
int cli_engine_open(cli_engine_flags *flags, lls_model **model, lls_engine **engine);

/* ---- Small things ---------------------------------------------------------------------------- */

double cli_seconds(void);        /* monotonic */
/* lls_measure_ceilings on a context of its own; zeros where that fails. */
lls_status cli_ceilings(lls_device device, int32_t threads, lls_ceilings *out);
int64_t cli_peak_memory(void);   /* bytes of this process that were resident at most */
/* All of a stream, NUL-terminated; NULL with errno set on a read error or without memory. */
char *cli_read_all(FILE *stream, size_t *bytes);
/* `bytes` of text with control characters and invalid UTF-8 as \n, \x1b ...; cut with "..." past `limit` bytes.
 * The caller frees it. */
char *cli_escape(const char *text, size_t bytes, size_t limit);
/* The same bytes as a JSON string; what JSON cannot hold is escaped as above. */
json_t *cli_json_string(const char *text, size_t bytes);
/* Prints a JSON object on standard output, or into `path` when it is not NULL; takes the reference. Returns the
 * exit code. */
int cli_print_json(json_t *object, const char *path);
/* Flushes standard output; an exit code, with a message when something could not be written. */
int cli_finish_output(void);
/* Size as "97.3 MB" (decimal units) in a static buffer of this call site's own. */
typedef struct cli_size {
    char text[24];
} cli_size;
cli_size cli_size_of(double bytes);

#endif
