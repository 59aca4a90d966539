/* llmspeed tokenize: text to ids, ids to text. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "verbs.h"

enum { KEY_SPECIAL = 0x100, KEY_NO_BOS, KEY_IDS, KEY_DECODE };

typedef struct flags {
    const char *model, *text, *decode;
    bool special, plain, ids, json;
} flags;

static const struct argp_option options[] = {
    {"model", 'm', "FILE", 0, "model file (GGUF)", 0},
    {"prompt", 'p', "TEXT", 0, "the text; standard input when absent or \"-\"", 0},
    {"special", KEY_SPECIAL, NULL, 0, "read control tokens such as <|im_end|> in the text as such", 0},
    {"no-bos", KEY_NO_BOS, NULL, 0, "leave out the tokens that the model puts around a text", 0},
    {"ids", KEY_IDS, NULL, 0, "ids alone, on one line", 0},
    {"json", 'j', NULL, 0, "one JSON object", 0},
    {"decode", KEY_DECODE, "IDS", 0, "the other way: ids, separated by commas or spaces, to text", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state) {
    flags *f = state->input;
    switch (key) {
    case 'm': f->model = arg; break;
    case 'p': f->text = arg; break;
    case 'j': f->json = true; break;
    case KEY_SPECIAL: f->special = true; break;
    case KEY_NO_BOS: f->plain = true; break;
    case KEY_IDS: f->ids = true; break;
    case KEY_DECODE: f->decode = arg; break;
    case ARGP_KEY_ARG: argp_error(state, "unexpected argument \"%s\": the text belongs after -p", arg); break;
    case ARGP_KEY_END:
        if (!f->model) argp_error(state, "no model: give one with -m FILE");
        if (f->decode && f->text) argp_error(state, "--decode and -p are given, must be one of them");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static int print_ids(const lls_model *model, const flags *f, const int32_t *ids, size_t count) {
    json_t *id_list = json_array(), *pieces = json_array();
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        const char *piece = lls_token_bytes(model, ids[i], &bytes);
        if (f->json) {
            json_array_append_new(id_list, json_integer(ids[i]));
            json_array_append_new(pieces, cli_json_string(piece ? piece : "", bytes));
        } else if (f->ids) {
            printf("%s%d", i ? " " : "", ids[i]);
        } else {
            char *shown = cli_escape(piece ? piece : "", bytes, 200);
            printf("%8d  \"%s\"\n", ids[i], shown ? shown : "");
            free(shown);
        }
    }
    json_t *result = json_pack("{s:I, s:o, s:o}", "count", (json_int_t)count, "ids", id_list, "pieces", pieces);
    if (f->json) return cli_print_json(result, NULL);
    json_decref(result);
    if (f->ids) putchar('\n');
    return cli_finish_output();
}

static int encode(const lls_model *model, const flags *f) {
    char *input = NULL;
    const char *text = f->text;
    size_t bytes = text ? strlen(text) : 0, count;
    if (!text || strcmp(text, "-") == 0) {
        if (!(text = input = cli_read_all(stdin, &bytes))) {
            return cli_error(CLI_FILE, "standard input: %s", strerror(errno));
        }
    }
    lls_tokenize_options how = LLS_TOKENIZE_OPTIONS_INIT;
    how.add_special = !f->plain, how.parse_special = f->special;
    int32_t *ids = NULL;
    lls_status status = lls_tokenize(model, text, bytes, &how, NULL, 0, &count);
    if (!status && (ids = malloc(sizeof *ids * (count + 1)))) {
        status = lls_tokenize(model, text, bytes, &how, ids, count, &count);
    }
    int code = status ? cli_fail(status) : ids ? print_ids(model, f, ids, count) : cli_error(CLI_RESOURCE, "no memory");
    free(ids);
    free(input);
    return code;
}

static int decode(const lls_model *model, const flags *f) {
    char *text = NULL;
    size_t used;
    FILE *out = open_memstream(&text, &used);
    if (!out) return cli_error(CLI_RESOURCE, "no memory");
    int code = CLI_OK;
    for (const char *p = f->decode; *p && !code;) {
        char *end;
        errno = 0;
        long id = strtol(p, &end, 10);
        size_t bytes;
        if (end == p || errno || !strchr(", ", *end)) {
            code = cli_error(CLI_ARGUMENT, "--decode: \"%.40s\" is no list of ids", p);
            break;
        }
        const char *piece = id < 0 || id > INT32_MAX ? NULL : lls_token_bytes(model, (int32_t)id, &bytes);
        if (!piece) {
            code = cli_error(CLI_ARGUMENT, "--decode: id is %ld, must be 0 to %d", id,
                             lls_model_describe(model).vocab_size - 1);
            break;
        }
        fwrite(piece, 1, bytes, out);
        p = end + strspn(end, ", ");
    }
    fclose(out);
    if (!code && f->json) code = cli_print_json(json_pack("{s:o}", "text", cli_json_string(text, used)), NULL);
    else if (!code) {
        fwrite(text, 1, used, stdout);
        putchar('\n');
        code = cli_finish_output();
    }
    free(text);
    return code;
}

int verb_tokenize(int argc, char **argv) {
    static const struct argp argp = {
        options, parse, NULL,
        "Turns text into a model's token ids and back.\vExamples:\n"
        "  llmspeed tokenize -m model.gguf -p \"Hello, world\"\n"
        "  llmspeed tokenize -m model.gguf --ids <book.txt | wc -w\n"
        "  llmspeed tokenize -m model.gguf --decode 19556,28,905\n",
        NULL, NULL, NULL};
    flags f = {0};
    cli_parse(&argp, argc, argv, &f);
    lls_model *model;
    lls_status status = lls_model_load(f.model, NULL, &model);
    if (status) return cli_fail(status);
    int code = f.decode ? decode(model, &f) : encode(model, &f);
    lls_model_free(model);
    return code;
}
