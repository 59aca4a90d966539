#include "engine/model/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEADER_BYTES = 24,     // magic, version, n_tensors, n_kv
    MIN_KV_BYTES = 13,     // key length, type, one byte of value
    MIN_TENSOR_BYTES = 32, // name length, n_dims, one dimension, type, offset
    MAX_KEY_BYTES = 65535,
    MAX_ARRAY_DEPTH = 4,
    DEFAULT_ALIGNMENT = 32,
    MIN_ALIGNMENT = 8, // so that any plain dtype can be read in place
    MAX_ALIGNMENT = 1 << 30
};

// Tensor types by their number in the file. dtype 0: known, but no kernel here takes it. Gaps were withdrawn.
static const struct {
    const char *name;
    lls_dtype dtype;
} tensor_types[] = {
    [0] = {"F32", LLS_F32},    [1] = {"F16", LLS_F16},   [2] = {"Q4_0", LLS_Q4_0},  [3] = {"Q4_1", LLS_Q4_1},
    [6] = {"Q5_0", LLS_Q5_0},  [7] = {"Q5_1", LLS_Q5_1}, [8] = {"Q8_0", LLS_Q8_0},  [9] = {"Q8_1", 0},
    [10] = {"Q2_K", 0},        [11] = {"Q3_K", 0},       [12] = {"Q4_K", LLS_Q4_K}, [13] = {"Q5_K", LLS_Q5_K},
    [14] = {"Q6_K", LLS_Q6_K}, [15] = {"Q8_K", 0},       [16] = {"IQ2_XXS", 0},     [17] = {"IQ2_XS", 0},
    [18] = {"IQ3_XXS", 0},     [19] = {"IQ1_S", 0},      [20] = {"IQ4_NL", 0},      [21] = {"IQ3_S", 0},
    [22] = {"IQ2_S", 0},       [23] = {"IQ4_XS", 0},     [24] = {"I8", 0},          [25] = {"I16", 0},
    [26] = {"I32", 0},         [27] = {"I64", 0},        [28] = {"F64", 0},         [29] = {"IQ1_M", 0},
    [30] = {"BF16", LLS_BF16}, [34] = {"TQ1_0", 0},      [35] = {"TQ2_0", 0},       [39] = {"MXFP4", 0},
};
enum { NUM_TENSOR_TYPES = sizeof tensor_types / sizeof tensor_types[0] };

// ---- Reading with bounds ---------------------------------------------------------------------------

typedef struct reader {
    const uint8_t *bytes;
    size_t size;
    size_t pos; // <= size
    const char *file;
} reader;

// Copies the next n bytes. Files are little endian, as is every machine this library runs on.
static lls_status take(reader *r, size_t n, const char *what, void *out) {
    if (n > r->size - r->pos) {
        return lls__fail(LLS_ERR_FORMAT, "gguf: %s: %s needs %zu bytes at offset %zu, but the file has only %zu",
                         r->file, what, n, r->pos, r->size);
    }
    memcpy(out, r->bytes + r->pos, n);
    r->pos += n;
    return LLS_OK;
}

static lls_status read_u32(reader *r, const char *what, uint32_t *out) {
    return take(r, sizeof *out, what, out);
}

static lls_status read_u64(reader *r, const char *what, uint64_t *out) {
    return take(r, sizeof *out, what, out);
}

// Refuses a count whose smallest possible content is larger than the rest of the file.
static lls_status check_count(const reader *r, const char *what, uint64_t count, size_t min_bytes) {
    if (count > (r->size - r->pos) / min_bytes) {
        return lls__fail(LLS_ERR_FORMAT,
                         "gguf: %s: %s is %llu, but the %zu bytes left at offset %zu hold at most %zu of them", r->file,
                         what, (unsigned long long)count, r->size - r->pos, r->pos, (r->size - r->pos) / min_bytes);
    }
    return LLS_OK;
}

static lls_status read_string(reader *r, const char *what, lls__gguf_str *out) {
    uint64_t size;
    LLS_TRY(read_u64(r, what, &size));
    if (size > r->size - r->pos) {
        return lls__fail(LLS_ERR_FORMAT, "gguf: %s: %s has %llu bytes at offset %zu, but the file has only %zu",
                         r->file, what, (unsigned long long)size, r->pos, r->size);
    }
    out->data = (const char *)r->bytes + r->pos;
    out->size = (size_t)size;
    r->pos += out->size;
    return LLS_OK;
}

