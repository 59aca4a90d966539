/* What `bench op` and `ladder` make of the rows of a bench: figures against the machine, and the result file. */
#ifndef CLI_OP_RESULTS_H
#define CLI_OP_RESULTS_H

#include "bench/bench.h"
#include "common.h"

typedef struct op_results {
    lls_device device;
    int32_t threads;
    lls_ceilings ceilings;
    json_t *rows, *peer_versions;
    json_t *peer_failures; /* those printed are its keys */
    int failed;             /* rows */
} op_results;

/* How a timed row compares with the machine. */
typedef struct op_verdict {
    double memory_share; /* time that the bytes alone need, over the time taken */
    double floor_share;  /* the same for bytes or operations, whichever takes longer */
    lls_bound bound;
} op_verdict;

/* Measures the machine. */
lls_status op_results_open(op_results *results, lls_device device, int32_t threads);
void op_results_close(op_results *results);
op_verdict op_results_judge(const op_results *results, const bench_row *row);
/* Adds a row to the result. A peer that has no time is named on standard error. */
void op_results_add(op_results *results, const bench_row *row);
/* The file that bench/README.md describes. */
json_t *op_results_json(const op_results *results);

#endif
