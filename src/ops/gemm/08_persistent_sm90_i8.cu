/* The instances for int8: see sm90.cuh. */
#include "ops/gemm/sm90_family.cuh"

LLS_SM90_I8(LLS_SM90_INSTANCE)
