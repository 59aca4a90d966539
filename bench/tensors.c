/* Tensors of a case, filled so that equal coordinates hold equal values whatever the tensor's size. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/element.h"
#include "core/error.h"
#include "state.h"

enum { TABLE = 1 << 16 }; // elements of noise

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

int64_t bench_row_length(const lls_tensor *t) {
    return t->ndim ? t->shape[t->ndim - 1] : 1;
}

int64_t bench_num_rows(const lls_tensor *t) {
    int64_t length = bench_row_length(t);
    return length ? lls_tensor_numel(t) / length : 0;
}

int64_t bench_whole_index(const bench *b, int64_t i, int64_t cut, int64_t whole) {
    return b->spread && cut > 1 ? i * (whole - 1) / (cut - 1) : i;
}

int64_t bench_whole_row(const bench *b, int64_t row, const lls_tensor *cut, const lls_tensor *whole) {
    int64_t found = 0, stride = 1;
    for (int32_t i = cut->ndim - 2; i >= 0; i--) {
        found += stride * bench_whole_index(b, row % cut->shape[i], cut->shape[i], whole->shape[i]);
        row /= cut->shape[i];
        stride *= whole->shape[i];
    }
    return found;
}

// Some rows of a tensor, in host memory, to be filled.
typedef struct part {
    const bench *b;
    const lls_tensor *t, *whole; // `whole` is what t would be if nothing were cut
    int32_t order;               // of t in its case
    int64_t begin, end;          // rows
    unsigned char *data;
} part;

// Where a row's values begin in a table of noise: a hash of the tensor's order and the row's coordinates.
static uint64_t row_start(const part *p, int64_t row) {
    uint64_t key = (uint64_t)p->order * 0x9e3779b97f4a7c15u;
    row = bench_whole_row(p->b, row, p->t, p->whole);
    for (int32_t i = p->whole->ndim - 2; i >= 0; i--) {
        key = mix(key + (uint64_t)(row % p->whole->shape[i]) + 1);
        row /= p->whole->shape[i];
    }
    return mix(key);
}

// Noise in a dtype, twice over, so that rows are copies from any start.
typedef struct noise {
    lls_dtype dtype;
    double scale;
    _Alignas(16) unsigned char table[2 * TABLE * sizeof(float)];
} noise;

// Those made last are kept: the copies of a case ask for the same few in turn, and making one takes a millisecond.
static const unsigned char *noise_table(lls_dtype dtype, double scale) {
    enum { KEPT = 8 };
    static noise kept[KEPT];
    static int32_t next;
    for (int32_t i = 0; i < KEPT; i++) {
        if (kept[i].dtype == dtype && kept[i].scale == scale) return kept[i].table;
    }
    noise *made = &kept[next++ % KEPT];
    made->dtype = dtype, made->scale = scale;
    lls_tensor t = {.data = made->table, .dtype = dtype};
    for (int64_t i = 0; i < TABLE; i++) {
        if (dtype == LLS_I8) ((int8_t *)made->table)[i] = (int8_t)(floor(255 * uniform((uint64_t)i)) - 127);
        else lls__set(&t, i, scale * (double)gaussian((uint64_t)i));
    }
    size_t bytes = (size_t)(TABLE * lls__elem_size(dtype));
    memcpy(made->table + bytes, made->table, bytes);
    return made->table;
}

static void fill_plain(const part *p, double scale) {
    const unsigned char *table = noise_table(p->t->dtype, scale);
    int64_t length = bench_row_length(p->t), whole = bench_row_length(p->whole), size = lls__elem_size(p->t->dtype);
    unsigned char *to = p->data;
    for (int64_t r = p->begin; r < p->end; r++) {
        const unsigned char *start = table + (int64_t)(row_start(p, r) % TABLE) * size;
        bool gaps = p->b->spread && length < whole;
        for (int64_t done = 0; done < length;) { // the row at once, or cut into lengths of the table, or by element
            int64_t n = gaps ? 1 : length - done < TABLE ? length - done : TABLE;
            int64_t from = gaps ? bench_whole_index(p->b, done, length, whole) % TABLE : 0;
            memcpy(to, start + from * size, (size_t)(n * size));
            done += n, to += n * size;
        }
    }
}

// GGUF blocks: random codes, and scales that make weights of about the deviation asked for, around zero.
typedef struct block_format {
    lls_dtype dtype;
    int32_t scale_at, min_at; // byte offsets of the f16 fields; -1: none
    double unit;              // deviation of code times sub-scale
    double min;               // the second field, in units of the first
} block_format;

static const block_format formats[] = {
    {LLS_Q4_0, 0, -1, 5, 0},  {LLS_Q4_1, 0, 2, 5, -7.5},  {LLS_Q5_0, 0, -1, 9, 0},     {LLS_Q5_1, 0, 2, 9, -15.5},
    {LLS_Q8_0, 0, -1, 74, 0}, {LLS_Q4_K, 0, 2, 200, 7.5}, {LLS_Q5_K, 0, 2, 400, 15.5}, {LLS_Q6_K, 208, -1, 1370, 0},
};

static void fill_blocks(const part *p, double scale) {
    const block_format *f = formats;
    while (f->dtype != p->t->dtype) f++;
    int64_t block = lls_dtype_block_bytes(p->t->dtype);
    int64_t length = bench_row_length(p->t) / lls_dtype_block_elems(p->t->dtype);
    unsigned char *to = p->data;
    for (int64_t r = p->begin; r < p->end; r++) {
        uint64_t start = row_start(p, r);
        for (int64_t i = 0; i < length; i++, to += block) {
            uint64_t key = start + (uint64_t)(i * block);
            for (int64_t j = 0; j < block; j += 8) {
                uint64_t bits = mix(key + (uint64_t)j);
                memcpy(to + j, &bits, (size_t)(block - j < 8 ? block - j : 8));
            }
            double size = scale / f->unit * (0.5 + uniform(key));
            uint16_t first = lls__f32_to_f16((float)size), second = lls__f32_to_f16((float)(size * f->min));
            memcpy(to + f->scale_at, &first, 2);
            if (f->min_at >= 0) memcpy(to + f->min_at, &second, 2);
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

// Fills rows of a tensor on the host.
typedef void (*fill_fn)(const part *p, const void *user);

// In pieces of some megabytes: fresh host memory for all of a large tensor costs more than the copy.
static void fill(bench *b, const lls_tensor *t, fill_fn fn, const void *user) {
    enum { PIECE = 16 << 20 };
    if (b->status) return;
    ptrdiff_t index = t - b->set->tensors;
    int64_t rows = bench_num_rows(t), row_bytes = (int64_t)bench_bytes(t->dtype, bench_row_length(t));
    int64_t step = row_bytes > 0 && row_bytes < PIECE ? PIECE / row_bytes : 1;
    if (step > rows) step = rows;
    part p = {.b = b, .t = t, .whole = b->oracle ? &b->whole->tensors[index] : t, .order = (int32_t)index + 1};
    p.data = malloc((size_t)(step * row_bytes) + 1);
    if (!p.data)
        b->status = lls__fail(LLS_ERR_MEMORY, "bench: no memory for %lld bytes", (long long)(step * row_bytes));
    for (p.begin = 0; p.begin < rows && !b->status; p.begin = p.end) {
        p.end = p.begin + step < rows ? p.begin + step : rows;
        fn(&p, user);
        char *to = (char *)t->data + p.begin * row_bytes;
        b->status = lls_upload(b->ctx, to, p.data, (size_t)((p.end - p.begin) * row_bytes), NULL);
    }
    free(p.data);
}

static void fill_normal(const part *p, const void *user) {
    double scale = *(const double *)user;
    if (lls_dtype_block_elems(p->t->dtype) == 1) fill_plain(p, scale);
    else fill_blocks(p, scale);
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

static void fill_integers(const part *p, const void *user) {
    const integers *source = user;
    int64_t length = bench_row_length(p->t), first = p->begin * length;
    for (int64_t i = first; i < p->end * length; i++) {
        int64_t value = source->fn(i, source->user);
        if (p->t->dtype == LLS_I64) ((int64_t *)(void *)p->data)[i - first] = value;
        else ((int32_t *)(void *)p->data)[i - first] = (int32_t)value;
    }
}

const lls_tensor *bench_integers(bench *b, lls_dtype dtype, int32_t ndim, const int64_t *shape,
                                 int64_t (*fn)(int64_t, const void *), const void *user) {
    lls_tensor *t = add(b, dtype, ndim, shape, -1);
    fill(b, t, fill_integers, &(integers){fn, user});
    return t;
}

static void fill_constant(const part *p, const void *user) {
    int64_t n = (p->end - p->begin) * bench_row_length(p->t);
    for (int64_t i = 0; i < n; i++) ((float *)(void *)p->data)[i] = (float)*(const double *)user;
}

const lls_tensor *bench_constant(bench *b, int32_t ndim, const int64_t *shape, double value) {
    lls_tensor *t = add(b, LLS_F32, ndim, shape, -1);
    fill(b, t, fill_constant, &value);
    return t;
}

lls_status bench_poison(lls_ctx *ctx, const lls_tensor *t) {
    enum { PIECE = 16 << 20 };
    size_t bytes = (size_t)bench_bytes(t->dtype, lls_tensor_numel(t)), piece = bytes < PIECE ? bytes : PIECE;
    void *nan = malloc(piece + 1);
    if (!nan) return lls__fail(LLS_ERR_MEMORY, "bench: no memory for %zu bytes", piece);
    memset(nan, 0xff, piece);
    lls_status status = LLS_OK;
    for (size_t done = 0; done < bytes && !status; done += piece) {
        status = lls_upload(ctx, (char *)t->data + done, nan, bytes - done < piece ? bytes - done : piece, NULL);
    }
    free(nan);
    return status;
}

const lls_tensor *bench_output(bench *b, lls_dtype dtype, int32_t ndim, const int64_t *shape, double tol) {
    lls_tensor *t = add(b, dtype, ndim, shape, tol); // poisoned before each checked call
    if (!b->status && t->device.type == LLS_CPU) b->status = bench_poison(b->ctx, t); // fresh pages are slow to write
    return t;
}

const lls_tensor *bench_transposed(bench *b, const lls_tensor *matrix) {
    lls_tensor *t = bench_add_view(b, matrix);
    int32_t row = matrix->ndim - 2, col = matrix->ndim - 1;
    t->shape[row] = matrix->shape[col], t->shape[col] = matrix->shape[row];
    t->stride[row] = matrix->stride[col], t->stride[col] = matrix->stride[row];
    return t;
}

bool bench_is_cuda(const bench *b) {
    return b->options->device.type == LLS_CUDA;
}

void bench_spread(bench *b) {
    b->spread = true;
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
