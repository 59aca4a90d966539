/* What gemm's test files share: operands that lie in memory in every way, a product described by a struct and run from it,
 * and the cases that each file adds to the suite. */
#ifndef LLS_OPS_GEMM_GEMM_TEST_H
#define LLS_OPS_GEMM_GEMM_TEST_H

#include "harness/harness.h"

/* ---- Operands (gemm_product_test.c) ---- */

/* How one operand lies in memory. */
typedef struct gemm_layout {
    bool transposed; /* columns are contiguous */
    int64_t pad;     /* elements between the contiguous rows (or columns): the harness fills them with NaN */
    bool shifted;    /* starts one element into its buffer: aligned to the element and no further */
    bool broadcast;  /* stride 0 along the batch */
} gemm_layout;

/* Element i, row-major, of the buffer whose rows have *(const int64_t *)cols elements. */
typedef double gemm_fill(int64_t i, const void *cols);

/* A matrix [rows, cols], or [batch, rows, cols] for batch > 0. fill NULL: normal numbers. */
lls_tensor gemm_matrix(th *h, lls_dtype dtype, int64_t batch, int64_t rows, int64_t cols, gemm_layout l,
                       gemm_fill *fill);
/* The index that gemm_matrix() gave to fill() for element (row, col) of a single matrix. */
int64_t gemm_fill_index(int64_t cols, gemm_layout l, int64_t row, int64_t col);

/* Integers -4 to 4, others than th_hash9's; all of int8, -128 included; NaN and infinities by turns. */
gemm_fill gemm_hash9_of_b, gemm_i8_of_a, gemm_i8_of_b, gemm_poison, gemm_one, gemm_three;

lls_gemm_args gemm_args_of(const th *h, const lls_tensor *a, const lls_tensor *b, const lls_tensor *out);

/* ---- A product (gemm_product_test.c) ---- */

typedef void gemm_case_fn(th *h, const void *param);

typedef enum gemm_scaling {
    GEMM_UNSCALED = 0,
    GEMM_BY_ONE,
    GEMM_BY_LINE,   /* rows of a and out, columns of b */
    GEMM_BY_COLUMN, /* of out */
    GEMM_BY_BLOCK,  /* of 128: rows of a, squares of b */
} gemm_scaling;

typedef struct gemm_product {
    int64_t batch, m, n, k;
    lls_dtype in, in_b, out; /* in_b 0: in */
    gemm_layout a, b, c, o;
    float alpha, beta;
    bool in_place;      /* c is out */
    lls_dtype bias;     /* 0: none */
    lls_dtype residual; /* 0: none */
    bool residual_is_out;
    lls_gemm_act act;
    bool gated;
    gemm_scaling scale_a, scale_b, scale_out;
    gemm_layout scale_layout; /* of all scales */
    bool scale_batch;         /* they have the batch axis too */
    uint32_t flags;
    bool exact; /* Integers and powers of two, such that fp32 sums are exact and one rounding is left: compared bit for
                 * bit. Each seventh scale is 0. Else normal numbers. */
} gemm_product;

/* Runs it and registers out, which `out` receives unless NULL. */
bool gemm_run(th *h, const gemm_product *p, lls_tensor *out);
/* A case of the suite that is given the product (run NULL: runs it); its name is the prefix and what the struct says. */
void gemm_run_case(th *h, const char *prefix, gemm_case_fn *run, gemm_product p);
/* What the sums of this product may be off by, as a tolerance of out. */
double gemm_tol(const gemm_product *p);

/* ---- Cases ---- */

/* gemm_scale_test.c */
gemm_case_fn gemm_scales_of_zero, gemm_block_scales_by_hand;
void gemm_generate_scales(th *h);
/* gemm_epilogue_test.c */
gemm_case_fn gemm_activations, gemm_gated_pairs, gemm_everything_in_place;
void gemm_generate_epilogues(th *h);
/* gemm_pointers_test.c */
void gemm_generate_pointers(th *h);
/* gemm_edges_test.c */
gemm_case_fn gemm_past_2_31_elements;
void gemm_generate_edges(th *h);
/* gemm_invariance_test.c */
void gemm_generate_invariance(th *h);
/* gemm_errors_test.c */
gemm_case_fn gemm_errors, gemm_errors_of_i8, gemm_errors_of_scales, gemm_errors_of_epilogues, gemm_errors_of_pointers,
    gemm_errors_of_configs;

#endif
