/* The peers that suites may name. Lists end with NULL. */
#ifndef BENCH_PEERS_PEERS_H
#define BENCH_PEERS_PEERS_H

#include "bench/bench.h"

extern const bench_peer *const bench_gemm_peers[];
extern const bench_peer *const bench_gemm_grouped_peers[];

/* Only where cuBLASLt's header was found at build time. */
extern const bench_peer bench_gemm_cublaslt;
extern const bench_peer bench_gemm_grouped_cublaslt;
extern const bench_peer bench_gemm_openblas;

#endif
