/* The instances for f8: see sm90.cuh. */
#include "ops/gemm/sm90_family.cuh"

LLS_SM90_F8(LLS_SM90_INSTANCE)
