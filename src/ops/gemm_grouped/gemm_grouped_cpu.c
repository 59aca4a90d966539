/* One product a group, each by all threads: a group's matrix is read once, and the groups that matter are large. */
#include "core/error.h"
#include "core/tensor.h"
#include "ops/gemm_grouped/gemm_grouped_kernels.h"

// The product of these rows, a problem of its own.
static lls__gemm_problem problem_of_group(const lls__gemm_problem *all, int64_t group, lls__gemm_span rows) {
    lls__gemm_problem p = *all;
    p.offsets = NULL, p.batch = 1, p.m = rows.end - rows.begin;
    p.a.data = (char *)all->a.data + lls__gemm_offset(&all->a, rows.begin, 0) * lls__elem_size(all->a.dtype);
    p.out.data = (char *)all->out.data + lls__gemm_offset(&all->out, rows.begin, 0) * lls__elem_size(all->out.dtype);
    p.b.data = lls__gemm_base(&all->b, group, lls__elem_size(all->b.dtype));
    if (all->bias.data) p.bias.data = lls__gemm_base(&all->bias, group, lls__elem_size(all->bias.dtype));
    if (all->scale_a.data) p.scale_a.data += rows.begin * all->scale_a.line;
    if (all->scale_b.data) p.scale_b.data += group * all->scale_b.batch;
    return p;
}

lls_status LLS_CPU(lls__gemm_grouped_cpu)(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)stream;
    lls__gemm_problem all = lls__gemm_grouped_problem_of(args);
    for (int64_t group = 0; group < all.batch; group++) {
        lls__gemm_span rows = lls__gemm_rows(&all, group);
        if (rows.begin == rows.end) continue;
        lls__gemm_problem p = problem_of_group(&all, group, rows);
        LLS_TRY(LLS_CPU(lls__gemm_cpu_problem)(ctx, &p));
    }
    return LLS_OK;
}
