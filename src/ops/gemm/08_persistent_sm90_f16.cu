/* The instances for f16: see sm90.cuh. */
#include "ops/gemm/sm90_family.cuh"

LLS_SM90_F16(LLS_SM90_INSTANCE)
