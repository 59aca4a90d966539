#include "core/tensor.h"

#include <stdio.h>
#include <string.h>

#include "core/ctx.h"
#include "core/error.h"

static const struct dtype_row {
    lls_dtype dtype;
    const char *name;
    int32_t block_elems, block_bytes;
} dtype_table[] = {
    {LLS_F32, "f32", 1, 4},       {LLS_F16, "f16", 1, 2},         {LLS_BF16, "bf16", 1, 2},
    {LLS_I8, "i8", 1, 1},         {LLS_U8, "u8", 1, 1},           {LLS_I32, "i32", 1, 4},
    {LLS_I64, "i64", 1, 8},       {LLS_F8_E4M3, "f8_e4m3", 1, 1}, {LLS_F8_E5M2, "f8_e5m2", 1, 1},
    {LLS_Q4_0, "q4_0", 32, 18},   {LLS_Q4_1, "q4_1", 32, 20},     {LLS_Q5_0, "q5_0", 32, 22},
    {LLS_Q5_1, "q5_1", 32, 24},   {LLS_Q8_0, "q8_0", 32, 34},     {LLS_Q4_K, "q4_k", 256, 144},
    {LLS_Q5_K, "q5_k", 256, 176}, {LLS_Q6_K, "q6_k", 256, 210},
};

static const struct dtype_row *dtype_find(lls_dtype dtype) {
    for (size_t i = 0; i < sizeof dtype_table / sizeof *dtype_table; i++) {
        if (dtype_table[i].dtype == dtype) return &dtype_table[i];
    }
    return NULL;
}

const char *lls_dtype_name(lls_dtype dtype) {
    const struct dtype_row *row = dtype_find(dtype);
    return row ? row->name : "unknown";
}

int64_t lls_dtype_block_elems(lls_dtype dtype) {
    const struct dtype_row *row = dtype_find(dtype);
    return row ? row->block_elems : 0;
}

int64_t lls_dtype_block_bytes(lls_dtype dtype) {
    const struct dtype_row *row = dtype_find(dtype);
    return row ? row->block_bytes : 0;
}

lls_tensor lls_tensor_make(void *data, lls_dtype dtype, lls_device device, int32_t ndim, const int64_t *shape) {
    lls_tensor t = {.data = data, .dtype = dtype, .device = device};
    if (ndim < 0 || ndim > LLS_MAX_DIMS) return t;
    t.ndim = ndim;
    int64_t stride = 1;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        t.shape[i] = shape[i];
        t.stride[i] = stride;
        stride *= shape[i];
    }
    return t;
}

int64_t lls_tensor_numel(const lls_tensor *t) {
    int64_t n = 1;
    for (int32_t i = 0; i < t->ndim; i++) n *= t->shape[i];
    return n;
}

int64_t lls__tensor_extent(const lls_tensor *t) {
    if (lls_tensor_numel(t) == 0) return 0;
    int64_t last = 0;
    for (int32_t i = 0; i < t->ndim; i++) last += (t->shape[i] - 1) * (t->shape[i] > 1 ? t->stride[i] : 0);
    int64_t elems = lls_dtype_block_elems(t->dtype);
    return (last + elems) / elems * lls_dtype_block_bytes(t->dtype);
}

double lls__tensor_bytes(const lls_tensor *t) {
    if (!t || lls_tensor_numel(t) == 0) return 0;
    double elems = 1, block = (double)lls_dtype_block_elems(t->dtype), bytes = (double)lls_dtype_block_bytes(t->dtype);
    for (int32_t i = 0; i < t->ndim; i++)
        elems *= t->layout == LLS_STRIDED && t->stride[i] == 0 ? 1 : (double)t->shape[i];
    double all = elems / block * bytes, span = (double)lls__tensor_extent(t);
    return t->layout == LLS_STRIDED && span < all ? span : all;
}

double lls__tensor_rows_bytes(const lls_tensor *t, int64_t rows) {
    double share = t && rows < t->shape[0] ? (double)rows / (double)t->shape[0] : 1;
    return share * lls__tensor_bytes(t);
}

bool lls__tensor_same_view(const lls_tensor *a, const lls_tensor *b) {
    if (a->data != b->data || a->dtype != b->dtype || a->ndim != b->ndim) return false;
    for (int32_t i = 0; i < a->ndim; i++) {
        if (a->shape[i] != b->shape[i] || (a->shape[i] > 1 && a->stride[i] != b->stride[i])) return false;
    }
    return true;
}

