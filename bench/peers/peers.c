#include "bench/peers/peers.h"

const bench_peer *const bench_gemm_peers[] = {
#if BENCH_WITH_CUBLASLT
    &bench_gemm_cublaslt,
#endif
    &bench_gemm_openblas,
    NULL,
};

const bench_peer *const bench_gemm_grouped_peers[] = {
#if BENCH_WITH_CUBLASLT
    &bench_gemm_grouped_cublaslt,
#endif
    NULL,
};
