/* The oracle: gemm's, row by row, each with its group's matrix. */
#include "ops/gemm_grouped/gemm_grouped_kernels.h"

lls_status lls__gemm_grouped_ref(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)ctx, (void)stream;
    lls__gemm_problem p = lls__gemm_grouped_problem_of(args);
    for (int64_t group = 0; group < p.batch; group++) {
        lls__gemm_span rows = lls__gemm_rows(&p, group);
        for (int64_t row = rows.begin; row < rows.end; row++) lls__gemm_ref_row(&p, group, row);
    }
    return LLS_OK;
}