// The column slice [first byte, one past last byte) that a view of row-major rows occupies within a period of `period`
// bytes.
// False when some axis neither fits in the period nor is a multiple of it.
static bool column_slice(const lls_tensor *t, int64_t period, int64_t *begin, int64_t *end) {
    int64_t size = lls__elem_size(t->dtype), width = size;
    for (int32_t i = 0; i < t->ndim; i++) {
        int64_t step = t->stride[i] * size;
        if (t->shape[i] <= 1 || step % period == 0) continue;
        width += (t->shape[i] - 1) * step;
    }
    *begin = (int64_t)((uintptr_t)t->data % (uintptr_t)period);
    *end = *begin + width;
    return width <= period;
}

static int64_t largest_step(const lls_tensor *t) {
    int64_t step = 0;
    for (int32_t i = 0; i < t->ndim; i++) {
        if (t->shape[i] > 1 && t->stride[i] > step) step = t->stride[i];
    }
    return step * lls__elem_size(t->dtype);
}

bool lls__tensor_overlap(const lls_tensor *a, const lls_tensor *b) {
    int64_t na = lls__tensor_extent(a), nb = lls__tensor_extent(b);
    const char *pa = a->data, *pb = b->data;
    if (na == 0 || nb == 0 || pa + na <= pb || pb + nb <= pa) return false;
    if (a->layout != LLS_STRIDED || b->layout != LLS_STRIDED || lls_dtype_block_elems(a->dtype) > 1 ||
        lls_dtype_block_elems(b->dtype) > 1)
        return true;
    // Slices of one buffer interleave without touching. Any row step of either is a period worth trying.
    for (int32_t i = 0; i < a->ndim; i++) {
        int64_t period = a->shape[i] > 1 ? a->stride[i] * lls__elem_size(a->dtype) : 0, a0, a1, b0, b1;
        if (period <= 0 || largest_step(b) % period != 0) continue;
        if (!column_slice(a, period, &a0, &a1) || !column_slice(b, period, &b0, &b1)) continue;
        bool apart = (a1 <= b0 || b1 <= a0) && (a1 <= b0 + period && b1 <= a0 + period);
        if (apart) return false;
    }
    return true;
}

bool lls__tensor_flatten_rows(const lls_tensor *t, lls_tensor *rows) {
    *rows = *t;
    rows->ndim = 2;
    int32_t inner = t->ndim - 1;
    rows->shape[1] = t->shape[inner];
    rows->stride[1] = t->stride[inner];
    rows->shape[0] = 1;
    rows->stride[0] = t->shape[inner];
    for (int32_t i = inner - 1; i >= 0; i--) {
        if (t->shape[i] == 1) continue;
        if (rows->shape[0] == 1) {
            rows->stride[0] = t->stride[i];
        } else if (t->stride[i] != rows->stride[0] * rows->shape[0]) {
            return lls_tensor_numel(t) == 0;
        }
        rows->shape[0] *= t->shape[i];
    }
    return true;
}

static void list_dtypes(lls__dtypes set, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < sizeof dtype_table / sizeof *dtype_table && used < size; i++) {
        if (set & LLS__DTYPE(dtype_table[i].dtype)) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", dtype_table[i].name);
        }
    }
}

