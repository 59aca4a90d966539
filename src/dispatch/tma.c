#include "dispatch/tma.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

#include "core/error.h"
#include "core/tensor.h"

static CUtensorMapDataType type_of(lls_dtype dtype) {
    switch (dtype) {
    case LLS_F32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case LLS_I32: return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case LLS_F16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case LLS_BF16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    default: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    }
}

// Bytes from one index of an axis to the next. An axis of size 1 is never stepped along: anything that is allowed.
static int64_t step_bytes(int64_t size, int64_t stride, int64_t elem_bytes) {
    return size > 1 ? stride * elem_bytes : 16;
}

static bool step_fits(int64_t bytes) {
    return bytes > 0 && bytes % 16 == 0 && bytes < (int64_t)1 << 40;
}

bool lls__tma_reaches(const lls__tma_tensor *t) {
    int64_t size = lls__elem_size(t->dtype), most = (int64_t)1 << 32;
    // Coordinates are signed 32-bit numbers.
    return (uintptr_t)t->data % 16 == 0 && t->cols < most / 2 && t->rows < most / 2 && t->depth < most / 2 &&
           step_fits(step_bytes(t->rows, t->row_stride, size)) &&
           step_fits(step_bytes(t->depth, t->depth_stride, size));
}

// The driver's entry point, found at run time: the library must load where there is no driver.
static PFN_cuTensorMapEncodeTiled_v12000 encode;
static pthread_once_t encode_once = PTHREAD_ONCE_INIT;

static void find_encode(void) {
    void *symbol = NULL;
    enum cudaDriverEntryPointQueryResult found;
    cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &symbol, 12000, cudaEnableDefault, &found);
    if (error) cudaGetLastError();
    if (!error && found == cudaDriverEntryPointSuccess) encode = (PFN_cuTensorMapEncodeTiled_v12000)symbol;
}

// Lines of L2 that are fetched for a part of them: where rows do not begin with one, a box's neighbours are not wanted.
static CUtensorMapL2promotion promotion(int64_t row_bytes) {
    return row_bytes % 256 == 0   ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
           : row_bytes % 128 == 0 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
                                  : CU_TENSOR_MAP_L2_PROMOTION_NONE;
}

lls_status lls__tma_encode(const lls__tma_tensor *t, CUtensorMap *out) {
    pthread_once(&encode_once, find_encode);
    if (!encode) return lls__fail(LLS_ERR_CUDA, "tma: the driver has no cuTensorMapEncodeTiled, CUDA 12.0 has");
    int64_t size = lls__elem_size(t->dtype);
    cuuint64_t dims[] = {(cuuint64_t)t->cols, (cuuint64_t)t->rows, (cuuint64_t)t->depth};
    cuuint64_t strides[] = {(cuuint64_t)step_bytes(t->rows, t->row_stride, size),
                            (cuuint64_t)step_bytes(t->depth, t->depth_stride, size)};
    cuuint32_t box[] = {(cuuint32_t)t->box_cols, (cuuint32_t)t->box_rows, 1}, steps[] = {1, 1, 1};
    CUtensorMapSwizzle swizzle = t->box_cols * size == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE;
    CUresult result = encode(out, type_of(t->dtype), 3, t->data, dims, strides, box, steps,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion((int64_t)strides[0]),
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_SUCCESS) return LLS_OK;
    return lls__fail(LLS_ERR_CUDA, "tma: no descriptor for [%lld][%lld][%lld] %s, box %d x %d (driver error %d)",
                     (long long)t->depth, (long long)t->rows, (long long)t->cols, lls_dtype_name(t->dtype), t->box_rows,
                     t->box_cols, (int)result);
}
