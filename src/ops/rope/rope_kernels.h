/* What rope.c launches: one declaration a variant. Read by gcc and nvcc. */
#ifndef LLS_OPS_ROPE_KERNELS_H
#define LLS_OPS_ROPE_KERNELS_H

#include "cpu/level.h"
#include "llmspeed/ops.h"

/* What every variant receives: validated arguments, with the defaults filled in and the frequencies computed. */
typedef struct lls__rope_call {
    lls_rope_args args;                  /* rotary_dim is set */
    double inv_freq[LLS_ROPE_MAX_PAIRS]; /* radians a position, [rotary_dim / 2]; not set when args has tables */
    float magnitude;                     /* scales cos and sin; likewise */
} lls__rope_call;

/* The row of the tables that a token reads. On the CPU positions are checked before a variant runs. */
static inline int64_t lls__rope_table_row(const lls_rope_args *args, int64_t token) {
    return args->positions ? ((const int32_t *)args->positions->data)[token] : token;
}

lls_status lls__rope_check_rotary_dim(int32_t rotary_dim);

lls_status lls__rope_ref(lls_ctx *ctx, const void *call, lls_stream stream);
LLS_CPU_DECLARE(lls_status, lls__rope_cpu, lls_ctx *ctx, const void *call, lls_stream stream);

/* An angle that is counted in turns loses its whole turns by one exact subtraction; pi would have to be subtracted in
 * pieces. */
#define LLS__TURNS_PER_RADIAN 0.15915494309189533577

#if LLS_WITH_CUDA
#include <cuda_runtime_api.h>

/* x, out [tokens, heads, head_dim] with strides of tokens and heads in elements. */
typedef struct lls__rope_heads {
    const void *x;
    void *out;
    int64_t heads;
    int64_t x_token, x_head, out_token, out_head;
} lls__rope_heads;

/* The caller's cosines and sines, [len, rotary_dim / 2] each. */
typedef struct lls__rope_tables {
    bool given; /* else the angles come from inv_freq */
    lls_dtype dtype;
    const void *cos, *sin;
    int64_t len, cos_row, sin_row; /* strides of rows in elements */
} lls__rope_tables;

/* The frequencies travel with the launch: a captured graph keeps its own copy, and no table has to outlive it. */
typedef struct lls__rope_params {
    lls__rope_heads set[2]; /* queries, keys; heads 0 where there is no second tensor */
    lls__rope_tables tables;
    const int32_t *positions; /* NULL, with tables only: the token's index */
    int32_t head_dim, rotary_dim;
    bool interleaved; /* LLS_ROPE_GPTJ */
    float magnitude;
    double inv_freq[LLS_ROPE_MAX_PAIRS];
} lls__rope_params;

#ifdef __cplusplus
extern "C" {
#endif
/* grid: tokens; block: 256. */
__global__ void lls_rope_01_naive_f32(const __grid_constant__ lls__rope_params p);
__global__ void lls_rope_01_naive_f16(const __grid_constant__ lls__rope_params p);
__global__ void lls_rope_01_naive_bf16(const __grid_constant__ lls__rope_params p);
#ifdef __cplusplus
}
#endif
#endif

#endif
