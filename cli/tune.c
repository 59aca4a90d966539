/* llmspeed tune gemm: measures every configuration that a product could run with and writes a tuning file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gemm_product.h"
#include "common.h"
#include "verbs.h"

enum { MAX_SIZES = 64, KEY_DTYPE = 0x100, KEY_OUT, KEY_LAYOUT, KEY_FAST, KEY_SECONDS, KEY_DEVICE, KEY_LIMIT };

typedef struct sizes {
    int64_t values[MAX_SIZES];
    int32_t count;
} sizes;

typedef struct flags {
    bench_options bench;
    sizes m, n, k;
    bench_gemm_product product; // but for its sizes
    bool verbose;
    const char *path;
    FILE *file;
    int written;

    // of the product that is measured
    lls_ctx *ctx;
    char key[LLS_GEMM_KEY_CHARS], best[LLS_GEMM_CONFIG_CHARS];
    double best_seconds, first_seconds, flops;
} flags;

// bench cases take no user pointer.
static flags *current;

static const struct argp_option options[] = {
    {NULL, 'M', "M,M,...", 0, "rows of a and out", 0},
    {NULL, 'N', "N,N,...", 0, "columns of b and out", 0},
    {NULL, 'K', "K,K,...", 0, "columns of a; one for each N. Every M is taken with every pair of N and K", 0},
    {"dtype", KEY_DTYPE, "DTYPE", 0, "of a and b: bf16 (default), f16, f32 (as tf32), f8_e4m3, i8", 0},
    {"out", KEY_OUT, "DTYPE", 0, "of out; default: bf16 for f8, i32 for i8, else that of a", 0},
    {"layout", KEY_LAYOUT, "LAYOUT", 0, "of b: NT (default), weights stored as [N, K], or NN, [K, N]", 0},
    {"fast-accumulation", KEY_FAST, NULL, 0, "f8: leave sums to the tensor core", 0},
    {"seconds", KEY_SECONDS, "S", 0, "time of a configuration's samples (default 0.02)", 0},
    {"limit", KEY_LIMIT, "COUNT", 0, "only the COUNT configurations that the cost model likes best", 0},
    {"device", KEY_DEVICE, "DEVICE", 0, "cuda (default) or cuda:N", 0},
    {"output", 'o', "FILE", 0, "append the best to FILE, for the environment variable LLS_TUNE_FILE", 0},
    {"verbose", 'V', NULL, 0, "print every configuration", 0},
    {0},
};

static void parse_sizes(struct argp_state *state, char axis, const char *text, sizes *out) {
    out->count = 0;
    for (const char *at = text; out->count < MAX_SIZES; at++) {
        char *end;
        long long value = strtoll(at, &end, 10);
        if (end == at || value <= 0 || value > 1 << 24 || (*end && *end != ',')) break;
        out->values[out->count++] = value;
        if (*end == 0) return;
        at = end;
    }
    argp_error(state, "-%c is \"%s\", must be up to %d sizes from 1 to 2^24, with commas", axis, text, MAX_SIZES);
}

static lls_dtype parse_dtype(struct argp_state *state, const char *option, const char *arg) {
    static const lls_dtype all[] = {LLS_BF16, LLS_F16, LLS_F32, LLS_F8_E4M3, LLS_I8, LLS_I32};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(arg, lls_dtype_name(all[i])) == 0) return all[i];
    }
    argp_error(state, "%s is \"%s\", must be bf16, f16, f32, f8_e4m3, i8 or (of out) i32", option, arg);
    return LLS_BF16;
}

static void finish_options(flags *f, struct argp_state *state) {
    bench_gemm_product *p = &f->product;
    if (state->arg_num == 0) argp_error(state, "no op given: llmspeed tune gemm");
    if (!f->m.count || !f->n.count || !f->k.count) argp_error(state, "-M, -N and -K are needed");
    if (f->n.count != f->k.count)
        argp_error(state, "-N has %d sizes and -K %d, must be equally many", f->n.count, f->k.count);
    if (p->dtype == LLS_I32) argp_error(state, "--dtype is i32, which is for out alone");
    if (p->dtype == LLS_F32) p->flags |= LLS_GEMM_TF32;
    if (p->dtype == LLS_F8_E4M3 && !p->out_dtype) p->out_dtype = LLS_BF16;
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    flags *f = state->input;
    switch (key) {
    case 'M': parse_sizes(state, 'M', arg, &f->m); break;
    case 'N': parse_sizes(state, 'N', arg, &f->n); break;
    case 'K': parse_sizes(state, 'K', arg, &f->k); break;
    case 'o': f->path = arg; break;
    case 'V': f->verbose = true; break;
    case KEY_DTYPE: f->product.dtype = parse_dtype(state, "--dtype", arg); break;
    case KEY_OUT: f->product.out_dtype = parse_dtype(state, "--out", arg); break;
    case KEY_FAST: f->product.flags |= LLS_GEMM_FAST_ACCUM; break;
    case KEY_LIMIT: f->bench.configs = (int32_t)cli_int(state, "--limit", arg, 1, INT32_MAX); break;
    case KEY_SECONDS: f->bench.seconds = cli_positive(state, "--seconds", arg); break;
    case KEY_DEVICE: f->bench.device = cli_device(state, arg); break;
    case KEY_LAYOUT:
        if (strcmp(arg, "NT") != 0 && strcmp(arg, "NN") != 0)
            argp_error(state, "--layout is \"%s\", must be NT or NN", arg);
        f->product.plain_b = strcmp(arg, "NN") == 0;
        break;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0 || strcmp(arg, "gemm") != 0) argp_error(state, "\"%s\": only gemm can be tuned", arg);
        break;
    case ARGP_KEY_END: finish_options(f, state); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static void on_row(const bench_row *r, void *user) {
    flags *f = user;
    if (r->median == 0) {
        printf("    %-60s %s\n", r->config, r->why ? r->why : "no time");
        return;
    }
    if (f->best[0] == 0) f->first_seconds = r->median;
    if (f->verbose)
        printf("    %-60s %10.2f us %8.1f TFLOP/s\n", r->config, 1e6 * r->median, 1e-12 * r->record.flops / r->median);
    if (f->best[0] && r->median >= f->best_seconds) return;
    f->best_seconds = r->median, f->flops = r->record.flops;
    snprintf(f->best, sizeof f->best, "%s", r->config);
    lls_gemm_args args = *(const lls_gemm_args *)r->args;
    args.config = NULL;
    if (lls_gemm_tune_key(f->ctx, &args, f->key)) f->key[0] = 0;
}

static void tune(bench *b, bench_gemm_product p) {
    flags *f = current;
    char name[64];
    f->best[0] = 0;
    snprintf(name, sizeof name, "%lld x %lld x %lld", (long long)p.m, (long long)p.n, (long long)p.k);
    printf("%s %s\n", lls_dtype_name(p.dtype), name);
    bench_gemm_case(b, name, "tune", p);
    if (f->best[0] == 0) return;
    printf("  %-62s %10.2f us %8.1f TFLOP/s, %.2f of the time of the model's choice\n", f->best, 1e6 * f->best_seconds,
           1e-12 * f->flops / f->best_seconds, f->best_seconds / f->first_seconds);
    fflush(stdout);
    if (f->file && f->key[0]) fprintf(f->file, "%s %s\n", f->key, f->best), f->written++;
}

static void cases(bench *b) {
    bench_gemm_product p = current->product;
    for (int32_t i = 0; i < current->n.count; i++) {
        for (int32_t j = 0; j < current->m.count; j++) {
            p.m = current->m.values[j], p.n = current->n.values[i], p.k = current->k.values[i];
            tune(b, p);
        }
    }
}

static int run(flags *f) {
    bench_suite suite = *bench_gemm_suite();
    suite.cases = cases, suite.peers = NULL;
    f->bench.suite = &suite;
    current = f;
    lls_status status = bench_run(&f->bench);
    return status ? cli_fail(status) : cli_finish_output();
}

int verb_tune(int argc, char **argv) {
    static const struct argp argp = {options,
                                     parse,
                                     "gemm",
                                     "Measures every configuration (tile, stages, cluster, split, raster) that matrix "
                                     "products of these sizes can run "
                                     "with on a GPU, each checked against the fp64 oracle, and prints the fastest.\v"
                                     "Examples:\n"
                                     "  llmspeed tune gemm -M 128,256 -N 4096,28672 -K 14336,4096 -o tuned.txt\n"
                                     "  LLS_TUNE_FILE=tuned.txt llmspeed bench op --op gemm --chosen",
                                     NULL,
                                     NULL,
                                     NULL};
    flags f = {.bench = {.seconds = 0.02, .configs = INT32_MAX, .on_row = on_row, .no_peers = true},
               .product = {.dtype = LLS_BF16}};
    f.bench.user = &f;
    cli_parse(&argp, argc, argv, &f);
    if (f.bench.device.type == 0) f.bench.device = (lls_device){LLS_CUDA, 0};
    if (f.bench.device.type != LLS_CUDA) return cli_error(CLI_ARGUMENT, "tune: only CUDA variants have configurations");
    lls_ctx_options options_of_ctx = LLS_CTX_OPTIONS_INIT;
    options_of_ctx.device = f.bench.device;
    lls_status status = lls_ctx_create(&options_of_ctx, &f.ctx);
    if (status) return cli_fail(status);
    int code = CLI_OK;
    if (f.path && !(f.file = fopen(f.path, "a"))) code = cli_error(CLI_FILE, "tune: %s cannot be opened", f.path);
    if (!code) code = run(&f);
    if (f.file && fclose(f.file) && !code) code = cli_error(CLI_FAILED, "tune: %s cannot be written", f.path);
    lls_ctx_destroy(f.ctx);
    return code;
}
