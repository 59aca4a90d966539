/* A stand-in for libcublasLt, which needs a GPU: the functions that the peer calls, on host memory, by the definition of a
 * product of matrices stored by columns. Of the kernels that its heuristic names one is not valid, one fails when it is
 * called, one is fast and the rest are slow; status codes are cuBLAS's. */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "core/element.h"

enum { FAILS = 0, INVALID = 2, FAST = 5, SLOWNESS = 4 };

typedef struct layout {
    cudaDataType_t type;
    int64_t rows, cols, ld, batch_stride;
    int32_t batch;
} layout;

typedef struct description {
    cudaDataType_t scale_type;
    int32_t trans_a, trans_b;
    int8_t fast_accum;
    const float *scale_a, *scale_b;
} description;

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "failed";
}

size_t cublasLtGetVersion(void) {
    return 990102;
}

// ---- Descriptions -----------------------------------------------------------------------------------

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale_type) {
    (void)compute;
    description *d = calloc(1, sizeof *d);
    d->scale_type = scale_type;
    *desc = (void *)d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t copy(void *to, size_t size, const void *value, size_t bytes) {
    if (size != bytes) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
    description *d = (void *)desc;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return copy(&d->trans_a, sizeof d->trans_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return copy(&d->trans_b, sizeof d->trans_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return copy(&d->fast_accum, sizeof d->fast_accum, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return copy(&d->scale_a, sizeof d->scale_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return copy(&d->scale_b, sizeof d->scale_b, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld) {
    if (ld < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
    layout *l = calloc(1, sizeof *l);
    *l = (layout){.type = type, .rows = (int64_t)rows, .cols = (int64_t)cols, .ld = ld, .batch = 1};
    *out = (void *)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    free(l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t of, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes) {
    layout *l = (void *)of;
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return copy(&l->batch, sizeof l->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return copy(&l->batch_stride, sizeof l->batch_stride, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    *preference = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes) {
    uint64_t workspace;
    (void)preference;
    if (attribute != CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return CUBLAS_STATUS_INVALID_VALUE;
    return copy(&workspace, sizeof workspace, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t preference, int asked,
                                              cublasLtMatmulHeuristicResult_t *results, int *count) {
    (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)out, (void)preference;
    memset(results, 0, sizeof *results * (size_t)asked);
    for (int i = 0; i < asked; i++) {
        results[i].algo.data[0] = (uint64_t)i;
        results[i].state = i == INVALID ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    }
    *count = asked;
    return CUBLAS_STATUS_SUCCESS;
}

// ---- The product ------------------------------------------------------------------------------------

static lls_dtype dtype_of(cudaDataType_t type) {
    switch (type) {
    case CUDA_R_16F: return LLS_F16;
    case CUDA_R_16BF: return LLS_BF16;
    case CUDA_R_8F_E4M3: return LLS_F8_E4M3;
    case CUDA_R_8F_E5M2: return LLS_F8_E5M2;
    default: return LLS_F32;
    }
}

static double get(const layout *l, const void *data, int64_t batch, int64_t row, int64_t col) {
    int64_t at = batch * l->batch_stride + col * l->ld + row;
    if (l->type == CUDA_R_8I) return ((const int8_t *)data)[at];
    if (l->type == CUDA_R_32I) return ((const int32_t *)data)[at];
    lls_tensor t = {.data = (void *)data, .dtype = dtype_of(l->type)};
    return lls__get(&t, at);
}

static void put(const layout *l, void *data, int64_t batch, int64_t row, int64_t col, double value) {
    int64_t at = batch * l->batch_stride + col * l->ld + row;
    lls_tensor t = {.data = data, .dtype = dtype_of(l->type)};
    if (l->type == CUDA_R_32I) ((int32_t *)data)[at] = (int32_t)value;
    else lls__set(&t, at, value);
}

static double factor(const description *d, const void *value) {
    return d->scale_type == CUDA_R_32I ? *(const int32_t *)value : (double)*(const float *)value;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *out,
                              cublasLtMatrixLayout_t out_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    const description *d = (const void *)desc;
    const layout *la = (const void *)a_layout, *lb = (const void *)b_layout, *lc = (const void *)c_layout,
                 *lo = (const void *)out_layout;
    (void)handle, (void)workspace, (void)workspace_bytes, (void)stream;
    if (algo->data[0] == FAILS) return CUBLAS_STATUS_NOT_SUPPORTED;
    bool bytes = la->type == CUDA_R_8I || la->type == CUDA_R_8F_E4M3 || la->type == CUDA_R_8F_E5M2;
    if (bytes && !(d->trans_a && !d->trans_b)) return CUBLAS_STATUS_NOT_SUPPORTED;
    int64_t m = d->trans_a ? la->cols : la->rows, k = d->trans_a ? la->rows : la->cols;
    int64_t n = d->trans_b ? lb->rows : lb->cols;
    bool fits = m == lo->rows && n == lo->cols && k == (d->trans_b ? lb->cols : lb->rows);
    if (!fits || la->batch != lo->batch || lb->batch != lo->batch) return CUBLAS_STATUS_INVALID_VALUE;
    double scale = factor(d, alpha) * (d->scale_a ? (double)*d->scale_a : 1) * (d->scale_b ? (double)*d->scale_b : 1);
    for (int pass = 0; pass < (algo->data[0] == FAST ? 1 : SLOWNESS); pass++) {
        for (int64_t i = 0; i < lo->batch * m * n; i++) {
            int64_t batch = i / (m * n), row = i % m, col = i / m % n;
            double sum = 0;
            for (int64_t j = 0; j < k; j++) {
                sum += (d->trans_a ? get(la, a, batch, j, row) : get(la, a, batch, row, j)) *
                       (d->trans_b ? get(lb, b, batch, col, j) : get(lb, b, batch, j, col));
            }
            double addend = factor(d, beta) == 0 ? 0 : factor(d, beta) * get(lc, c, batch, row, col);
            put(lo, out, batch, row, col, scale * sum + addend);
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}
