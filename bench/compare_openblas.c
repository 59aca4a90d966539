/* f32 gemm on the CPU beside OpenBLAS: one process, same operands, same threads, taking turns.
 *
 *     compare_openblas [-o FILE] [LIBRARY]
 *
 * LIBRARY is an OpenBLAS that the user has: Debian's libopenblas.so.0 (the default), or the one within a NumPy wheel
 * (site-packages/numpy.libs/libscipy_openblas*.so).
 * Threads of either library spin for a while after a call, on the cores that the other one needs next. So a turn begins
 * with a pause in which they fall asleep, then come a call to warm up and the timed ones. Results are compared first. */
#include <dlfcn.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench_sources.h"
#include "llmspeed/llmspeed.h"
#include "timer.h"

enum { ROUNDS = 9, MAX_SAMPLES = 2000 };
static const double turn_seconds = 0.06;
static const struct timespec pause_between = {.tv_nsec = 50 * 1000 * 1000};

typedef struct shape {
    const char *name;
    int64_t m, n, k;
    bool transposed; // b is stored [n, k], as models store a weight
} shape;

static const shape shapes[] = {
    {"square", 256, 256, 256, false},
    {"square", 512, 512, 512, false},
    {"square", 1024, 1024, 1024, false},
    {"square, b transposed", 1024, 1024, 1024, true},
    {"square", 2048, 2048, 2048, false},
    {"SmolLM2-135M up, decode", 1, 1536, 576, true},
    {"SmolLM2-135M up, batch", 16, 1536, 576, true},
    {"SmolLM2-135M up, prompt", 512, 1536, 576, true},
    {"Llama-3-8B o, decode", 1, 4096, 4096, true},
    {"Llama-3-8B o, decode, b not transposed", 1, 4096, 4096, false},
    {"Llama-3-8B o, batch", 4, 4096, 4096, true},
    {"Llama-3-8B o, batch, b not transposed", 4, 4096, 4096, false},
    {"Llama-3-8B o, batch", 16, 4096, 4096, true},
    {"Llama-3-8B o, prompt", 128, 4096, 4096, true},
    {"Llama-3-8B up, prompt", 512, 14336, 4096, true},
};

// ---- The peer ---------------------------------------------------------------------------------------

// cblas.h, with the integers of either build.
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
typedef void sgemm32(int order, int trans_a, int trans_b, int32_t m, int32_t n, int32_t k, float alpha, const float *a,
                     int32_t lda, const float *b, int32_t ldb, float beta, float *c, int32_t ldc);
