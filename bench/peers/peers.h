/* The peers that suites may name. Lists end with NULL, and are empty where a peer's headers were not found at build
 * time. */
#ifndef BENCH_PEERS_PEERS_H
#define BENCH_PEERS_PEERS_H

#include "bench/bench.h"

extern const bench_peer *const bench_gemm_peers[];

#endif
