/* llmspeed bench op: every implementation of every op, checked and timed. */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "common.h"
#include "op_results.h"
#include "verbs.h"

enum { KEY_DEVICE = 0x100, KEY_DTYPE, KEY_CHOSEN, KEY_SECONDS, KEY_SUSTAINED, KEY_NO_PEERS, KEY_PROFILE };

typedef struct flags {
    bench_options bench;
    const char *json_path;
    bool profile;
    op_results results;
    const char *last_op;
} flags;

static const struct argp_option options[] = {
    {"op", 'o', "OP", 0, "this op alone", 0},
    {"variant", 'v', "NAME", 0, "this implementation alone (\"ref\" is timed on request only)", 0},
    {"chosen", KEY_CHOSEN, NULL, 0, "of each case, the implementation alone that a call takes by itself", 0},
    {"case", 'c', "TEXT", 0, "cases whose name contains TEXT", 0},
    {"dtype", KEY_DTYPE, "DTYPE", 0, "cases of this dtype alone", 0},
    {"device", KEY_DEVICE, "DEVICE", 0, "auto (default), cpu, cuda or cuda:N", 0},
    {"threads", 't', "N", 0, "CPU threads; 0 (default): one a core", 0},
    {"seconds", KEY_SECONDS, "S", 0, "time of a row's samples, and of each peer's (default 0.2)", 0},
    {"sustained", KEY_SUSTAINED, "S", 0, "then S seconds of calls without a rest, each peer the same", 0},
    {"no-peers", KEY_NO_PEERS, NULL, 0, "do not time the libraries that an op is compared with", 0},
    {"profile", KEY_PROFILE, NULL, 0, "what limits each row: registers, occupancy, share of the floor, bound", 0},
    {"json", 'j', "FILE", 0, "write the results to FILE too", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state) {
    bench_options *b = &((flags *)state->input)->bench;
    switch (key) {
    case 'o': b->op = arg; break;
    case 'v': b->variant = arg; break;
    case 'c': b->match = arg; break;
    case 't': b->threads = (int32_t)cli_int(state, "-t", arg, 0, 1024); break;
    case 'j': ((flags *)state->input)->json_path = arg; break;
    case KEY_CHOSEN: b->only_chosen = true; break;
    case KEY_DTYPE: b->dtype = arg; break;
    case KEY_NO_PEERS: b->no_peers = true; break;
    case KEY_PROFILE: ((flags *)state->input)->profile = true; break;
    case KEY_DEVICE: b->device = cli_device(state, arg); break;
    case KEY_SECONDS: b->seconds = cli_positive(state, "--seconds", arg); break;
    case KEY_SUSTAINED: b->sustained = cli_positive(state, "--sustained", arg); break;
    case ARGP_KEY_ARG: argp_error(state, "unexpected argument \"%s\"", arg); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static void print_heading(const flags *f, const bench_row *r) {
    printf("\n%-44s %-7s %-22s %10s %10s %8s %9s", r->op, "dtype", "variant", "us", "p95", "GB/s", "GFLOP/s");
    if (f->profile) printf(" %5s %5s", "regs", "occ");
    printf(" %6s", "floor");
    if (r->num_peers > 0) printf(" %6s", "ratio");
    if (f->bench.sustained > 0) printf(" %10s", "sustained");
    if (f->bench.sustained > 0 && r->num_peers > 0) printf(" %6s", "ratio");
    puts(f->profile ? " bound" : "");
}

static void print_ratio(double ratio) {
    if (ratio > 0) printf(" %6.2f", ratio);
    else printf(" %6s", "-");
}

static void print_figures(const flags *f, const bench_row *r) {
    const lls_record *c = &r->record;
    op_verdict v = op_results_judge(&f->results, r);
    double share = f->profile ? v.floor_share : v.memory_share;
    printf("%10.2f %10.2f %8.1f %9.1f", 1e6 * r->median, 1e6 * r->p95, 1e-9 * c->bytes / r->median,
           1e-9 * c->flops / r->median);
    if (f->profile && c->kernel) printf(" %5d %3.0f %%", c->registers, 100 * c->occupancy);
    else if (f->profile) printf(" %5s %5s", "-", "-");
    if (share > 0) printf(" %4.0f %%", 100 * share);
    else if (f->profile) printf(" %6s", "-");
    if (r->num_peers > 0) print_ratio(r->ratio);
    if (f->bench.sustained > 0) printf(" %10.2f", 1e6 * r->sustained);
    if (f->bench.sustained > 0 && r->num_peers > 0) print_ratio(r->ratio_sustained);
    if (f->profile) printf(" %s", lls_bound_name(v.bound));
    if (r->samples == 1) printf("  (timed once)");
    putchar('\n');
}

static void on_row(const bench_row *r, void *user) {
    flags *f = user;
    if (!f->last_op || strcmp(f->last_op, r->op) != 0) {
        print_heading(f, r);
        f->last_op = r->op;
    }
    char name[96];
    int used = snprintf(name, sizeof name, "%s", r->name);
    for (int32_t i = 0; i < r->num_params && used < (int)sizeof name; i++) {
        used +=
            snprintf(name + used, sizeof name - (size_t)used, "%s%lld", i ? "x" : " ", (long long)r->param_values[i]);
    }
    printf("%-44s %-7s %c%-21s ", name, r->dtype, r->chosen ? '*' : ' ', r->variant);
    if (r->why) {
        printf("%s\n", r->why);
    } else {
        print_figures(f, r);
    }
    fflush(stdout);
    op_results_add(&f->results, r);
}

int verb_bench_op(int argc, char **argv) {
    static const struct argp argp = {
        options, parse, NULL,
        "Times every implementation of every op on this machine. Each is checked against the fp64 oracle first. "
        "Buffers rotate through more memory than the cache holds. \"*\" marks what a call takes by itself; \"floor\" "
        "is the time that the bytes alone need, as a share of the time taken. With --profile it is that of bytes or "
        "operations, whichever is longer, and \"bound\" says which; \"latency\" where the floor is below a quarter. "
        "\"ratio\" is the time of the best other library over ours: above 1 we are faster."
        "\vExamples:\n"
        "  llmspeed bench op --op linear --case decode\n"
        "  llmspeed bench op --op gemm --profile\n"
        "  llmspeed bench op --op gemm --chosen --case square --sustained 1\n"
        "  llmspeed bench op --device cuda --json results.json\n",
        NULL, NULL, NULL};
    flags f = {.bench = {.seconds = 0.2, .on_row = on_row}};
    cli_parse(&argp, argc, argv, &f);
    f.bench.device = cli_resolve_device(f.bench.device);
    f.bench.user = &f;
    lls_status status = op_results_open(&f.results, f.bench.device, f.bench.threads);
    if (status) return cli_fail(status);
    const lls_ceilings *c = &f.results.ceilings;
    printf("%.1f GB/s: what this %s\n", 1e-9 * c->read_bytes_per_s,
           f.bench.device.type == LLS_CUDA ? "GPU copies at, reads and writes counted" : "machine reads at");
    if (f.profile) {
        printf("%.0f GFLOP/s of fp32, %.0f of f16 and bf16, %.0f GOP/s of int8: what it computes at\n",
               1e-9 * c->f32_flops, 1e-9 * c->f16_flops, 1e-9 * c->i8_ops);
    }
    status = bench_run(&f.bench);
    int code = status ? cli_fail(status) : cli_finish_output();
    if (!code && f.json_path) code = cli_print_json(op_results_json(&f.results), f.json_path);
    op_results_close(&f.results);
    if (!code && f.results.failed) code = cli_error(CLI_FAILED, "%d rows failed", f.results.failed);
    return code;
}
