/* The peers that suites may name. Lists end with NULL. */
#ifndef BENCH_PEERS_PEERS_H
#define BENCH_PEERS_PEERS_H

#include "bench/bench.h"

extern const bench_peer *const bench_gemm_peers[];

extern const bench_peer bench_gemm_cublaslt; /* only where its headers were found at build time */
extern const bench_peer bench_gemm_openblas;

#endif