// Keys and tensor names go into messages and listings, so they must be printable.
static lls_status read_name(reader *r, const char *what, size_t index, size_t max_bytes, lls__gguf_str *out) {
    LLS_TRY(read_string(r, what, out));
    if (out->size == 0 || out->size > max_bytes) {
        return lls__fail(LLS_ERR_FORMAT, "gguf: %s: %s %zu has %zu bytes, must have 1 to %zu", r->file, what, index,
                         out->size, max_bytes);
    }
    for (size_t i = 0; i < out->size; i++) {
        unsigned char c = (unsigned char)out->data[i];
        if (c < 0x20 || c == 0x7f) {
            return lls__fail(LLS_ERR_FORMAT, "gguf: %s: %s %zu contains the control character 0x%02x", r->file, what,
                             index, c);
        }
    }
    return LLS_OK;
}

// ---- Key-value pairs -------------------------------------------------------------------------------

static lls_status read_value_type(reader *r, lls__gguf_str key, lls__gguf_type *out) {
    uint32_t type;
    LLS_TRY(read_u32(r, "value type", &type));
    if (type > LLS__GGUF_F64) {
        return lls__fail(LLS_ERR_FORMAT, "gguf: %s: key '%.*s' has value type %u, must be 0 to %d", r->file,
                         LLS__GGUF_CLIPPED(key), type, LLS__GGUF_F64);
    }
    *out = (lls__gguf_type)type;
    return LLS_OK;
}

// Steps over `count` values of `type`, checking what is inside.
static lls_status skip_values(reader *r, lls__gguf_str key, lls__gguf_type type, uint64_t count, int depth) {
    size_t bytes = lls__gguf_type_bytes(type);
    if (bytes > 0) {
        LLS_TRY(check_count(r, "value count", count, bytes));
        r->pos += (size_t)count * bytes;
        return LLS_OK;
    }
    if (type == LLS__GGUF_STRING) {
        LLS_TRY(check_count(r, "string count", count, sizeof(uint64_t)));
        for (uint64_t i = 0; i < count; i++) {
            lls__gguf_str ignored;
            LLS_TRY(read_string(r, "string", &ignored));
        }
        return LLS_OK;
    }
    if (depth == MAX_ARRAY_DEPTH) {
        return lls__fail(LLS_ERR_FORMAT, "gguf: %s: key '%.*s' nests arrays deeper than %d", r->file,
                         LLS__GGUF_CLIPPED(key), MAX_ARRAY_DEPTH);
    }
    LLS_TRY(check_count(r, "array count", count, sizeof(uint32_t) + sizeof(uint64_t)));
    for (uint64_t i = 0; i < count; i++) {
        lls__gguf_type inner;
        uint64_t inner_count;
        LLS_TRY(read_value_type(r, key, &inner));
        LLS_TRY(read_u64(r, "array length", &inner_count));
        LLS_TRY(skip_values(r, key, inner, inner_count, depth + 1));
    }
    return LLS_OK;
}

static lls_status read_kv(reader *r, size_t index, lls__gguf_kv *kv) {
    LLS_TRY(read_name(r, "key", index, MAX_KEY_BYTES, &kv->key));
    LLS_TRY(read_value_type(r, kv->key, &kv->type));
    kv->count = 1;
    kv->is_array = kv->type == LLS__GGUF_ARRAY;
    if (kv->is_array) {
        LLS_TRY(read_value_type(r, kv->key, &kv->type));
        LLS_TRY(read_u64(r, "array length", &kv->count));
    }
    kv->values = r->bytes + r->pos;
    return skip_values(r, kv->key, kv->type, kv->count, kv->is_array ? 1 : 0);
}

static int compare_kvs(const void *a, const void *b) {
    return lls__gguf_compare_str((*(const lls__gguf_kv *const *)a)->key, (*(const lls__gguf_kv *const *)b)->key);
}

static lls_status index_kvs(lls__gguf *g) {
    for (size_t i = 0; i < g->num_kvs; i++) {
        g->kvs_by_key[i] = &g->kvs[i];
    }
    qsort(g->kvs_by_key, g->num_kvs, sizeof *g->kvs_by_key, compare_kvs);
    for (size_t i = 1; i < g->num_kvs; i++) {
        if (compare_kvs(&g->kvs_by_key[i - 1], &g->kvs_by_key[i]) == 0) {
            return lls__fail(LLS_ERR_FORMAT, "gguf: %s: key '%.*s' occurs twice", g->name,
                             LLS__GGUF_CLIPPED(g->kvs_by_key[i]->key));
        }
    }
    return LLS_OK;
}