lls_status lls__check_tensor(const lls_ctx *ctx, const char *op, const char *name, const lls_tensor *t,
                             int32_t min_ndim, int32_t max_ndim, lls__dtypes dtypes) {
    if (!ctx) return lls__fail(LLS_ERR_ARGUMENT, "%s: ctx is NULL", op);
    if (!t) return lls__fail(LLS_ERR_ARGUMENT, "%s: %s is NULL, must be a tensor", op, name);
    if (!dtype_find(t->dtype) || !(dtypes & LLS__DTYPE(t->dtype))) {
        char wanted[160];
        list_dtypes(dtypes, wanted, sizeof wanted);
        return lls__fail(LLS_ERR_DTYPE, "%s: %s.dtype is %s (%d), must be one of %s", op, name,
                         lls_dtype_name(t->dtype), (int)t->dtype, wanted);
    }
    if (t->device.type != ctx->device.type || t->device.index != ctx->device.index) {
        return lls__fail(LLS_ERR_DEVICE, "%s: %s is on %s:%d, must be on the context's device %s:%d", op, name,
                         lls__device_name(t->device.type), t->device.index, lls__device_name(ctx->device.type),
                         ctx->device.index);
    }
    if (t->layout != LLS_STRIDED)
        return lls__fail(LLS_ERR_STRIDE, "%s: %s has layout %d, must be LLS_STRIDED", op, name, (int)t->layout);
    if (t->ndim < min_ndim || t->ndim > max_ndim) {
        return min_ndim == max_ndim
                   ? lls__fail(LLS_ERR_SHAPE, "%s: %s.ndim is %d, must be %d", op, name, t->ndim, min_ndim)
                   : lls__fail(LLS_ERR_SHAPE, "%s: %s.ndim is %d, must be %d to %d", op, name, t->ndim, min_ndim,
                               max_ndim);
    }
    int64_t numel = 1, extent = 1;
    for (int32_t i = 0; i < t->ndim; i++) {
        if (t->shape[i] < 0)
            return lls__fail(LLS_ERR_SHAPE, "%s: %s.shape[%d] is %lld, must be >= 0", op, name, i,
                             (long long)t->shape[i]);
        if (t->shape[i] > 1 && t->stride[i] < 0) {
            return lls__fail(LLS_ERR_STRIDE, "%s: %s.stride[%d] is %lld, must be >= 0", op, name, i,
                             (long long)t->stride[i]);
        }
        int64_t step;
        if (__builtin_mul_overflow(numel, t->shape[i], &numel) ||
            __builtin_mul_overflow(t->shape[i] > 1 ? t->shape[i] - 1 : 0, t->shape[i] > 1 ? t->stride[i] : 0, &step) ||
            __builtin_add_overflow(extent, step, &extent) || extent > INT64_MAX / 16) {
            return lls__fail(LLS_ERR_SHAPE, "%s: %s spans more than 2^59 elements", op, name);
        }
    }
    if (numel == 0) return LLS_OK;
    if (!t->data)
        return lls__fail(LLS_ERR_ARGUMENT, "%s: %s.data is NULL, must point to %lld elements", op, name,
                         (long long)numel);
    int64_t align = lls_dtype_block_elems(t->dtype) == 1 ? lls__elem_size(t->dtype)
                                                         : 1; // GGUF blocks are byte-aligned by their readers
    if ((uintptr_t)t->data % (uintptr_t)align) {
        return lls__fail(LLS_ERR_STRIDE, "%s: %s.data %p must be aligned to %lld bytes", op, name, t->data,
                         (long long)align);
    }
    if (lls_dtype_block_elems(t->dtype) > 1) {
        int64_t k = t->shape[t->ndim - 1];
        if (k % lls_dtype_block_elems(t->dtype)) {
            return lls__fail(LLS_ERR_SHAPE, "%s: %s.shape[%d] is %lld, must be a multiple of %s's block of %lld", op,
                             name, t->ndim - 1, (long long)k, lls_dtype_name(t->dtype),
                             (long long)lls_dtype_block_elems(t->dtype));
        }
        if (t->ndim > 1 && t->shape[0] > 1 && t->stride[0] != k) {
            return lls__fail(LLS_ERR_STRIDE, "%s: %s.stride[0] is %lld, block-quantised rows must be contiguous: %lld",
                             op, name, (long long)t->stride[0], (long long)k);
        }
    }
    return LLS_OK;
}

lls_status lls__check_dim(const char *op, const char *name, const lls_tensor *t, int32_t dim, int64_t want,
                          const char *source) {
    if (t->shape[dim] == want) return LLS_OK;
    return lls__fail(LLS_ERR_SHAPE, "%s: %s.shape[%d] is %lld, must equal %s = %lld", op, name, dim,
                     (long long)t->shape[dim], source, (long long)want);
}

lls_status lls__check_same_shape(const char *op, const char *name, const lls_tensor *t, const char *ref_name,
                                 const lls_tensor *ref) {
    if (t->ndim != ref->ndim)
        return lls__fail(LLS_ERR_SHAPE, "%s: %s.ndim is %d, must equal %s.ndim = %d", op, name, t->ndim, ref_name,
                         ref->ndim);
    for (int32_t i = 0; i < t->ndim; i++) {
        if (t->shape[i] != ref->shape[i]) {
            return lls__fail(LLS_ERR_SHAPE, "%s: %s.shape[%d] is %lld, must equal %s.shape[%d] = %lld", op, name, i,
                             (long long)t->shape[i], ref_name, i, (long long)ref->shape[i]);
        }
    }
    return LLS_OK;
}

