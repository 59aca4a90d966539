/* GGUF files, versions 2 and 3, little endian: the container of quantised models.
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 *
 *   "GGUF" version n_tensors n_kv | key-value pairs | tensor infos | padding | tensor data
 *
 * The file is untrusted. Everything is checked when it is opened: every length, count and product against the
 * bytes that are there, before memory is allocated for it. Afterwards names, values and tensor data can be read
 * without a further check; they point into the file's mapping and live until lls__gguf_close. (A file that
 * another process truncates while it is mapped still raises SIGBUS; no check can prevent that.) */
#ifndef LLS_ENGINE_GGUF_H
#define LLS_ENGINE_GGUF_H

#include "core/error.h"

/* Bytes in the file: not NUL-terminated. */
typedef struct lls__gguf_str {
    const char *data;
    size_t size;
} lls__gguf_str;

/* The two arguments of "%.*s", cut so that an absurdly long string does not fill a message. */
#define LLS__GGUF_CLIPPED(s) (int)((s).size < 100 ? (s).size : 100), (s).data

/* Byte order, like strcmp. */
int lls__gguf_compare_str(lls__gguf_str a, lls__gguf_str b);

/* Value types, numbered as in the file. */
typedef enum lls__gguf_type {
    LLS__GGUF_U8 = 0,
    LLS__GGUF_I8 = 1,
    LLS__GGUF_U16 = 2,
    LLS__GGUF_I16 = 3,
    LLS__GGUF_U32 = 4,
    LLS__GGUF_I32 = 5,
    LLS__GGUF_F32 = 6,
    LLS__GGUF_BOOL = 7,
    LLS__GGUF_STRING = 8,
    LLS__GGUF_ARRAY = 9,
    LLS__GGUF_U64 = 10,
    LLS__GGUF_I64 = 11,
    LLS__GGUF_F64 = 12
} lls__gguf_type;

/* "u32", "string", ...; "unknown" for a number that is no type. */
const char *lls__gguf_type_name(lls__gguf_type type);
/* 0 for strings and arrays, whose size varies. */
size_t lls__gguf_type_bytes(lls__gguf_type type);

/* A key with one value (count 1, is_array false) or an array of `count` elements of `type`. An array of arrays has
 * type LLS__GGUF_ARRAY: its elements were checked but cannot be read one by one. */
typedef struct lls__gguf_kv {
    lls__gguf_str key; /* 1 to 65535 bytes, none of them a control character */
    lls__gguf_type type;
    bool is_array;
    uint64_t count;
    const uint8_t *values; /* the first element, unaligned */
} lls__gguf_kv;

#define LLS__GGUF_MAX_NAME 64
#define LLS__GGUF_MAX_DIMS 4

typedef struct lls__gguf_tensor {
    char name[LLS__GGUF_MAX_NAME + 1]; /* printable, NUL-terminated */
    lls_dtype dtype;
    int32_t ndim;                      /* 1 to 4 */
    int64_t shape[LLS__GGUF_MAX_DIMS]; /* outermost first, as in lls_tensor; the file has them reversed. All >= 1. */
    const void *data;                  /* aligned to general.alignment, which is at least 8 */
    size_t nbytes;
    uint64_t offset; /* of data, from the start of the data section */
} lls__gguf_tensor;

/* Read the fields freely; change none. */
typedef struct lls__gguf {
    uint32_t version;
    size_t num_kvs;
    lls__gguf_kv *kvs; /* in file order */
    size_t num_tensors;
    lls__gguf_tensor *tensors; /* in file order */
    size_t alignment;
    size_t data_offset; /* where the data section begins, from the start of the file */
    size_t file_bytes;

    char *name; /* for messages: the path, or what lls__gguf_parse was given */
    const lls__gguf_kv **kvs_by_key;
    const lls__gguf_tensor **tensors_by_name;
    void *mapping; /* NULL when the bytes are the caller's */
} lls__gguf;

/* Maps and checks the file at `path`. On failure *out is untouched and the message names the file and the key or
 * tensor: LLS_ERR_IO (cannot open, not a regular file), LLS_ERR_FORMAT (malformed), LLS_ERR_MODEL (a tensor type
 * that this library has no kernel for), LLS_ERR_MEMORY. */
lls_status lls__gguf_open(const char *path, lls__gguf **out);
/* The same for `size` bytes in memory, which must be aligned to 8 and outlive *out. `name` stands in for the path. */
lls_status lls__gguf_parse(const void *bytes, size_t size, const char *name, lls__gguf **out);
void lls__gguf_close(lls__gguf *gguf); /* NULL is fine */

/* NULL when there is none of that name. */
const lls__gguf_kv *lls__gguf_find(const lls__gguf *gguf, const char *key);
const lls__gguf_tensor *lls__gguf_find_tensor(const lls__gguf *gguf, const char *name);

/* ---- One value. An absent key gives the fallback; a key of the wrong type or range fails with LLS_ERR_FORMAT and
 * names key, value and range. Writers differ in integer width and signedness, so all of them are accepted. ---- */
lls_status lls__gguf_int(const lls__gguf *gguf, const char *key, int64_t fallback, int64_t min, int64_t max,
                         int64_t *out);
lls_status lls__gguf_u32(const lls__gguf *gguf, const char *key, uint32_t fallback, uint32_t *out);
lls_status lls__gguf_float(const lls__gguf *gguf, const char *key, double fallback, double *out); /* f32 or f64 */
lls_status lls__gguf_bool(const lls__gguf *gguf, const char *key, bool fallback, bool *out);
/* Absent: {NULL, 0}. */
lls_status lls__gguf_string(const lls__gguf *gguf, const char *key, lls__gguf_str *out);

/* ---- Arrays. Nothing is copied. ---- */
typedef enum lls__gguf_kind {
    LLS__GGUF_KIND_INT,   /* any integer width, or bool: read with lls__gguf_int_at */
    LLS__GGUF_KIND_FLOAT, /* f32 or f64: lls__gguf_float_at */
    LLS__GGUF_KIND_STRING /* lls__gguf_strings_of */
} lls__gguf_kind;

/* The array under `key`: NULL in *out when absent, LLS_ERR_FORMAT when it is not an array of that kind. */
lls_status lls__gguf_array(const lls__gguf *gguf, const char *key, lls__gguf_kind kind, const lls__gguf_kv **out);

/* Element i < count of a kv of the matching kind. u64 above INT64_MAX reads as INT64_MAX. */
int64_t lls__gguf_int_at(const lls__gguf_kv *kv, uint64_t i);
double lls__gguf_float_at(const lls__gguf_kv *kv, uint64_t i);

/* Walks the strings of a kv in order:
 *     lls__gguf_strings it = lls__gguf_strings_of(kv);
 *     for (lls__gguf_str s; lls__gguf_next_string(&it, &s);) { ... } */
typedef struct lls__gguf_strings {
    const uint8_t *next;
    uint64_t left;
} lls__gguf_strings;
lls__gguf_strings lls__gguf_strings_of(const lls__gguf_kv *kv);
bool lls__gguf_next_string(lls__gguf_strings *strings, lls__gguf_str *out);

/* ---- Paging hints; nothing happens when the bytes are the caller's. ---- */
/* Asks the kernel to read the tensor ahead. */
void lls__gguf_will_need(const lls__gguf *gguf, const lls__gguf_tensor *tensor);
/* Gives the tensor's pages back once it was uploaded or repacked. Its data stays readable: it comes from disk again. */
void lls__gguf_drop_pages(const lls__gguf *gguf, const lls__gguf_tensor *tensor);

#endif
