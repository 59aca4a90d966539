/* The instances for f32 operands rounded to tf32: see sm90.cuh. */
#include "ops/gemm/sm90_family.cuh"

LLS_SM90_TF32(LLS_SM90_INSTANCE)
