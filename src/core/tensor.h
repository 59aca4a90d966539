/* Tensor views: geometry, and the checks that every op's validator is made of.
 * Each check names the op, the argument, the value got and the value wanted. */
#ifndef LLS_CORE_TENSOR_H
#define LLS_CORE_TENSOR_H

#include "llmspeed/core.h"

/* Sets of dtypes as bit masks. */
typedef uint64_t lls__dtypes;
#define LLS__DTYPE(d) ((lls__dtypes)1 << (d))
#define LLS__FLOATS (LLS__DTYPE(LLS_F32) | LLS__DTYPE(LLS_F16) | LLS__DTYPE(LLS_BF16))
#define LLS__F8S (LLS__DTYPE(LLS_F8_E4M3) | LLS__DTYPE(LLS_F8_E5M2))
#define LLS__BLOCKS                                                                              \
    (LLS__DTYPE(LLS_Q4_0) | LLS__DTYPE(LLS_Q4_1) | LLS__DTYPE(LLS_Q5_0) | LLS__DTYPE(LLS_Q5_1) | \
     LLS__DTYPE(LLS_Q8_0) | LLS__DTYPE(LLS_Q4_K) | LLS__DTYPE(LLS_Q5_K) | LLS__DTYPE(LLS_Q6_K))

static inline bool lls__is_float(lls_dtype d) {
    return d == LLS_F32 || d == LLS_F16 || d == LLS_BF16;
}

/* f32, f16, bf16 as 0, 1, 2: the order in which per-dtype kernels are listed. */
static inline int32_t lls__float_index(lls_dtype d) {
    return (int32_t)d - LLS_F32;
}

/* Bytes of an element of a plain dtype. */
static inline int64_t lls__elem_size(lls_dtype d) {
    return lls_dtype_block_bytes(d);
}

/* Address of element (i0, i1, ...) given its offset in elements; plain dtypes only. */
static inline void *lls__at(const lls_tensor *t, int64_t offset) {
    return (char *)t->data + offset * lls__elem_size(t->dtype);
}

/* Bytes from data to one past the last element that the view can reach. */
int64_t lls__tensor_extent(const lls_tensor *t);
/* Bytes of the distinct elements: an axis of stride 0 counts once, rows that overlap count what they span. 0 for NULL. */
double lls__tensor_bytes(const lls_tensor *t);
/* The same for `rows` of its rows, which are picked one by one: no more than it has. */
double lls__tensor_rows_bytes(const lls_tensor *t, int64_t rows);
bool lls__tensor_same_view(const lls_tensor *a, const lls_tensor *b);
/* Whether any byte may belong to both. Exact for disjoint ranges and for column slices of one row-major buffer. */
bool lls__tensor_overlap(const lls_tensor *a, const lls_tensor *b);

/* A view of the same memory with the leading axes (all but the last `keep`) merged into one, when their strides allow
 * it. */
bool lls__tensor_flatten_rows(const lls_tensor *t, lls_tensor *rows);

/* Present, right device, plain layout, rank within [min_ndim, max_ndim], one of the dtypes, sizes and strides not
 * negative, data not NULL and aligned to its element. */
lls_status lls__check_tensor(const lls_ctx *ctx, const char *op, const char *name, const lls_tensor *t,
                             int32_t min_ndim, int32_t max_ndim, lls__dtypes dtypes);
/* t.shape[dim] == want; `source` says where the wanted value comes from, e.g. "x.shape[1]". */
lls_status lls__check_dim(const char *op, const char *name, const lls_tensor *t, int32_t dim, int64_t want,
                          const char *source);
lls_status lls__check_same_shape(const char *op, const char *name, const lls_tensor *t, const char *ref_name,
                                 const lls_tensor *ref);
lls_status lls__check_same_dtype(const char *op, const char *name, const lls_tensor *t, const char *ref_name,
                                 const lls_tensor *ref);
/* stride of the last axis is 1 (or that axis has at most one element). */
lls_status lls__check_inner_contiguous(const char *op, const char *name, const lls_tensor *t);
/* Distinct elements of an output must not share memory. */
lls_status lls__check_no_self_overlap(const char *op, const char *name, const lls_tensor *t);
lls_status lls__check_disjoint(const char *op, const char *name, const lls_tensor *t, const char *other_name,
                               const lls_tensor *other);
/* Disjoint, or exactly the same view ("in place"). */
lls_status lls__check_in_place_or_disjoint(const char *op, const char *name, const lls_tensor *t,
                                           const char *other_name, const lls_tensor *other);
/* Contiguous 1-d vector of `len` elements of one of the dtypes. */
lls_status lls__check_vector(const lls_ctx *ctx, const char *op, const char *name, const lls_tensor *t, int64_t len,
                             const char *source, lls__dtypes dtypes);

/* Copies a caller's args struct into ours: a shorter (older) one leaves zeros, a longer (newer) one is an error unless
 * its tail is zero. */
lls_status lls__copy_args(const char *op, void *dst, size_t dst_size, const void *src);

#endif
