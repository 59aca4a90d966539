/* llmspeed generate: a prompt or a chat, streamed. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"
#include "speed.h"
#include "verbs.h"

enum { KEY_TEMP = 0x200, KEY_TOP_K, KEY_TOP_P, KEY_MIN_P, KEY_PENALTY, KEY_SEED, KEY_CHAT, KEY_SYSTEM, KEY_RAW_SPECIAL,
       KEY_IGNORE_EOS };

typedef struct flags {
    cli_engine_flags engine;
    const char *prompt, *system;
    int32_t max_new_tokens;
    lls_sampling sampling;
    bool chat, raw_special, ignore_eos, json;
} flags;

static const struct argp_option options[] = {
    {"prompt", 'p', "TEXT", 0, "the prompt; standard input when absent or \"-\" (a last newline there is dropped)", 2},
    {"tokens", 'n', "N", 0, "new tokens at most; -1 (default): until the model stops or the context is full", 2},
    {"chat", KEY_CHAT, NULL, 0, "ask as the user of a chat; on a terminal without -p: a conversation", 2},
    {"system", KEY_SYSTEM, "TEXT", 0, "the chat's system message", 2},
    {"raw-special", KEY_RAW_SPECIAL, NULL, 0, "read control tokens such as <|im_end|> in the prompt as such", 2},
    {"ignore-eos", KEY_IGNORE_EOS, NULL, 0, "go on past the model's end-of-text tokens", 2},
    {"json", 'j', NULL, 0, "one JSON object at the end instead of streamed text", 2},
    {"temp", KEY_TEMP, "T", 0, "temperature; 0 (default): the likeliest token", 3},
    {"top-k", KEY_TOP_K, "K", 0, "draw among the K likeliest tokens; 0 (default): all", 3},
    {"top-p", KEY_TOP_P, "P", 0, "draw among the likeliest tokens that reach probability P; 1 (default): all", 3},
    {"min-p", KEY_MIN_P, "P", 0, "leave out tokens under P times the best one's probability; 0 (default): none", 3},
    {"repeat-penalty", KEY_PENALTY, "R", 0, "above 1: tokens seen before become less likely; 1 (default): off", 3},
    {"seed", KEY_SEED, "N", 0, "seed of the draws (default 0): the same seed gives the same text", 3},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state) {
    flags *f = state->input;
    lls_sampling *s = &f->sampling;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &f->engine; break;
    case 'p': f->prompt = arg; break;
    case 'n': f->max_new_tokens = (int32_t)cli_int(state, "-n", arg, -1, INT32_MAX); break;
    case 'j': f->json = true; break;
    case KEY_CHAT: f->chat = true; break;
    case KEY_SYSTEM: f->system = arg; break;
    case KEY_RAW_SPECIAL: f->raw_special = true; break;
    case KEY_IGNORE_EOS: f->ignore_eos = true; break;
    case KEY_TEMP: s->temperature = (float)cli_real(state, "--temp", arg); break;
    case KEY_TOP_K: s->top_k = (int32_t)cli_int(state, "--top-k", arg, INT32_MIN, INT32_MAX); break;
    case KEY_TOP_P: s->top_p = (float)cli_real(state, "--top-p", arg); break;
    case KEY_MIN_P: s->min_p = (float)cli_real(state, "--min-p", arg); break;
    case KEY_PENALTY: s->repetition_penalty = (float)cli_real(state, "--repeat-penalty", arg); break;
    case KEY_SEED: s->seed = cli_int(state, "--seed", arg, INT64_MIN, INT64_MAX); break;
    case ARGP_KEY_ARG: argp_error(state, "unexpected argument \"%s\": the prompt belongs after -p", arg); break;
    case ARGP_KEY_END:
        if (f->system && !f->chat) argp_error(state, "--system needs --chat");
        if (f->raw_special && f->chat) {
            argp_error(state, "--raw-special does not go with --chat: the template has them");
        }
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

// ---- Ctrl-C stops the text that is being written; a second one ends the program as usual --------------

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

static void watch_interrupts(void) {
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    interrupted = 0;
    sigaction(SIGINT, &action, NULL);
}

// ---- Ids of what is asked ------------------------------------------------------------------------------

typedef struct conversation {
    lls_chat_message *messages; // contents are ours
    size_t count;
} conversation;

static bool say(conversation *c, const char *role, const char *content) {
    lls_chat_message *grown = realloc(c->messages, sizeof *grown * (c->count + 1));
    char *copy = strdup(content);
    if (grown) c->messages = grown;
    if (!grown || !copy) {
        free(copy);
        return false;
    }
    c->messages[c->count++] = (lls_chat_message){role, copy};
    return true;
}

static void end_conversation(conversation *c) {
    for (size_t i = 0; i < c->count; i++) free((char *)c->messages[i].content);
    free(c->messages);
}

typedef struct ids {
    int32_t *data;
    size_t count;
} ids;

static lls_status tokenize(const lls_model *model, const conversation *chat, const char *text, size_t bytes,
                           const lls_tokenize_options *how, ids *out) {
    size_t capacity = 0;
    for (;;) { // first to size the buffer, then to fill it
        lls_status status =
            chat ? lls_chat_tokenize(model, chat->messages, chat->count, out->data, capacity, &out->count)
                 : lls_tokenize(model, text, bytes, how, out->data, capacity, &out->count);
        if (status || out->data) return status;
        capacity = out->count;
        out->data = malloc(sizeof *out->data * (capacity + 1));
        if (!out->data) return LLS_ERR_MEMORY;
    }
}

// ---- One answer ----------------------------------------------------------------------------------------

typedef struct answer {
    FILE *copy;   // collects the text: for JSON, and for the next turn of a conversation
    bool stream;  // show pieces as they come
    bool failed;  // standard output took no more
} answer;

static bool on_text(const char *text, size_t bytes, void *user) {
    answer *a = user;
    if (a->copy) fwrite(text, 1, bytes, a->copy);
    if (a->stream && (fwrite(text, 1, bytes, stdout) != bytes || fflush(stdout))) a->failed = true;
    return !interrupted && !a->failed;
}

static lls_status run(lls_engine *engine, const flags *f, const ids *prompt, answer *a, lls_generate_result *result) {
    lls_request request = LLS_REQUEST_INIT;
    request.prompt = prompt->data, request.prompt_tokens = prompt->count;
    request.max_new_tokens = f->max_new_tokens;
    request.ignore_stop_tokens = f->ignore_eos;
    request.sampling = f->sampling;
    return lls_generate(engine, &request, on_text, a, result);
}

static const char *finish_name(lls_finish finish) {
    switch (finish) {
    case LLS_FINISH_STOP: return "stop";
    case LLS_FINISH_LENGTH: return "length";
    case LLS_FINISH_CONTEXT_FULL: return "context_full";
    case LLS_FINISH_CANCELLED: return "cancelled";
    case LLS_FINISH_NUMERIC: return "numeric";
    default: return "running";
    }
}

// What a finish other than the usual ones means for the exit code.
static int finish_code(const answer *a, lls_finish finish) {
    if (a->failed) return cli_error(CLI_FAILED, "standard output: %s", strerror(errno));
    if (finish == LLS_FINISH_NUMERIC) return cli_error(CLI_FILE, "the model computes no numbers: its file is damaged");
    if (finish == LLS_FINISH_CONTEXT_FULL) {
        fprintf(stderr, "llmspeed: the context is full (--context makes it larger)\n");
    }
    return finish == LLS_FINISH_CANCELLED ? CLI_INTERRUPTED : CLI_OK;
}

// ---- A single prompt -------------------------------------------------------------------------------------

static int generate_once(const lls_model *model, lls_engine *engine, const flags *f, const char *text, size_t bytes,
                         double load_seconds) {
    conversation chat = {0};
    ids prompt = {0};
    lls_tokenize_options how = LLS_TOKENIZE_OPTIONS_INIT;
    how.add_special = true, how.parse_special = f->raw_special;
    lls_status status = LLS_OK;
    if (f->chat && strlen(text) != bytes) {
        return cli_error(CLI_FILE, "the prompt holds a NUL byte at %zu, which a chat message cannot", strlen(text));
    }
    bool said = !f->chat || ((!f->system || say(&chat, "system", f->system)) && say(&chat, "user", text));
    if (!said) status = LLS_ERR_MEMORY;
    if (!status) status = tokenize(model, f->chat ? &chat : NULL, text, bytes, &how, &prompt);

    char *copy = NULL;
    size_t copied = 0;
    answer a = {.stream = !f->json, .copy = f->json ? open_memstream(&copy, &copied) : NULL};
    lls_generate_result result = {0};
    watch_interrupts();
    if (!status) status = run(engine, f, &prompt, &a, &result);
    if (a.copy) fclose(a.copy);
    int code;
    if (status) {
        code = cli_fail(status);
    } else {
        if (a.stream) putchar('\n'), fflush(stdout);
        code = finish_code(&a, result.finish);
        cli_speed speed = cli_speed_of(engine, &f->engine, load_seconds);
        if (f->json) {
            json_t *written = cli_json_string(copy ? copy : "", copied);
            json_t *object = json_pack("{s:o, s:s, s:I, s:I}", "text", written, "finish", finish_name(result.finish),
                                       "prompt_tokens", (json_int_t)result.prompt_tokens, "new_tokens",
                                       (json_int_t)result.new_tokens);
            json_t *figures = cli_speed_json(&speed);
            json_object_update(object, figures);
            json_decref(figures);
            int printed = cli_print_json(object, NULL);
            if (!code) code = printed;
        } else {
            cli_speed_print(&speed);
        }
    }
    free(copy);
    free(prompt.data);
    end_conversation(&chat);
    return code;
}

// ---- A conversation on a terminal --------------------------------------------------------------------------

static int converse(const lls_model *model, lls_engine *engine, const flags *f, double load_seconds) {
    conversation chat = {0};
    char *line = NULL;
    size_t capacity = 0;
    int code = CLI_OK;
    fprintf(stderr, "Ctrl-C stops an answer, Ctrl-D ends the conversation.\n");
    if (f->system && !say(&chat, "system", f->system)) code = cli_error(CLI_RESOURCE, "no memory");
    while (!code) {
        signal(SIGINT, SIG_DFL);
        fputs("\n> ", stderr);
        ssize_t bytes = getline(&line, &capacity, stdin);
        if (bytes < 0) break;
        if (bytes > 0 && line[bytes - 1] == '\n') line[bytes - 1] = '\0';
        if (line[0] == '\0') continue;
        char *copy = NULL;
        size_t copied = 0;
        ids prompt = {0};
        lls_generate_result result = {0};
        answer a = {.stream = true, .copy = open_memstream(&copy, &copied)};
        watch_interrupts();
        lls_status status = a.copy && say(&chat, "user", line) ? LLS_OK : LLS_ERR_MEMORY;
        if (!status) status = tokenize(model, &chat, NULL, 0, NULL, &prompt);
        if (!status) status = run(engine, f, &prompt, &a, &result);
        if (a.copy) fclose(a.copy);
        putchar('\n');
        if (status) code = cli_fail(status);
        else code = finish_code(&a, result.finish);
        if (code == CLI_INTERRUPTED) code = CLI_OK; // the answer ended, not the conversation
        if (!code && !say(&chat, "assistant", copy ? copy : "")) code = cli_error(CLI_RESOURCE, "no memory");
        free(copy);
        free(prompt.data);
    }
    fputc('\n', stderr);
    cli_speed speed = cli_speed_of(engine, &f->engine, load_seconds);
    cli_speed_print(&speed);
    free(line);
    end_conversation(&chat);
    return code;
}

int verb_generate(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_engine_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        options, parse, NULL,
        "Continues a prompt, or answers in a chat. The text goes to standard output as it comes, the figures to "
        "standard error.\vExamples:\n"
        "  llmspeed generate -m model.gguf -p \"The capital of France is\" -n 16\n"
        "  llmspeed generate -m model.gguf --chat --system \"Be brief.\"\n"
        "  llmspeed generate -m model.gguf --chat --temp 0.7 --top-p 0.9 --json <question.txt\n",
        children, NULL, NULL};
    flags f = {.max_new_tokens = -1};
    cli_parse(&argp, argc, argv, &f);
    bool converses = f.chat && !f.prompt && !f.json && isatty(STDIN_FILENO);
    char *input = NULL;
    const char *text = f.prompt;
    size_t bytes = text ? strlen(text) : 0;
    if (!converses && (!text || strcmp(text, "-") == 0)) {
        if (!(text = input = cli_read_all(stdin, &bytes))) {
            return cli_error(CLI_FILE, "standard input: %s", strerror(errno));
        }
        if (bytes > 0 && input[bytes - 1] == '\n') input[--bytes] = '\0';
    }
    lls_model *model;
    lls_engine *engine;
    double start = cli_seconds();
    int code = cli_engine_open(&f.engine, &model, &engine);
    double load_seconds = cli_seconds() - start;
    if (!code) {
        code = converses ? converse(model, engine, &f, load_seconds)
                         : generate_once(model, engine, &f, text, bytes, load_seconds);
        lls_engine_destroy(engine);
        lls_model_free(model);
    }
    free(input);
    return code;
}
