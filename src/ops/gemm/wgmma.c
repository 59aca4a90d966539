/* Host side of rungs 06 and 07. */
#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/launch.h"
#include "dispatch/tma.h"
#include "ops/gemm/gemm_kernels.h"

// f16, bf16 of each rung.
enum { TMA_WGMMA = 0, WARP_SPECIALISED = 2 };
const lls__kernel lls__gemm_wgmma_kernels[] = {
    LLS_KERNEL(lls_gemm_06_tma_wgmma_f16),
    LLS_KERNEL(lls_gemm_06_tma_wgmma_bf16),
    LLS_KERNEL(lls_gemm_07_warp_specialised_f16),
    LLS_KERNEL(lls_gemm_07_warp_specialised_bf16),
    {0},
};

// An operand as TMA loads it: rows of k, one for each of its lines (a row of a, a column of b), which are `stride` apart.
static lls__tma_tensor operand(const lls__gemm_problem *p, const lls__gemm_matrix *x, int64_t lines, int64_t stride) {
    return (lls__tma_tensor){.data = x->data,
                             .dtype = x->dtype,
                             .depth = x->batch ? p->batch : 1,
                             .rows = lines,
                             .cols = p->k,
                             .depth_stride = x->batch,
                             .row_stride = stride,
                             .box_rows = LLS__WGMMA_TILE,
                             .box_cols = LLS__WGMMA_DEPTH};
}
static lls__tma_tensor operand_a(const lls__gemm_problem *p) {
    return operand(p, &p->a, p->m, p->a.row);
}
static lls__tma_tensor operand_b(const lls__gemm_problem *p) {
    return operand(p, &p->b, p->n, p->b.col);
}

const char *lls__gemm_refuse_wgmma(const lls__gemm_problem *p) {
    if (p->a.dtype != LLS_F16 && p->a.dtype != LLS_BF16) return "takes f16 and bf16";
    if (p->k == 0) return "needs k above 0";
    if (p->a.pointers || p->b.pointers || p->c.pointers || p->out.pointers) return "takes no pointers";
    lls__tma_tensor a = operand_a(p), b = operand_b(p);
    if (p->a.col != 1 || p->b.row != 1 || !lls__tma_reaches(&a) || !lls__tma_reaches(&b))
        return "needs operands contiguous along k, lines and base aligned to 16 bytes";
    // A single row is aligned whatever its length is.
    if ((p->flags & LLS_GEMM_BATCH_INVARIANT) && p->k * lls__elem_size(p->a.dtype) % 16)
        return "needs k a multiple of 16 bytes to be invariant";
    return lls__gemm_refuse_tiles(p, LLS__WGMMA_TILE, LLS__WGMMA_TILE);
}

static lls_status launch(lls_ctx *ctx, const lls__gemm_problem *p, int32_t rung, uint32_t threads, lls_stream stream) {
    lls__tma_tensor a = operand_a(p), b = operand_b(p);
    CUtensorMap map_a, map_b;
    LLS_TRY(lls__tma_encode(&a, &map_a));
    LLS_TRY(lls__tma_encode(&b, &map_b));
    lls__grid shape = {
        .grid = {(uint32_t)lls__gemm_num_tiles(p, LLS__WGMMA_TILE, LLS__WGMMA_TILE), 1, 1},
        .block = {threads, 1, 1},
        .shared_bytes = LLS__WGMMA_SHARED,
    };
    return lls__launch(ctx, &lls__gemm_wgmma_kernels[rung + (p->a.dtype == LLS_BF16)], &shape,
                       (void *[]){(void *)p, &map_a, &map_b}, stream);
}

lls_status lls__gemm_launch_tma_wgmma(lls_ctx *ctx, const lls__gemm_problem *p, lls_stream stream) {
    return launch(ctx, p, TMA_WGMMA, LLS__GEMM_06_THREADS, stream);
}

lls_status lls__gemm_launch_warp_specialised(lls_ctx *ctx, const lls__gemm_problem *p, lls_stream stream) {
    return launch(ctx, p, WARP_SPECIALISED, LLS__GEMM_07_THREADS, stream);
}
