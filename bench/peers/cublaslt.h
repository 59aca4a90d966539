/* cuBLASLt, loaded at run time: the command neither links it nor needs it. */
#ifndef BENCH_PEERS_CUBLASLT_H
#define BENCH_PEERS_CUBLASLT_H

#include <cublasLt.h>

#include "llmspeed/core.h"

/* out = alpha * a b + beta * c, with the shapes and strides that lls_gemm takes; out and c have unit inner stride. */
typedef struct bench_lt_product {
    const lls_tensor *a, *b, *c, *out; /* c: NULL when beta is 0 */
    float alpha, beta;
    bool tf32;                     /* f32: products in TF32 */
    bool fast_accum;               /* fp8: sums are never promoted */
    const void *scale_a, *scale_b; /* fp8: device pointers to one f32 each; NULL: 1 */
} bench_lt_product;

/* How products of one shape are computed. */
typedef struct bench_lt_plan {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, out; /* as cuBLASLt sees them: see operand_of */
    cublasLtMatmulAlgo_t algo;
} bench_lt_plan;

/* The library with a workspace on one device. */
typedef struct bench_lt {
    lls_ctx *ctx;
    cublasLtHandle_t handle;
    void *workspace;
} bench_lt;

/* "13.0.2"; NULL with an error message when no library was found. */
const char *bench_lt_version(void);
/* Close both also after a failure. */
lls_status bench_lt_open(lls_ctx *ctx, bench_lt *out);
void bench_lt_close(bench_lt *lt);
/* Times the first 8 kernels that the library's heuristic names, rotating through `count` products of one shape, and
 * keeps the fastest. */
lls_status bench_lt_plan_open(bench_lt *lt, const bench_lt_product *products, int32_t count, bench_lt_plan *out);
void bench_lt_plan_close(bench_lt_plan *plan);
lls_status bench_lt_run(const bench_lt *lt, const bench_lt_plan *plan, const bench_lt_product *product,
                        lls_stream stream);

/* A peer's state: for each copy of a rotation one product, or several in a row. */
typedef struct bench_lt_calls {
    bench_lt lt;
    int32_t num_products, copies;
    bench_lt_plan *plans;       /* [num_products] */
    bench_lt_product *products; /* [num_products][copies]; without rows there is nothing to do */
    lls_tensor *views;          /* what products may point to: [num_products][copies][3] */
} bench_lt_calls;

/* The three that a bench_peer needs. The products are to be filled in between new and open; close also after a failure. */
lls_status bench_lt_calls_new(int32_t num_products, int32_t copies, bench_lt_calls **out);
lls_status bench_lt_calls_open(lls_ctx *ctx, bench_lt_calls *calls);
lls_status bench_lt_calls_run(int32_t copy, lls_stream stream, void *calls);
void bench_lt_calls_close(void *calls);

#endif
