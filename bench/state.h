/* The inside of `bench`: what the tensor makers (tensors.c) and the runner (runner.c) share. */
#ifndef BENCH_STATE_H
#define BENCH_STATE_H

#include "arena.h"
#include "bench.h"

enum { BENCH_MAX_TENSORS = 24, BENCH_MAX_ARGS_BYTES = 512 };

/* One copy of a case's tensors and arguments. */
typedef struct bench_set {
    lls_tensor tensors[BENCH_MAX_TENSORS];
    double tol[BENCH_MAX_TENSORS]; /* >= 0 for outputs, else -1 */
    int32_t num_tensors;
    _Alignas(16) unsigned char args[BENCH_MAX_ARGS_BYTES]; /* may point to the tensors: sets are never moved */
    size_t args_bytes;
} bench_set;

/* Names are compared by address: they are those of the tables. */
typedef struct bench_speed {
    const char *variant, *dtype;
    double ops_per_s;
} bench_speed;
enum { BENCH_MAX_SPEEDS = 64 };

struct bench {
    const bench_options *options;
    const bench_suite *suite;
    lls_ctx *device_ctx, *oracle_ctx;
    char name[96];    /* of the case */
    int32_t selected; /* rows that ran */
    lls_status fatal; /* ends the run: not a matter of one variant */
    bench_speed speeds[BENCH_MAX_SPEEDS];
    int32_t num_speeds;

    /* of the set under construction */
    lls_ctx *ctx;
    bench_set *set;
    bench_arena *arena;
    bool oracle;
    bool spread;            /* see bench_spread */
    const bench_set *whole; /* the oracle's run: the set on the device, whose sizes are not cut */
    lls_status status;      /* the first failure */
    bench_row row;
};

/* A tensor of the set that shares another one's memory. */
lls_tensor *bench_add_view(bench *b, const lls_tensor *of);

/* Where index `i` of an axis cut to `cut` lies on the axis of `whole`. */
int64_t bench_whole_index(const bench *b, int64_t i, int64_t cut, int64_t whole);
/* The same for a row: row-major over all axes but the last. */
int64_t bench_whole_row(const bench *b, int64_t row, const lls_tensor *cut, const lls_tensor *whole);
/* Rows, and elements of one. */
int64_t bench_num_rows(const lls_tensor *t);
int64_t bench_row_length(const lls_tensor *t);
/* NaN (all bits set) into every element. */
lls_status bench_poison(lls_ctx *ctx, const lls_tensor *t);

#endif