typedef void sgemm64(int order, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                     int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

typedef struct peer {
    sgemm32 *sgemm_32;
    sgemm64 *sgemm_64;
    void (*set_num_threads)(int threads);
    char *(*get_config)(void);
    char *(*get_corename)(void);
} peer;

static void find(void *library, const char *prefix, const char *name, const char *suffix, void *function) {
    char symbol[96];
    snprintf(symbol, sizeof symbol, "%s%s%s", prefix, name, suffix);
    void *found = dlsym(library, symbol);
    memcpy(function, &found, sizeof found); // ISO C has no cast from void * to a function
}

static bool load(const char *path, peer *p) {
    static const char *const spellings[][2] = {{"", ""}, {"scipy_", "64_"}, {"scipy_", ""}, {"", "64_"}};
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return fprintf(stderr, "compare_openblas: %s\n", dlerror()), false;
    for (int i = 0; i < 4; i++) {
        const char *prefix = spellings[i][0], *suffix = spellings[i][1];
        *p = (peer){0};
        find(library, prefix, "cblas_sgemm", suffix, *suffix ? (void *)&p->sgemm_64 : (void *)&p->sgemm_32);
        find(library, prefix, "openblas_set_num_threads", suffix, &p->set_num_threads);
        find(library, prefix, "openblas_get_config", suffix, &p->get_config);
        find(library, prefix, "openblas_get_corename", suffix, &p->get_corename);
        if ((p->sgemm_32 || p->sgemm_64) && p->set_num_threads && p->get_config && p->get_corename) return true;
    }
    return fprintf(stderr, "compare_openblas: %s has no cblas_sgemm of OpenBLAS\n", path), false;
}

// ---- One side's turn --------------------------------------------------------------------------------

typedef struct operands {
    const shape *s;
    float *a, *b, *out;
} operands;

static void call_peer(const peer *p, const operands *x) {
    int64_t m = x->s->m, n = x->s->n, k = x->s->k, ldb = x->s->transposed ? k : n;
    int trans = x->s->transposed ? TRANS : NO_TRANS;
    if (p->sgemm_64) p->sgemm_64(ROW_MAJOR, NO_TRANS, trans, m, n, k, 1, x->a, k, x->b, ldb, 0, x->out, n);
    else
        p->sgemm_32(ROW_MAJOR, NO_TRANS, trans, (int32_t)m, (int32_t)n, (int32_t)k, 1, x->a, (int32_t)k, x->b,
                    (int32_t)ldb, 0, x->out, (int32_t)n);
}

static void call_ours(lls_ctx *ctx, const operands *x) {
    int64_t a_shape[] = {x->s->m, x->s->k}, b_shape[] = {x->s->k, x->s->n}, out_shape[] = {x->s->m, x->s->n};
    lls_device cpu = {LLS_CPU, 0};
    lls_tensor a = lls_tensor_make(x->a, LLS_F32, cpu, 2, a_shape), b = lls_tensor_make(x->b, LLS_F32, cpu, 2, b_shape),
               out = lls_tensor_make(x->out, LLS_F32, cpu, 2, out_shape);
    if (x->s->transposed) b.stride[0] = 1, b.stride[1] = x->s->k;
    lls_gemm_args args = LLS_GEMM_ARGS_INIT;
    args.a = &a, args.b = &b, args.out = &out;
    if (lls_gemm(ctx, &args, NULL) == LLS_OK) return;
    fprintf(stderr, "compare_openblas: %s\n", lls_last_error());
    exit(1);
}

static void call(lls_ctx *ctx, const peer *p, const operands *x) {
    if (p) call_peer(p, x);
    else call_ours(ctx, x);
}

typedef struct samples {
    double seconds[MAX_SAMPLES];
    int32_t count;
} samples;

// Ours where p is NULL. A sample is as many calls as take a millisecond.
static void take_turn(lls_ctx *ctx, const peer *p, const operands *x, samples *out) {
    nanosleep(&pause_between, NULL);
    call(ctx, p, x);
    double begin = bench_now();
    call(ctx, p, x);
    int32_t calls = (int32_t)(1e-3 / (bench_now() - begin)) + 1;
    for (begin = bench_now(); out->count < MAX_SAMPLES;) {
        double start = bench_now();
        for (int32_t i = 0; i < calls; i++) call(ctx, p, x);
        out->seconds[out->count++] = (bench_now() - start) / calls;
        if (bench_now() - begin > turn_seconds) return;
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_us(samples *s) {
    qsort(s->seconds, (size_t)s->count, sizeof *s->seconds, ascending);
    return 1e6 * s->seconds[s->count / 2];
}

// ---- A row ------------------------------------------------------------------------------------------

static float *normal(int64_t count) { // Box and Muller 1958
    float *x = malloc((size_t)count * sizeof *x);
    uint64_t state = (uint64_t)count;
    for (int64_t i = 0; x && i < count; i++) {
        double uniform[2];
        for (int j = 0; j < 2; j++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            uniform[j] = ((double)(state >> 11) + 0.5) * 0x1p-53;
        }
        x[i] = (float)(sqrt(-2 * log(uniform[0])) * cos(6.283185307179586 * uniform[1]));
    }
    return x;
}

// Largest difference, in units of the sums' size.
static double difference(lls_ctx *ctx, const peer *p, operands *x) {
    int64_t count = x->s->m * x->s->n;
    operands theirs = *x;
    theirs.out = malloc((size_t)count * sizeof(float));
    if (!theirs.out) return INFINITY;
    call_peer(p, &theirs);
    call_ours(ctx, x);
    double worst = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = fabs((double)x->out[i] - (double)theirs.out[i]) / sqrt((double)x->s->k);
        if (!(d <= worst)) worst = d;
    }
    free(theirs.out);
    return worst;
}

static json_t *row_json(const shape *s, int32_t threads, double ours, double best, double theirs, double theirs_best) {
    double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    double bytes = 4.0 * (double)(s->m * s->k + s->k * s->n + s->m * s->n);
    return json_pack("{s:s, s:s, s:{s:I, s:I, s:I, s:i}, s:s, s:s, s:b, s:f, s:f, s:f, s:f, s:{s:f}, s:{s:f}, s:f}", //
                     "op", "gemm", "case", s->name, "params", "m", (json_int_t)s->m, "n", (json_int_t)s->n, "k",
                     (json_int_t)s->k, "threads", threads, "dtype", "f32", "variant", "chosen by the call", "chosen", 1,
                     "us", ours, "best_us", best, "tflops", 1e-6 * flops / ours, "tbps", 1e-6 * bytes / ours, "peers",
                     "OpenBLAS", theirs, "peers_best", "OpenBLAS", theirs_best, "ratio", theirs / ours);
}

// NULL when the results differ.
static json_t *compare(lls_ctx *ctx, const peer *p, const shape *s, int32_t threads) {
    static samples ours, theirs;
    operands x = {s, normal(s->m * s->k), normal(s->k * s->n), malloc((size_t)(s->m * s->n) * sizeof(float))};
    json_t *row = NULL;
    double error = x.a && x.b && x.out ? difference(ctx, p, &x) : INFINITY;
    ours.count = theirs.count = 0;
    for (int round = 0; error < 1e-4 && round < ROUNDS; round++) {
        take_turn(ctx, NULL, &x, &ours);
        take_turn(ctx, p, &x, &theirs);
    }
    if (error < 1e-4) {
        double mine = median_us(&ours), peers = median_us(&theirs), flops = 2e-3 * (double)(s->m * s->n * s->k);
        double best = 1e6 * ours.seconds[0], peers_best = 1e6 * theirs.seconds[0];
        printf("%-40s %5lld %5lld %5lld %7d %10.1f %10.1f %8.1f %8.2f %8.2f\n", s->name, (long long)s->m,
               (long long)s->n, (long long)s->k, threads, mine, peers, flops / mine, peers / mine, peers_best / best);
        fflush(stdout);
        row = row_json(s, threads, mine, best, peers, peers_best);
    } else {
        fprintf(stderr, "compare_openblas: %s: results differ by %g\n", s->name, error);
    }
    free(x.a), free(x.b), free(x.out);
    return row;
}

static bool compare_all(const peer *p, int32_t threads, json_t *rows, lls_ceilings *ceilings) {
    lls_ctx_options options = LLS_CTX_OPTIONS_INIT;
    options.device = (lls_device){LLS_CPU, 0};
    options.num_threads = threads;
    lls_ctx *ctx;
    if (lls_ctx_create(&options, &ctx) != LLS_OK || lls_measure_ceilings(ctx, ceilings) != LLS_OK) {
        return fprintf(stderr, "compare_openblas: %s\n", lls_last_error()), false;
    }
    p->set_num_threads(threads);
    bool same = true;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        json_t *row = compare(ctx, p, &shapes[i], threads);
        if (row) json_array_append_new(rows, row);
        else same = false;
    }
    lls_ctx_destroy(ctx);
    return same;
}

static json_t *result(const peer *p, const lls_ceilings *c, json_t *rows) {
    char date[32], version[256];
    time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    snprintf(version, sizeof version, "%s, kernels for %s", p->get_config(), p->get_corename());
    lls_build_info build = lls_build();
    json_t *hashes = json_object();
    for (size_t i = 0; i < sizeof bench_sources / sizeof *bench_sources; i++) {
        if (strcmp(bench_sources[i].op, "gemm") == 0)
            json_object_set_new(hashes, "gemm", json_string(bench_sources[i].sha256));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:{s:s}, s:{s:f, s:f}, s:o, s:O}", "cpu", build.cpu_name, "date", date,
                     "commit", BENCH_COMMIT, "version", build.version, "compiler", build.compiler, "peer_versions",
                     "OpenBLAS", version, "ceilings", "read_tbps", 1e-12 * c->read_bytes_per_s, "f32_tflops",
                     1e-12 * c->f32_flops, "sources_sha256", hashes, "rows", rows);
}

int main(int argc, char **argv) {
    const char *output = NULL;
    for (int option; (option = getopt(argc, argv, "o:")) != -1;) {
        if (option != 'o') return fprintf(stderr, "usage: compare_openblas [-o FILE] [LIBRARY]\n"), 2;
        output = optarg;
    }
    peer p;
    if (!load(optind < argc ? argv[optind] : "libopenblas.so.0", &p)) return 1;
    printf("%s, kernels for %s\n%-40s %5s %5s %5s %7s %10s %10s %8s %8s %8s\n", p.get_config(), p.get_corename(), "",
           "m", "n", "k", "threads", "us", "OpenBLAS", "GFLOP/s", "ratio", "of best");
    json_t *rows = json_array();
    lls_ceilings ceilings;
    bool same = true;
    for (int32_t threads = 1; threads <= 2; threads++) same &= compare_all(&p, threads, rows, &ceilings);
    json_t *found = result(&p, &ceilings, rows);
    if (output && json_dump_file(found, output, JSON_INDENT(1) | JSON_REAL_PRECISION(6))) {
        return fprintf(stderr, "compare_openblas: cannot write %s\n", output), 1;
    }
    json_decref(found), json_decref(rows);
    return same ? 0 : 1;
}
