/* llmspeed ladder: the rungs of an op side by side, from the naive one up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "common.h"
#include "op_results.h"
#include "verbs.h"

enum { KEY_DEVICE = 0x100, KEY_DTYPE, KEY_SECONDS, KEY_NO_PEERS, MAX_RUNGS = 32 };

typedef struct flags {
    bench_options bench;
    const char *json_path;
    op_results results;
    bench_row rungs[MAX_RUNGS]; // of the case that runs
    int32_t num_rungs;
    char name[96], *why[MAX_RUNGS]; // copies: a row's own end with the call
} flags;

static const struct argp_option options[] = {
    {"case", 'c', "TEXT", 0, "at cases whose name contains TEXT, in place of the op's own", 0},
    {"dtype", KEY_DTYPE, "DTYPE", 0, "at cases of this dtype", 0},
    {"device", KEY_DEVICE, "DEVICE", 0, "auto (default), cpu, cuda or cuda:N", 0},
    {"threads", 't', "N", 0, "CPU threads; 0 (default): one a core", 0},
    {"seconds", KEY_SECONDS, "S", 0, "time of a rung's samples (default 0.2); slow ones get three, or one", 0},
    {"no-peers", KEY_NO_PEERS, NULL, 0, "do not time the libraries that the op is compared with", 0},
    {"json", 'j', "FILE", 0, "write the results to FILE too, like `bench op'", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state) {
    bench_options *b = &((flags *)state->input)->bench;
    switch (key) {
    case 'c': b->match = arg; break;
    case 't': b->threads = (int32_t)cli_int(state, "-t", arg, 0, 1024); break;
    case 'j': ((flags *)state->input)->json_path = arg; break;
    case KEY_DTYPE: b->dtype = arg; break;
    case KEY_NO_PEERS: b->no_peers = true; break;
    case KEY_DEVICE: b->device = cli_device(state, arg); break;
    case KEY_SECONDS: b->seconds = cli_positive(state, "--seconds", arg); break;
    case ARGP_KEY_ARG:
        if (b->op) argp_error(state, "a second op \"%s\"", arg);
        b->op = arg;
        break;
    case ARGP_KEY_END:
        if (!b->op) argp_error(state, "no op given");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

// ---- Printing a case ------------------------------------------------------------------------------

static double tflops(const bench_row *r) {
    return 1e-12 * r->record.flops / r->median;
}

static const bench_row *lowest_timed(const flags *f) {
    for (int32_t i = f->num_rungs - 1; i >= 0; i--) {
        if (f->rungs[i].median > 0) return &f->rungs[i];
    }
    return NULL;
}

static const bench_row *chosen(const flags *f) {
    for (int32_t i = 0; i < f->num_rungs; i++) {
        if (f->rungs[i].chosen) return &f->rungs[i];
    }
    return NULL;
}

static void print_rung(const flags *f, const bench_row *r, const bench_row *lowest) {
    printf("%c%-21s ", r->chosen ? '*' : ' ', r->variant);
    if (r->median > 0) {
        double share = op_results_judge(&f->results, r).floor_share;
        printf("%11.2f %9.3f %9.1f %5.1f %% %8.1fx  ", 1e6 * r->median, tflops(r), 1e-9 * r->record.bytes / r->median,
               100 * share, lowest->median / r->median);
    } else {
        printf("%11s %9s %9s %7s %9s  ", "-", "-", "-", "-", "-");
    }
    printf("%s\n", r->why ? r->why : r->idea ? r->idea : "");
}

// What other libraries reach, as measured beside the rung that a call takes.
static void print_peers(const flags *f, const bench_row *best, const bench_row *lowest) {
    for (int32_t i = 0; best && i < best->num_peers; i++) {
        bench_row peer = *best;
        peer.median = best->peers[i].median;
        if (peer.median == 0) continue;
        peer.variant = best->peers[i].name, peer.chosen = false, peer.why = NULL;
        peer.idea = "for comparison: another library";
        print_rung(f, &peer, lowest);
    }
}

// Rows came in order of preference; a ladder is read from the bottom.
static void finish_case(flags *f) {
    if (f->num_rungs == 0) return;
    const bench_row *first = &f->rungs[0], *lowest = lowest_timed(f);
    printf("\n%s, %s", first->op, f->name);
    for (int32_t i = 0; i < first->num_params; i++) {
        printf("%s%s %lld", i ? ", " : ": ", first->param_names[i], (long long)first->param_values[i]);
    }
    printf(", %s\n%-22s %11s %9s %9s %7s %9s  %s\n", first->dtype, "rung", "us", "TFLOP/s", "GB/s", "ceiling", "speed",
           "idea");
    for (int32_t i = f->num_rungs - 1; i >= 0; i--) {
        print_rung(f, &f->rungs[i], lowest);
        free(f->why[i]);
        f->why[i] = NULL;
    }
    print_peers(f, chosen(f), lowest);
    fflush(stdout);
    f->num_rungs = 0;
}

static void on_row(const bench_row *r, void *user) {
    flags *f = user;
    if (f->num_rungs > 0 && r->variant == f->rungs[0].variant) finish_case(f); // the first rung again: the next case
    op_results_add(&f->results, r);
    if (f->num_rungs == MAX_RUNGS) return;
    snprintf(f->name, sizeof f->name, "%s", r->name);
    bench_row *rung = &f->rungs[f->num_rungs];
    *rung = *r;
    rung->why = f->why[f->num_rungs++] = r->why ? strdup(r->why) : NULL;
}

// ---- The verb ---------------------------------------------------------------------------------------

// The op's own cases, unless others are asked for. False for an unknown op.
static bool choose_cases(bench_options *b) {
    for (int32_t i = 0; i < bench_num_suites; i++) {
        const bench_suite *suite = bench_suites[i];
        if (strcmp(suite->op, b->op) != 0) continue;
        const bench_fit *fit = b->device.type == LLS_CUDA ? &suite->ladder_cuda : &suite->ladder_cpu;
        if (!b->match && !b->dtype && fit->match) b->dtype = lls_dtype_name(fit->dtype);
        if (!b->match) b->match = fit->match;
        return true;
    }
    return false;
}

int verb_ladder(int argc, char **argv) {
    static const struct argp argp = {
        options,
        parse,
        "OP",
        "Times the rungs of an op at one case, from the naive one up: what each adds, and how near it comes to what "
        "this "
        "machine can do. \"ceiling\" is the time that the bytes or the operations need at the least, as a share of the "
        "time taken; \"speed\" is over the lowest rung's; \"*\" marks what a call takes by itself."
        "\vExamples:\n"
        "  llmspeed ladder gemm\n"
        "  llmspeed ladder gemm --case \"square, 8192\" --dtype f16\n"
        "  llmspeed ladder attn_prefill --device cpu --json ladder.json\n",
        NULL,
        NULL,
        NULL};
    flags f = {.bench = {.seconds = 0.2, .on_row = on_row}};
    cli_parse(&argp, argc, argv, &f);
    f.bench.device = cli_resolve_device(f.bench.device);
    f.bench.user = &f;
    if (!choose_cases(&f.bench))
        return cli_error(CLI_ARGUMENT, "op is \"%s\", no such op (llmspeed info lists them)", f.bench.op);
    lls_status status = op_results_open(&f.results, f.bench.device, f.bench.threads);
    if (status) return cli_fail(status);
    status = bench_run(&f.bench);
    finish_case(&f);
    int code = status ? cli_fail(status) : cli_finish_output();
    if (!code && f.json_path) code = cli_print_json(op_results_json(&f.results), f.json_path);
    op_results_close(&f.results);
    if (!code && f.results.failed) code = cli_error(CLI_FAILED, "%d rungs failed", f.results.failed);
    return code;
}
