/* Builds without CUDA, or without cuBLASLt's header. */
#include "bench/peers/peers.h"

const bench_peer *const bench_gemm_peers[] = {NULL};
