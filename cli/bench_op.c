/* llmspeed bench op: every implementation of every op, checked and timed. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"
#include "bench_sources.h"
#include "common.h"
#include "verbs.h"

enum { KEY_DEVICE = 0x100, KEY_DTYPE, KEY_CHOSEN, KEY_SECONDS, KEY_SUSTAINED, KEY_NO_PEERS, KEY_PROFILE };

typedef struct flags {
    bench_options bench;
    const char *json_path;
    bool profile;
    lls_ceilings ceilings;
    json_t *rows, *peer_versions;
    char peer_failure[256]; // the last one printed
    const char *last_op;
    int failed;
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

static double positive(struct argp_state *state, const char *option, const char *arg) {
    double value = cli_real(state, option, arg);
    if (!(value > 0)) argp_error(state, "%s is \"%s\", must be above 0", option, arg);
    return value;
}

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
    case KEY_SECONDS: b->seconds = positive(state, "--seconds", arg); break;
    case KEY_SUSTAINED: b->sustained = positive(state, "--sustained", arg); break;
    case ARGP_KEY_ARG: argp_error(state, "unexpected argument \"%s\"", arg); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

// How a timed row compares with the machine.
typedef struct verdict {
    double memory_share; // time that the bytes alone need, over the time taken
    double floor_share;  // the same for bytes or operations, whichever takes longer
    lls_bound bound;
} verdict;

static verdict judge(const flags *f, const bench_row *r) {
    const lls_record *c = &r->record;
    verdict v = {0};
    if (f->ceilings.read_bytes_per_s > 0) v.memory_share = c->bytes / r->median / f->ceilings.read_bytes_per_s;
    v.bound = lls_classify(&f->ceilings, c->math, c->flops, c->bytes, r->median, &v.floor_share);
    return v;
}

// The times of the peers in microseconds, and why the others have none.
static void add_peers(json_t *row, const bench_row *r) {
    json_t *times = json_object(), *sustained = json_object(), *failures = json_object();
    for (int32_t i = 0; i < r->num_peers; i++) {
        const bench_peer_time *p = &r->peers[i];
        if (p->median > 0) json_object_set_new(times, p->name, json_real(1e6 * p->median));
        if (p->sustained > 0) json_object_set_new(sustained, p->name, json_real(1e6 * p->sustained));
        if (p->why) json_object_set_new(failures, p->name, json_string(p->why));
    }
    if (json_object_size(times)) json_object_set(row, "peers", times);
    if (json_object_size(sustained)) json_object_set(row, "peers_sustained", sustained);
    if (json_object_size(failures)) json_object_set(row, "peers_failed", failures);
    json_decref(times), json_decref(sustained), json_decref(failures);
    if (r->ratio > 0) json_object_set_new(row, "ratio", json_real(r->ratio));
    if (r->ratio_sustained > 0) json_object_set_new(row, "ratio_sustained", json_real(r->ratio_sustained));
}

static json_t *row_json(const flags *f, const bench_row *r) {
    json_t *params = json_object();
    for (int32_t i = 0; i < r->num_params; i++) {
        json_object_set_new(params, r->param_names[i], json_integer(r->param_values[i]));
    }
    json_t *row = json_pack("{s:s, s:s, s:o, s:s, s:s, s:b}", "op", r->op, "case", r->name, "params", params, "dtype",
                            r->dtype, "variant", r->variant, "chosen", r->chosen);
    if (r->why) {
        json_object_set_new(row, r->failed ? "failed" : "refused", json_string(r->why));
        return row;
    }
    const lls_record *c = &r->record;
    verdict v = judge(f, r);
    json_object_set_new(row, "us", json_real(1e6 * r->median));
    json_object_set_new(row, "p95_us", json_real(1e6 * r->p95));
    json_object_set_new(row, "best_us", json_real(1e6 * r->best));
    json_object_set_new(row, "samples", json_integer(r->samples));
    if (r->sustained > 0) json_object_set_new(row, "sustained_us", json_real(1e6 * r->sustained));
    add_peers(row, r);
    json_object_set_new(row, "tflops", json_real(1e-12 * c->flops / r->median));
    json_object_set_new(row, "tbps", json_real(1e-12 * c->bytes / r->median));
    json_object_set_new(row, "error", json_real(r->error));
    if (v.memory_share > 0) json_object_set_new(row, "roof_share", json_real(v.memory_share));
    json_object_set_new(row, "floor_share", json_real(v.floor_share));
    json_object_set_new(row, "bound", json_string(lls_bound_name(v.bound)));
    if (c->kernel) {
        json_object_set_new(row, "kernel", json_string(c->kernel));
        json_object_set_new(row, "registers", json_integer(c->registers));
        json_object_set_new(row, "occupancy", json_real(c->occupancy));
    }
    return row;
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

// Versions for the result; failures once, as the next rows have the same to say.
static void note_peers(flags *f, const bench_row *r) {
    for (int32_t i = 0; i < r->num_peers; i++) {
        const bench_peer_time *p = &r->peers[i];
        json_object_set_new(f->peer_versions, p->name, p->version ? json_string(p->version) : json_null());
        if (!p->why || strcmp(p->why, f->peer_failure) == 0) continue;
        snprintf(f->peer_failure, sizeof f->peer_failure, "%s", p->why);
        fprintf(stderr, "llmspeed: no time of %s: %s\n", p->name, p->why);
    }
}

static void print_figures(const flags *f, const bench_row *r) {
    const lls_record *c = &r->record;
    verdict v = judge(f, r);
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
        f->failed += r->failed;
    } else {
        print_figures(f, r);
    }
    fflush(stdout);
    note_peers(f, r);
    json_array_append_new(f->rows, row_json(f, r));
}

static json_t *result(const flags *f) {
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    lls_build_info build = lls_build();
    lls_cuda_info gpu;
    bool cuda = f->bench.device.type == LLS_CUDA && !lls_cuda_device_info(f->bench.device.index, &gpu);
    json_t *hashes = json_object();
    for (size_t i = 0; i < sizeof bench_sources / sizeof *bench_sources; i++) {
        json_object_set_new(hashes, bench_sources[i].op, json_string(bench_sources[i].sha256));
    }
    json_t *ceilings = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", cuda ? "copy_tbps" : "read_tbps",
                                 1e-12 * f->ceilings.read_bytes_per_s, "f32_tflops", 1e-12 * f->ceilings.f32_flops,
                                 "tf32_tflops", 1e-12 * f->ceilings.tf32_flops, "f16_tflops",
                                 1e-12 * f->ceilings.f16_flops, "f8_tflops", 1e-12 * f->ceilings.f8_flops, "i8_tops",
                                 1e-12 * f->ceilings.i8_ops);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:o, s:o, s:O, s:O}", cuda ? "gpu" : "cpu",
                     cuda ? gpu.name : build.cpu_name, "date", date, "commit", BENCH_COMMIT, "version", build.version,
                     "compiler", build.compiler, "threads", cli_threads(f->bench.threads), "ceilings", ceilings,
                     "sources_sha256", hashes, "peers", f->peer_versions, "rows", f->rows);
}

int verb_bench_op(int argc, char **argv) {
    static const struct argp argp = {
        options,
        parse,
        NULL,
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
        NULL,
        NULL,
        NULL};
    flags f = {.bench = {.seconds = 0.2, .on_row = on_row}};
    cli_parse(&argp, argc, argv, &f);
    f.bench.device = cli_resolve_device(f.bench.device);
    f.bench.user = &f;
    lls_status status = cli_ceilings(f.bench.device, f.bench.threads, &f.ceilings);
    if (status) return cli_fail(status);
    f.rows = json_array();
    f.peer_versions = json_object();
    printf("%.1f GB/s: what this %s\n", 1e-9 * f.ceilings.read_bytes_per_s,
           f.bench.device.type == LLS_CUDA ? "GPU copies at, reads and writes counted" : "machine reads at");
    if (f.profile) {
        printf("%.0f GFLOP/s of fp32, %.0f of f16 and bf16, %.0f GOP/s of int8: what it computes at\n",
               1e-9 * f.ceilings.f32_flops, 1e-9 * f.ceilings.f16_flops, 1e-9 * f.ceilings.i8_ops);
    }
    status = bench_run(&f.bench);
    int code = status ? cli_fail(status) : cli_finish_output();
    if (!code && f.json_path) code = cli_print_json(result(&f), f.json_path);
    json_decref(f.rows);
    json_decref(f.peer_versions);
    if (!code && f.failed) code = cli_error(CLI_FAILED, "%d rows failed", f.failed);
    return code;
}
