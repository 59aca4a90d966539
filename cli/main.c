/* llmspeed: finds the verb and hands it the rest of the command line. */
#include <stdio.h>
#include <string.h>

#include "common.h"
#include "verbs.h"

typedef struct verb {
    const char *name, *full_name, *summary;
    int (*run)(int argc, char **argv);
} verb;

static const verb verbs[] = {
    {"generate", "llmspeed generate", "continue a prompt or chat", verb_generate},
    {"bench", "llmspeed bench", "measure ops (bench op) or a model (bench model)", verb_bench},
    {"ladder", "llmspeed ladder", "compare the rungs of an op, from the naive one up", verb_ladder},
    {"tune", "llmspeed tune", "find the fastest configuration of matrix products", verb_tune},
    {"info", "llmspeed info", "show this build, this machine, and every implementation", verb_info},
    {"inspect", "llmspeed inspect", "show what a model file holds", verb_inspect},
    {"tokenize", "llmspeed tokenize", "turn text into token ids and back", verb_tokenize},
};
static const verb bench_verbs[] = {
    {"op", "llmspeed bench op", "time every implementation of every op", verb_bench_op},
    {"model", "llmspeed bench model", "time prefill and decode of a model", verb_bench_model},
};

// What argp prints for --help; filled in by main and verb_bench.
typedef struct menu {
    const char *doc; // ends with "Verbs:\n"
    const verb *verbs;
    int count;
    int chosen; // index into argv of the verb
} menu;

static char *list_verbs(int key, const char *text, void *input) {
    if (key != ARGP_KEY_HELP_POST_DOC) return (char *)text;
    const menu *m = input;
    char *out = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&out, &bytes);
    if (!stream) return (char *)text;
    fputs("Verbs:\n", stream);
    for (int i = 0; i < m->count; i++) fprintf(stream, "  %-10s %s\n", m->verbs[i].name, m->verbs[i].summary);
    fprintf(stream, "\n%s", text);
    fclose(stream);
    return out; // argp frees what differs from `text`
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    menu *m = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_ARG:
        m->chosen = state->next - 1;
        state->next = state->argc; // the rest belongs to the verb
        return 0;
    case ARGP_KEY_NO_ARGS: argp_usage(state); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int choose(menu *m, int argc, char **argv) {
    const struct argp argp = {NULL, parse, "VERB [OPTION...]", m->doc, NULL, list_verbs, NULL};
    argp_err_exit_status = CLI_USAGE;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, m);
    const char *name = argv[m->chosen];
    for (int i = 0; i < m->count; i++) {
        if (strcmp(name, m->verbs[i].name) != 0) continue;
        argv[m->chosen] = (char *)m->verbs[i].full_name; // the name in messages and usage lines
        return m->verbs[i].run(argc - m->chosen, argv + m->chosen);
    }
    fprintf(stderr, "llmspeed: verb is \"%s\", must be one of:", name);
    for (int i = 0; i < m->count; i++) fprintf(stderr, " %s", m->verbs[i].name);
    fprintf(stderr, "\nTry `%s --help'.\n", argv[0]);
    return CLI_USAGE;
}

int verb_bench(int argc, char **argv) {
    menu m = {
        .doc = "Measures this library on this machine."
               "\vExamples:\n"
               "  llmspeed bench op --op linear\n"
               "  llmspeed bench model -m model.gguf -p 512 -n 128\n",
        .verbs = bench_verbs,
        .count = sizeof bench_verbs / sizeof *bench_verbs,
    };
    return choose(&m, argc, argv);
}

static void print_version(FILE *stream, struct argp_state *state) {
    (void)state;
    lls_build_info build = lls_build();
    fprintf(stream, "llmspeed %s (CUDA %s, CPU level %s)\n", build.version, build.cuda, build.cpu_level);
}

int main(int argc, char **argv) {
    argp_program_version_hook = print_version;
    menu m = {
        .doc = "Runs and measures large language models on a CPU or an NVIDIA GPU."
               "\vExamples:\n"
               "  llmspeed generate -m model.gguf --chat -p \"Why is the sky blue?\"\n"
               "  llmspeed bench model -m model.gguf\n"
               "  llmspeed ladder gemm\n"
               "  llmspeed info\n"
               "`llmspeed VERB --help' says more. Exit codes: 0 done, 1 failed, 2 usage, 3 value out of range, "
               "4 not supported, 5 device, 6 memory or context, 7 file or text, 8 internal, 130 interrupted.\n",
        .verbs = verbs,
        .count = sizeof verbs / sizeof *verbs,
    };
    argv[0] = "llmspeed";
    return choose(&m, argc, argv);
}
