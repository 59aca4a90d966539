/* Op benchmarks. A suite (src/ops/<op>/<op>_bench.c) names cases; a case is one function that makes tensors and
 * arguments.
 *
 * The runner calls that function several times: once on the CPU for the fp64 oracle, then on the device under test as
 * often as it takes for the tensors of all copies to exceed the cache ("rotation"), so that weights come from memory as
 * they do in a model. Every implementation is checked against the oracle before it is timed; one that fails its check
 * gets no time. The checked call is recorded (lls_ctx_record): bytes and operations are the op's own, not a case's.
 *
 * Element values depend on the tensor's order in the case and the element's coordinates alone, so a smaller tensor
 * holds the leading part of a larger one. The oracle is slow: for its run, bench_cut shortens an axis, and the outputs
 * are compared over the part that both have. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "llmspeed/llmspeed.h"

typedef struct bench bench;
typedef void (*bench_make)(bench *b, const void *params);

/* Another library that computes the same. It is checked like ours, and timed in turn with ours on the same tensors. */
typedef struct bench_peer {
    const char *name; /* "cublaslt" */
    lls_device_type device;
    /* Of the library found on this machine, "13.1.0"; NULL with an error message when there is none. */
    const char *(*version)(void);
    /* Gets ready for calls with any of the `copies` argument structs, which are alike but for their pointers: plans, may
     * try kernels out. LLS_ERR_UNSUPPORTED: the library has nothing for such arguments. *state is closed if not NULL. */
    lls_status (*open)(lls_ctx *ctx, const void *const *args, int32_t copies, void **state);
    /* Enqueues the call on args[copy]; may be captured in a graph. The signature of bench_launch (timer.h). */
    lls_status (*call)(int32_t copy, lls_stream stream, void *state);
    void (*close)(void *state);
} bench_peer;

/* Cases by text in their names and by dtype. */
typedef struct bench_fit {
    const char *match;
    lls_dtype dtype;
} bench_fit;

typedef struct bench_suite {
    const char *op;
    /* Calls the op with its argument struct, the variant put into it. BENCH_CALL(op) makes one. */
    lls_status (*call)(lls_ctx *ctx, void *args, const char *variant, lls_stream stream);
    void (*cases)(bench *b);           /* calls bench_case for each */
    const bench_peer *const *peers;    /* ends with NULL; may be NULL */
    bench_fit ladder_cpu, ladder_cuda; /* what `llmspeed ladder` compares the rungs at */
    /* For ops with configurations: the argument struct with configuration `index` pinned, whose text is `config`; false past
     * the last. May be NULL. */
    bool (*pin)(lls_ctx *ctx, void *args, int32_t index, char config[LLS_GEMM_CONFIG_CHARS]);
} bench_suite;

#define BENCH_CALL(op)                                                                         \
    static lls_status call(lls_ctx *ctx, void *args, const char *variant, lls_stream stream) { \
        lls_##op##_args *a = args;                                                             \
        a->variant = variant;                                                                  \
        return lls_##op(ctx, a, stream);                                                       \
    }

/* ---- For suites ------------------------------------------------------------------------------ */

/* One more case, shown as "Llama-3-8B down, decode". */
void bench_case(bench *b, const char *model, const char *phase, lls_dtype dtype, bench_make make, const void *params);

/* ---- For case functions; tensors are contiguous and live as long as the case -------------------- */

/* Normal numbers of standard deviation `scale`; for block dtypes random codes with scales near it; for i8 integers from
 * -127 to 127, equally likely, whatever the scale. */
const lls_tensor *bench_normal(bench *b, lls_dtype dtype, int32_t ndim, const int64_t *shape, double scale);
/* i32 or i64: element i (row-major) is fn(i, user). */
const lls_tensor *bench_integers(bench *b, lls_dtype dtype, int32_t ndim, const int64_t *shape,
                                 int64_t (*fn)(int64_t i, const void *user), const void *user);
