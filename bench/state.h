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

struct bench {
    const bench_options *options;
    const bench_suite *suite;
    lls_ctx *device_ctx, *oracle_ctx;
    char name[96];     /* of the case */
    int32_t selected;  /* rows that ran */
    lls_status fatal; /* ends the run: not a matter of one variant */

    /* of the set under construction */
    lls_ctx *ctx;
    bench_set *set;
    bench_arena *arena;
    bool oracle;
    lls_status status; /* the first failure */
    bench_row row;
};

/* A tensor of the set that shares another one's memory. */
lls_tensor *bench_add_view(bench *b, const lls_tensor *of);

#endif