static lls_status read_kvs(lls__gguf *g, reader *r, uint64_t count) {
    LLS_TRY(check_count(r, "number of keys", count, MIN_KV_BYTES));
    g->kvs = calloc(count + 1, sizeof *g->kvs); // + 1: calloc(0) may be NULL
    g->kvs_by_key = calloc(count + 1, sizeof *g->kvs_by_key);
    if (g->kvs == NULL || g->kvs_by_key == NULL) {
        return lls__fail(LLS_ERR_MEMORY, "gguf: %s: no memory for %llu keys", g->name, (unsigned long long)count);
    }
    for (; g->num_kvs < count; g->num_kvs++) {
        LLS_TRY(read_kv(r, g->num_kvs, &g->kvs[g->num_kvs]));
    }
    return index_kvs(g);
}

// ---- Tensors ---------------------------------------------------------------------------------------

static lls_status read_shape(reader *r, lls__gguf_tensor *t) {
    uint32_t ndim;
    LLS_TRY(read_u32(r, "number of dimensions", &ndim));
    if (ndim < 1 || ndim > LLS__GGUF_MAX_DIMS) {
        return lls__fail(LLS_ERR_FORMAT, "gguf: %s: tensor '%s' has %u dimensions, must have 1 to %d", r->file, t->name,
                         ndim, LLS__GGUF_MAX_DIMS);
    }
    t->ndim = (int32_t)ndim;
    for (int i = t->ndim - 1; i >= 0; i--) {
        uint64_t size;
        LLS_TRY(read_u64(r, "dimension", &size));
        if (size < 1 || size > INT64_MAX) {
            return lls__fail(LLS_ERR_FORMAT, "gguf: %s: tensor '%s' has shape[%d] = %llu, must be 1 to 2^63 - 1",
                             r->file, t->name, i, (unsigned long long)size);
        }
        t->shape[i] = (int64_t)size;
    }
    return LLS_OK;
}

static lls_status read_dtype(reader *r, lls__gguf_tensor *t) {
    uint32_t type;
    LLS_TRY(read_u32(r, "tensor type", &type));
    if (type >= NUM_TENSOR_TYPES || tensor_types[type].name == NULL) {
        return lls__fail(LLS_ERR_FORMAT, "gguf: %s: tensor '%s' has type %u, which is no GGUF tensor type", r->file,
                         t->name, type);
    }
    if (tensor_types[type].dtype == 0) {
        return lls__fail(LLS_ERR_MODEL,
                         "gguf: %s: tensor '%s' has type %s (%u); supported are F32, F16, BF16, Q4_0, Q4_1, Q5_0, "
                         "Q5_1, Q8_0, Q4_K, Q5_K, Q6_K",
                         r->file, t->name, tensor_types[type].name, type);
    }
    t->dtype = tensor_types[type].dtype;
    return LLS_OK;
}

static lls_status compute_nbytes(const reader *r, lls__gguf_tensor *t) {
    int64_t block = lls_dtype_block_elems(t->dtype), k = t->shape[t->ndim - 1];
    if (k % block != 0) {
        return lls__fail(LLS_ERR_FORMAT,
                         "gguf: %s: tensor '%s' has shape[%d] = %lld, must be a multiple of %lld, the block of %s",
                         r->file, t->name, t->ndim - 1, (long long)k, (long long)block, lls_dtype_name(t->dtype));
    }
    int64_t nbytes;
    bool overflow = __builtin_mul_overflow(k / block, lls_dtype_block_bytes(t->dtype), &nbytes);
    for (int i = 0; i < t->ndim - 1; i++) {
        overflow = overflow || __builtin_mul_overflow(nbytes, t->shape[i], &nbytes);
    }
    if (overflow) {
        return lls__fail(LLS_ERR_FORMAT, "gguf: %s: tensor '%s' has a size of more than 2^63 bytes", r->file, t->name);
    }
    t->nbytes = (size_t)nbytes;
    return LLS_OK;
}

static lls_status read_tensor(reader *r, size_t index, lls__gguf_tensor *t) {
    lls__gguf_str name;
    LLS_TRY(read_name(r, "tensor name", index, LLS__GGUF_MAX_NAME, &name));
    memcpy(t->name, name.data, name.size);
    LLS_TRY(read_shape(r, t));
    LLS_TRY(read_dtype(r, t));
    LLS_TRY(compute_nbytes(r, t));
    return read_u64(r, "tensor offset", &t->offset);
}

