/* Tensors of a case, filled so that equal coordinates hold equal values whatever the tensor's size. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/element.h"
#include "core/error.h"
#include "state.h"

enum { TABLE = 1 << 16 };

static uint64_t mix(uint64_t z) { // splitmix64's finaliser (Steele, Lea and Flood 2014)
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double uniform(uint64_t key) {
    return ((double)(mix(key) >> 11) + 0.5) * 0x1p-53;
}

static float gaussian(uint64_t key) { // Box and Muller 1958
    return (float)(sqrt(-2 * log(uniform(2 * key))) * cos(6.283185307179586 * uniform(2 * key + 1)));
}

// Where a row's values begin in a table of noise: a hash of the tensor's order and the row's coordinates.
static uint64_t row_start(const lls_tensor *t, int32_t order, int64_t row) {
    uint64_t key = (uint64_t)order * 0x9e3779b97f4a7c15u;
    for (int32_t i = t->ndim - 2; i >= 0; i--) {
        key = mix(key + (uint64_t)(row % t->shape[i]) + 1);
        row /= t->shape[i];
    }
    return mix(key);
}

static int64_t row_length(const lls_tensor *t) {
    return t->ndim ? t->shape[t->ndim - 1] : 1;
}

static void fill_floats(const lls_tensor *t, int32_t order, double scale) {
    static float noise[TABLE];
    if (noise[0] == 0) {
        for (int i = 0; i < TABLE; i++) noise[i] = gaussian((uint64_t)i);
    }
    // A row of the table in the tensor's dtype, twice over, so that rows are copies from any start.
    int64_t length = row_length(t), rows = length ? lls_tensor_numel(t) / length : 0, size = lls__elem_size(t->dtype);
    lls_tensor table = *t;
    table.data = malloc((size_t)(2 * TABLE * size));
    if (!table.data) return;
    for (int64_t i = 0; i < 2 * TABLE; i++) lls__set(&table, i, scale * (double)noise[i % TABLE]);
    for (int64_t r = 0; r < rows; r++) {
        int64_t start = (int64_t)(row_start(t, order, r) % TABLE);
        for (int64_t done = 0; done < length; done += TABLE) {
            int64_t n = length - done < TABLE ? length - done : TABLE;
            memcpy(lls__at(t, r * length + done), lls__at(&table, start), (size_t)(n * size));
        }
    }
    free(table.data);
}

// GGUF blocks: random codes, and scales that make weights of about the deviation asked for, around zero.
typedef struct block_format {
    lls_dtype dtype;
    int32_t scale_at, min_at; // byte offsets of the f16 fields; -1: none
    double unit;              // deviation of code times sub-scale
    double min;               // the second field, in units of the first
} block_format;

static const block_format formats[] = {
    {LLS_Q4_0, 0, -1, 5, 0},   {LLS_Q4_1, 0, 2, 5, -7.5},   {LLS_Q5_0, 0, -1, 9, 0},     {LLS_Q5_1, 0, 2, 9, -15.5},
    {LLS_Q8_0, 0, -1, 74, 0},  {LLS_Q4_K, 0, 2, 200, 7.5},  {LLS_Q5_K, 0, 2, 400, 15.5}, {LLS_Q6_K, 208, -1, 1370, 0},
};

static void fill_blocks(const lls_tensor *t, int32_t order, double scale) {
    const block_format *f = formats;
    while (f->dtype != t->dtype) f++;
    int64_t block = lls_dtype_block_bytes(t->dtype), length = row_length(t) / lls_dtype_block_elems(t->dtype);
    int64_t rows = lls_tensor_numel(t) / row_length(t);
    for (int64_t r = 0; r < rows; r++) {
        uint64_t start = row_start(t, order, r);
        for (int64_t i = 0; i < length; i++) {
            unsigned char *p = (unsigned char *)t->data + (r * length + i) * block;
            uint64_t key = start + (uint64_t)(i * block);
            for (int64_t j = 0; j < block; j += 8) {
                uint64_t bits = mix(key + (uint64_t)j);
                memcpy(p + j, &bits, (size_t)(block - j < 8 ? block - j : 8));
            }
            double size = scale / f->unit * (0.5 + uniform(key));
            uint16_t first = lls__f32_to_f16((float)size), second = lls__f32_to_f16((float)(size * f->min));
            memcpy(p + f->scale_at, &first, 2);
            if (f->min_at >= 0) memcpy(p + f->min_at, &second, 2);
        }
    }
}

// The next slot of the set; the last one is used again and again by a case that has too many.
static lls_tensor *next_slot(bench *b, double tol) {
    bench_set *set = b->set;
    lls_tensor *t = &set->tensors[set->num_tensors];
    set->tol[set->num_tensors] = tol;
    if (set->num_tensors < BENCH_MAX_TENSORS - 1) set->num_tensors++;
    else if (!b->status) b->status = lls__fail(LLS_ERR_INTERNAL, "bench: more than %d tensors", BENCH_MAX_TENSORS - 1);
    return t;
}

static lls_tensor *add(bench *b, lls_dtype dtype, int32_t ndim, const int64_t *shape, double tol) {
    lls_tensor *t = next_slot(b, tol);
    *t = lls_tensor_make(NULL, dtype, lls_ctx_device(b->ctx), ndim, shape);
    if (!b->status) b->status = bench_arena_take(b->arena, (size_t)bench_bytes(dtype, lls_tensor_numel(t)), &t->data);
    return t;
}

lls_tensor *bench_add_view(bench *b, const lls_tensor *of) {
    lls_tensor *t = next_slot(b, -1);
    *t = *of;
    return t;
}

// Fills a host copy of the tensor with `fill` and uploads it.
typedef void (*fill_fn)(const lls_tensor *host, int32_t order, const void *user);

static void fill(bench *b, lls_tensor *t, fill_fn fn, const void *user) {
    if (b->status) return;
    lls_tensor host = *t;
    size_t bytes = (size_t)bench_bytes(t->dtype, lls_tensor_numel(t));
    host.data = malloc(bytes ? bytes : 1);
    if (!host.data) {
        b->status = lls__fail(LLS_ERR_MEMORY, "bench: no memory for %zu bytes", bytes);
        return;
    }
    fn(&host, b->set->num_tensors, user);
    b->status = lls_upload(b->ctx, t->data, host.data, bytes, NULL);
    free(host.data);
}

static void fill_normal(const lls_tensor *host, int32_t order, const void *user) {
    if (lls__is_float(host->dtype)) fill_floats(host, order, *(const double *)user);
    else fill_blocks(host, order, *(const double *)user);
}

const lls_tensor *bench_normal(bench *b, lls_dtype dtype, int32_t ndim, const int64_t *shape, double scale) {
    lls_tensor *t = add(b, dtype, ndim, shape, -1);
    fill(b, t, fill_normal, &scale);
    return t;
}

typedef struct integers {
    int64_t (*fn)(int64_t i, const void *user);
    const void *user;
} integers;

static void fill_integers(const lls_tensor *host, int32_t order, const void *user) {
    const integers *source = user;
    int64_t n = lls_tensor_numel(host);
    (void)order;
    for (int64_t i = 0; i < n; i++) {
        int64_t value = source->fn(i, source->user);
        if (host->dtype == LLS_I64) ((int64_t *)host->data)[i] = value;
        else ((int32_t *)host->data)[i] = (int32_t)value;
    }
}

const lls_tensor *bench_integers(bench *b, lls_dtype dtype, int32_t ndim, const int64_t *shape,
                                 int64_t (*fn)(int64_t, const void *), const void *user) {
    lls_tensor *t = add(b, dtype, ndim, shape, -1);
    fill(b, t, fill_integers, &(integers){fn, user});
    return t;
}

static void fill_constant(const lls_tensor *host, int32_t order, const void *user) {
    int64_t n = lls_tensor_numel(host);
    (void)order;
    for (int64_t i = 0; i < n; i++) ((float *)host->data)[i] = (float)*(const double *)user;
}

const lls_tensor *bench_constant(bench *b, int32_t ndim, const int64_t *shape, double value) {
    lls_tensor *t = add(b, LLS_F32, ndim, shape, -1);
    fill(b, t, fill_constant, &value);
    return t;
}

static void fill_nan(const lls_tensor *host, int32_t order, const void *user) {
    (void)order, (void)user;
    memset(host->data, 0xff, (size_t)bench_bytes(host->dtype, lls_tensor_numel(host)));
}

const lls_tensor *bench_output(bench *b, lls_dtype dtype, int32_t ndim, const int64_t *shape, double tol) {
    lls_tensor *t = add(b, dtype, ndim, shape, tol);
    fill(b, t, fill_nan, NULL); // an element that nobody writes must not pass the check
    return t;
}

const lls_tensor *bench_transposed(bench *b, const lls_tensor *matrix) {
    lls_tensor *t = bench_add_view(b, matrix);
    t->shape[0] = matrix->shape[1], t->shape[1] = matrix->shape[0];
    t->stride[0] = matrix->stride[1], t->stride[1] = matrix->stride[0];
    return t;
}

bool bench_is_cuda(const bench *b) {
    return b->options->device.type == LLS_CUDA;
}

int64_t bench_cut(const bench *b, int64_t n, int64_t limit) {
    return b->oracle && n > limit ? limit : n;
}

void bench_param(bench *b, const char *name, int64_t value) {
    if (b->oracle) return; // its sizes are cut
    for (int32_t i = 0; i < b->row.num_params; i++) {
        if (strcmp(b->row.param_names[i], name) == 0) return;
    }
    if (b->row.num_params == BENCH_MAX_PARAMS) return;
    b->row.param_names[b->row.num_params] = name;
    b->row.param_values[b->row.num_params++] = value;
}

void bench_args(bench *b, const void *args, size_t bytes) {
    if (bytes > BENCH_MAX_ARGS_BYTES) {
        if (!b->status) b->status = lls__fail(LLS_ERR_INTERNAL, "bench: an argument struct has %zu bytes", bytes);
        return;
    }
    memcpy(b->set->args, args, bytes);
    b->set->args_bytes = bytes;
}

double bench_tol(lls_dtype dtype) {
    return dtype == LLS_F16 ? 2e-3 : dtype == LLS_BF16 ? 1e-2 : 1e-5;
}

double bench_bytes(lls_dtype dtype, int64_t elements) {
    return (double)(elements / lls_dtype_block_elems(dtype) * lls_dtype_block_bytes(dtype));
}