lls_status lls__check_same_dtype(const char *op, const char *name, const lls_tensor *t, const char *ref_name,
                                 const lls_tensor *ref) {
    if (t->dtype == ref->dtype) return LLS_OK;
    return lls__fail(LLS_ERR_DTYPE, "%s: %s.dtype is %s, must equal %s.dtype = %s", op, name, lls_dtype_name(t->dtype),
                     ref_name, lls_dtype_name(ref->dtype));
}

lls_status lls__check_inner_contiguous(const char *op, const char *name, const lls_tensor *t) {
    int32_t last = t->ndim - 1;
    if (t->shape[last] <= 1 || t->stride[last] == 1) return LLS_OK;
    return lls__fail(LLS_ERR_STRIDE, "%s: %s.stride[%d] is %lld, must be 1", op, name, last,
                     (long long)t->stride[last]);
}

lls_status lls__check_no_self_overlap(const char *op, const char *name, const lls_tensor *t) {
    if (lls_tensor_numel(t) <= 1) return LLS_OK;
    // Sort the axes by stride: each must step over everything that the smaller ones span.
    int32_t order[LLS_MAX_DIMS], n = 0;
    for (int32_t i = 0; i < t->ndim; i++) {
        if (t->shape[i] > 1) order[n++] = i;
    }
    for (int32_t i = 1; i < n; i++) {
        for (int32_t j = i; j > 0 && t->stride[order[j]] < t->stride[order[j - 1]]; j--) {
            int32_t swap = order[j];
            order[j] = order[j - 1], order[j - 1] = swap;
        }
    }
    int64_t span = 1;
    for (int32_t i = 0; i < n; i++) {
        int32_t axis = order[i];
        if (t->stride[axis] < span) {
            return lls__fail(LLS_ERR_STRIDE,
                             "%s: %s.stride[%d] is %lld, below the %lld elements it must step over (elements of an "
                             "output may not coincide)",
                             op, name, axis, (long long)t->stride[axis], (long long)span);
        }
        span += (t->shape[axis] - 1) * t->stride[axis];
    }
    return LLS_OK;
}

lls_status lls__check_disjoint(const char *op, const char *name, const lls_tensor *t, const char *other_name,
                               const lls_tensor *other) {
    if (!lls__tensor_overlap(t, other)) return LLS_OK;
    return lls__fail(LLS_ERR_ALIAS, "%s: %s at %p overlaps %s at %p, must be disjoint", op, name, t->data, other_name,
                     other->data);
}

lls_status lls__check_in_place_or_disjoint(const char *op, const char *name, const lls_tensor *t,
                                           const char *other_name, const lls_tensor *other) {
    if (lls__tensor_same_view(t, other) || !lls__tensor_overlap(t, other)) return LLS_OK;
    return lls__fail(LLS_ERR_ALIAS, "%s: %s at %p partly overlaps %s at %p, must be the same view or disjoint", op,
                     name, t->data, other_name, other->data);
}

lls_status lls__check_vector(const lls_ctx *ctx, const char *op, const char *name, const lls_tensor *t, int64_t len,
                             const char *source, lls__dtypes dtypes) {
    lls_status status = lls__check_tensor(ctx, op, name, t, 1, 1, dtypes);
    if (!status) status = lls__check_dim(op, name, t, 0, len, source);
    if (!status) status = lls__check_inner_contiguous(op, name, t);
    return status;
}

lls_status lls__copy_args(const char *op, void *dst, size_t dst_size, const void *src) {
    size_t src_size;
    if (!src) return lls__fail(LLS_ERR_ARGUMENT, "%s: args is NULL", op);
    memcpy(&src_size, src, sizeof src_size);
    if (src_size < sizeof src_size)
        return lls__fail(LLS_ERR_ARGUMENT, "%s: args.struct_size is %zu, must be %zu (use the _INIT macro)", op,
                         src_size, dst_size);
    for (size_t i = dst_size; i < src_size; i++) {
        if (((const char *)src)[i]) {
            return lls__fail(LLS_ERR_ARGUMENT,
                             "%s: args has %zu bytes, this library knows %zu and the rest is not zero: the caller was "
                             "built for a newer version",
                             op, src_size, dst_size);
        }
    }
    memset(dst, 0, dst_size);
    memcpy(dst, src, src_size < dst_size ? src_size : dst_size);
    return LLS_OK;
}
