/* Tuning files: LLS_TUNE_FILE names one, its lines are a key and a configuration each (lls_gemm_tune_key). */
#ifndef LLS_OPS_GEMM_TUNE_H
#define LLS_OPS_GEMM_TUNE_H

#include "core/ctx.h"
#include "ops/gemm/problem.h"

/* "sm90x132 bf16 bf16 bf16 kk plain 4096 4096 4096 1": device, types of a, b and out, layouts, whether out takes more than
 * alpha, m, n, k, batch. */
void lls__gemm_tune_key_of(const lls_ctx *ctx, const lls__gemm_problem *p, char *text, size_t size);
/* The configuration of the file for this product; NULL: none. The file is read at the first call. */
const char *lls__gemm_tuned(const lls_ctx *ctx, const lls__gemm_problem *p);

#endif
