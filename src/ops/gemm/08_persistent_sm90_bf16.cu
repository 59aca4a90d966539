/* The instances for bf16: see sm90.cuh. */
#include "ops/gemm/sm90_family.cuh"

LLS_SM90_BF16(LLS_SM90_INSTANCE)