static int compare_tensors(const void *a, const void *b) {
    return strcmp((*(const lls__gguf_tensor *const *)a)->name, (*(const lls__gguf_tensor *const *)b)->name);
}

static lls_status index_tensors(lls__gguf *g) {
    for (size_t i = 0; i < g->num_tensors; i++) {
        g->tensors_by_name[i] = &g->tensors[i];
    }
    qsort(g->tensors_by_name, g->num_tensors, sizeof *g->tensors_by_name, compare_tensors);
    for (size_t i = 1; i < g->num_tensors; i++) {
        if (compare_tensors(&g->tensors_by_name[i - 1], &g->tensors_by_name[i]) == 0) {
            return lls__fail(LLS_ERR_FORMAT, "gguf: %s: tensor '%s' occurs twice", g->name,
                             g->tensors_by_name[i]->name);
        }
    }
    return LLS_OK;
}

static lls_status read_tensors(lls__gguf *g, reader *r, uint64_t count) {
    LLS_TRY(check_count(r, "number of tensors", count, MIN_TENSOR_BYTES));
    g->tensors = calloc(count + 1, sizeof *g->tensors);
    g->tensors_by_name = calloc(count + 1, sizeof *g->tensors_by_name);
    if (g->tensors == NULL || g->tensors_by_name == NULL) {
        return lls__fail(LLS_ERR_MEMORY, "gguf: %s: no memory for %llu tensors", g->name, (unsigned long long)count);
    }
    for (; g->num_tensors < count; g->num_tensors++) {
        LLS_TRY(read_tensor(r, g->num_tensors, &g->tensors[g->num_tensors]));
    }
    return index_tensors(g);
}

// Sets each tensor's data once the end of the header, and with it the start of the data section, is known.
static lls_status place_tensors(lls__gguf *g, const reader *r) {
    size_t padding = (g->alignment - r->pos % g->alignment) % g->alignment;
    if (g->num_tensors > 0 && padding > r->size - r->pos) {
        return lls__fail(LLS_ERR_FORMAT, "gguf: %s: the file has %zu bytes, but its data section begins at %zu",
                         g->name, r->size, r->pos + padding);
    }
    g->data_offset = r->pos + padding;
    for (size_t i = 0; i < g->num_tensors; i++) {
        lls__gguf_tensor *t = &g->tensors[i];
        size_t data_bytes = r->size - g->data_offset;
        if (t->offset % g->alignment != 0) {
            return lls__fail(LLS_ERR_FORMAT, "gguf: %s: tensor '%s' has offset %llu, must be a multiple of %zu",
                             g->name, t->name, (unsigned long long)t->offset, g->alignment);
        }
        if (t->offset > data_bytes || t->nbytes > data_bytes - t->offset) {
            return lls__fail(LLS_ERR_FORMAT,
                             "gguf: %s: tensor '%s' has %zu bytes at offset %llu, but the data section has only %zu "
                             "(is the file truncated?)",
                             g->name, t->name, t->nbytes, (unsigned long long)t->offset, data_bytes);
        }
        t->data = r->bytes + g->data_offset + t->offset;
    }
    return LLS_OK;
}

// ---- The file --------------------------------------------------------------------------------------

static lls_status read_header(lls__gguf *g, reader *r, uint64_t *num_tensors, uint64_t *num_kvs) {
    uint8_t magic[4];
    LLS_TRY(take(r, sizeof magic, "the magic \"GGUF\"", magic));
    if (memcmp(magic, "GGUF", 4) != 0) {
        return lls__fail(LLS_ERR_FORMAT, "gguf: %s: begins with bytes %02x %02x %02x %02x, must begin with \"GGUF\"",
                         g->name, magic[0], magic[1], magic[2], magic[3]);
    }
    LLS_TRY(read_u32(r, "version", &g->version));
    if (g->version != 2 && g->version != 3) {
        bool swapped = g->version == 2u << 24 || g->version == 3u << 24;
        return lls__fail(LLS_ERR_FORMAT, "gguf: %s: version is %u, must be 2 or 3%s", g->name, g->version,
                         swapped ? " (a big-endian file)" : "");
    }
    LLS_TRY(read_u64(r, "number of tensors", num_tensors));
    return read_u64(r, "number of keys", num_kvs);
}

static lls_status read_alignment(lls__gguf *g) {
    int64_t alignment;
    LLS_TRY(lls__gguf_int(g, "general.alignment", DEFAULT_ALIGNMENT, MIN_ALIGNMENT, MAX_ALIGNMENT, &alignment));
    if ((alignment & (alignment - 1)) != 0) {
        return lls__fail(LLS_ERR_FORMAT, "gguf: %s: key 'general.alignment' is %lld, must be a power of two", g->name,
                         (long long)alignment);
    }
    g->alignment = (size_t)alignment;
    return LLS_OK;
}

