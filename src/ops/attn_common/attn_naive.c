#if LLS_WITH_CUDA
#include "ops/attn_common/attn_naive.h"

#include "core/error.h"
#include "dispatch/launch.h"

size_t lls__attn_parts_bytes(const lls__attn_problem *p) {
    if (p->num_splits == 1) return 0;
    return (size_t)(p->total_q * p->num_heads * p->num_splits) * (size_t)(p->head_dim_v + 2) * sizeof(float);
}

static double num_blocks(const lls__attn_problem *p, int64_t splits) {
    return (double)p->batch * (double)p->max_q_len * (double)p->num_heads * (double)splits / LLS__ATTN_NAIVE_WARPS;
}

const char *lls__attn_naive_reject(const void *args) {
    const lls__attn_problem *p = args;
    return num_blocks(p, p->num_splits) < INT32_MAX
               ? NULL
               : "a warp for each row, head and split would need 2^31 blocks or more";
}

static lls__grid grid_of(const lls__attn_problem *p, int64_t splits) {
    int64_t warps = p->batch * p->max_q_len * p->num_heads * splits;
    return (lls__grid){.grid = {(uint32_t)((warps + LLS__ATTN_NAIVE_WARPS - 1) / LLS__ATTN_NAIVE_WARPS), 1, 1},
                       .block = {32 * LLS__ATTN_NAIVE_WARPS, 1, 1}};
}

lls_status lls__attn_naive_launch(lls_ctx *ctx, const lls__attn_problem *p, const lls__kernel *kernel,
                                  const lls__kernel *merge, lls_stream stream) {
    lls__attn_problem problem = *p;
    lls__attn_parts parts = {NULL, NULL};
    if (p->num_splits > 1) {
        void *memory;
        LLS_TRY(lls__ctx_workspace(ctx, p->op, lls__attn_parts_bytes(p), &memory));
        parts.max_sum = memory;
        parts.acc = parts.max_sum + p->total_q * p->num_heads * p->num_splits * 2;
    }
    void *params[] = {&problem, &parts};
    lls__grid shape = grid_of(p, p->num_splits);
    LLS_TRY(lls__launch(ctx, kernel, &shape, params, stream));
    if (p->num_splits == 1) return LLS_OK;
    shape = grid_of(p, 1);
    return lls__launch(ctx, merge, &shape, params, stream);
}
#else
typedef int lls__attn_naive_needs_cuda; // an empty translation unit is not C
#endif