/* An f32 tensor with one value everywhere. */
const lls_tensor *bench_constant(bench *b, int32_t ndim, const int64_t *shape, double value);
/* Compared with the oracle: |got - want| <= tol * (|want| + rms(want)). */
const lls_tensor *bench_output(bench *b, lls_dtype dtype, int32_t ndim, const int64_t *shape, double tol);
/* What a model on the CPU holds in place of a weight: the same values in the order that the vector units like. The
 * weight itself on CUDA and for the oracle. */
const lls_tensor *bench_packed(bench *b, const lls_tensor *weight);
/* A view of a matrix, or of several, with the last two axes exchanged. */
const lls_tensor *bench_transposed(bench *b, const lls_tensor *matrix);
/* n, or for the oracle's run at most `limit`. */
int64_t bench_cut(const bench *b, int64_t n, int64_t limit);
/* Call it before the first tensor, when each output depends on its own coordinates of the axes that are cut and on
 * nothing else along them, as rows and columns of a product do: the oracle then takes indices spread from the first to
 * the last in place of the leading ones. */
void bench_spread(bench *b);
/* For cases that only a GPU finishes in time. */
bool bench_is_cuda(const bench *b);
/* A size for the result file. */
void bench_param(bench *b, const char *name, int64_t value);
/* The argument struct, copied. */
void bench_args(bench *b, const void *args, size_t bytes);

/* f32 1e-5, f16 2e-3, bf16 1e-2. */
double bench_tol(lls_dtype dtype);
/* Bytes of a contiguous tensor. */
double bench_bytes(lls_dtype dtype, int64_t elements);

/* ---- For the command ------------------------------------------------------------------------- */

typedef struct bench_peer_time {
    const char *name, *version;
    double median, sustained; /* seconds; 0 when there is no time */
    const char *why;          /* it has none: wrong, or not able */
} bench_peer_time;

enum { BENCH_MAX_PARAMS = 12, BENCH_MAX_PEERS = 4 };
typedef struct bench_row {
    const char *op, *name, *dtype, *variant;
    const char *idea;   /* of the variant; may be NULL */
    const char *config; /* that was pinned; may be NULL */
    const void *args;   /* of a set on the device, valid during the call */
    const char *param_names[BENCH_MAX_PARAMS];
    int64_t param_values[BENCH_MAX_PARAMS];
    int32_t num_params;
    lls_record record;        /* of the checked call */
    double median, p95, best; /* seconds; 0 when there is no time */
    double sustained;         /* seconds without a rest; 0 when not asked for */
    int32_t samples;          /* 1: so slow that the checked call is the only one */
    bench_peer_time peers[BENCH_MAX_PEERS];
    int32_t num_peers;
    double ratio, ratio_sustained; /* the best peer's time over ours; 0 without a peer */
    double error;                  /* worst error against the oracle, in units of the tolerance */
    bool chosen;                   /* what a call that pins nothing takes */
    bool failed;                   /* wrong, or an error other than a refusal */
    const char *why;               /* refusal, failure, or too slow to be timed; NULL with a time */
} bench_row;

typedef struct bench_options {
    lls_device device;
    int32_t threads;     /* CPU */
    const char *op;      /* NULL: all */
    const char *variant; /* NULL: all but the oracle */
    const char *match;   /* text within the case's name; NULL: all */
    const char *dtype;   /* NULL: all */
    bool only_chosen;    /* no variant after the first that takes the case */
    int32_t
        configs; /* > 0: of that variant so many configurations, a row each; suites without configurations have none */
    const bench_suite *suite; /* this one alone; NULL: all */
    double seconds;           /* of samples, a row */
    double sustained;         /* of calls without a rest, a row; 0: none */
    bool no_peers;
    void (*on_row)(const bench_row *row, void *user);
    void *user;
} bench_options;

/* Runs what the options select. LLS_ERR_ARGUMENT when they select nothing. */
lls_status bench_run(const bench_options *options);

extern const bench_suite *const bench_suites[];
extern const int32_t bench_num_suites;

#endif