static lls_status parse(lls__gguf *g, const void *bytes) {
    reader r = {.bytes = bytes, .size = g->file_bytes, .file = g->name};
    uint64_t num_tensors, num_kvs;
    LLS_TRY(read_header(g, &r, &num_tensors, &num_kvs));
    LLS_TRY(read_kvs(g, &r, num_kvs));
    LLS_TRY(read_alignment(g));
    LLS_TRY(read_tensors(g, &r, num_tensors));
    return place_tensors(g, &r);
}

// Takes over `mapping`, which may be NULL, also on failure.
static lls_status load(const void *bytes, size_t size, const char *name, void *mapping, lls__gguf **out) {
    lls__gguf *g = calloc(1, sizeof *g);
    char *name_copy = strdup(name);
    if (g == NULL || name_copy == NULL) {
        free(g);
        free(name_copy);
        if (mapping != NULL) {
            munmap(mapping, size);
        }
        return lls__fail(LLS_ERR_MEMORY, "gguf: %s: out of memory", name);
    }
    g->name = name_copy;
    g->mapping = mapping;
    g->file_bytes = size;
    lls_status status = parse(g, bytes);
    if (status != LLS_OK) {
        lls__gguf_close(g);
        return status;
    }
    *out = g;
    return LLS_OK;
}

lls_status lls__gguf_parse(const void *bytes, size_t size, const char *name, lls__gguf **out) {
    if ((uintptr_t)bytes % MIN_ALIGNMENT != 0) {
        return lls__fail(LLS_ERR_ARGUMENT, "gguf: %s: bytes is %p, must be aligned to %d", name, bytes, MIN_ALIGNMENT);
    }
    return load(bytes, size, name, NULL, out);
}

static lls_status map_file(int fd, const char *path, void **mapping, size_t *size) {
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return lls__fail(LLS_ERR_IO, "gguf: %s: %s", path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        return lls__fail(LLS_ERR_IO, "gguf: %s: is not a regular file", path);
    }
    if (st.st_size < HEADER_BYTES) {
        return lls__fail(LLS_ERR_FORMAT, "gguf: %s: has %lld bytes, fewer than the %d of a GGUF header", path,
                         (long long)st.st_size, HEADER_BYTES);
    }
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) {
        return lls__fail(LLS_ERR_IO, "gguf: %s: cannot map %lld bytes: %s", path, (long long)st.st_size,
                         strerror(errno));
    }
    *mapping = bytes;
    *size = (size_t)st.st_size;
    return LLS_OK;
}

lls_status lls__gguf_open(const char *path, lls__gguf **out) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // non-blocking: a pipe must be refused, not waited for
    if (fd < 0) {
        return lls__fail(LLS_ERR_IO, "gguf: cannot open %s: %s", path, strerror(errno));
    }
    void *mapping = NULL;
    size_t size = 0;
    lls_status status = map_file(fd, path, &mapping, &size);
    close(fd);
    LLS_TRY(status);
    return load(mapping, size, path, mapping, out);
}

void lls__gguf_close(lls__gguf *g) {
    if (g == NULL) {
        return;
    }
    if (g->mapping != NULL) {
        munmap(g->mapping, g->file_bytes);
    }
    free(g->kvs_by_key);
    free(g->kvs);
    free(g->tensors_by_name);
    free(g->tensors);
    free(g->name);
    free(g);
}

// ---- Paging ----------------------------------------------------------------------------------------

// The pages that lie wholly inside [data, data + nbytes), or, with `outer`, all pages that it touches.
static void advise(const lls__gguf *g, const lls__gguf_tensor *t, int advice, bool outer) {
    if (g->mapping == NULL) {
        return;
    }
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)t->data, end = begin + t->nbytes;
    begin = (outer ? begin : begin + page - 1) / page * page;
    end = (outer ? end + page - 1 : end) / page * page;
    if (begin < end) {
        madvise((void *)begin, end - begin, advice); // a hint: nothing depends on it
    }
}

void lls__gguf_will_need(const lls__gguf *g, const lls__gguf_tensor *t) {
    advise(g, t, MADV_WILLNEED, true);
}

void lls__gguf_drop_pages(const lls__gguf *g, const lls__gguf_tensor *t) {
    advise(g, t, MADV_DONTNEED, false);
}
