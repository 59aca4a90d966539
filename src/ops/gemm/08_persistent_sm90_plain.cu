/* The instances for plain products of bf16 and f16: see sm90.h. */
#include "ops/gemm/sm90_family.cuh"

LLS_SM90_PLAIN(LLS_SM90_INSTANCE)
