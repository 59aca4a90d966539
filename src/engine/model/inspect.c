/* The public view of a GGUF file (lls_gguf_*), over the reader that the engine uses. */
#include "engine/model/gguf.h"
#include "llmspeed/engine.h"

// The public type stands for the reader's own object; it has no members of its own.
static const lls__gguf *reader(const lls_gguf *file) {
    return (const lls__gguf *)file;
}

lls_status lls_gguf_open(const char *path, lls_gguf **out) {
    if (!path || !out) return lls__fail(LLS_ERR_ARGUMENT, "gguf: argument %s is NULL", path ? "out" : "path");
    lls__gguf *gguf;
    LLS_TRY(lls__gguf_open(path, &gguf));
    *out = (lls_gguf *)gguf;
    return LLS_OK;
}

void lls_gguf_close(lls_gguf *file) {
    lls__gguf_close((lls__gguf *)file);
}

lls_gguf_info lls_gguf_describe(const lls_gguf *file) {
    const lls__gguf *g = reader(file);
    return (lls_gguf_info){
        .version = (int32_t)g->version,
        .file_bytes = (int64_t)g->file_bytes,
        .data_offset = (int64_t)g->data_offset,
        .num_entries = (int64_t)g->num_kvs,
        .num_tensors = (int64_t)g->num_tensors,
    };
}

static lls_gguf_kind kind_of(lls__gguf_type type) {
    switch (type) {
    case LLS__GGUF_F32:
    case LLS__GGUF_F64: return LLS_GGUF_FLOAT;
    case LLS__GGUF_BOOL: return LLS_GGUF_BOOL;
    case LLS__GGUF_STRING: return LLS_GGUF_STRING;
    case LLS__GGUF_ARRAY: return LLS_GGUF_NESTED;
    default: return LLS_GGUF_INT;
    }
}

bool lls_gguf_entry_at(const lls_gguf *file, int64_t index, lls_gguf_entry *out) {
    const lls__gguf *g = reader(file);
    if (index < 0 || (uint64_t)index >= g->num_kvs) return false;
    const lls__gguf_kv *kv = &g->kvs[index];
    *out = (lls_gguf_entry){
        .key = kv->key.data,
        .key_bytes = kv->key.size,
        .type = lls__gguf_type_name(kv->type),
        .kind = kind_of(kv->type),
        .is_array = kv->is_array,
        .count = (int64_t)kv->count,
    };
    return true;
}

bool lls_gguf_value_at(const lls_gguf *file, int64_t entry, int64_t element, lls_gguf_value *out) {
    lls_gguf_entry e;
    if (!lls_gguf_entry_at(file, entry, &e) || element < 0 || element >= e.count) return false;
    const lls__gguf_kv *kv = &reader(file)->kvs[entry];
    lls_gguf_value value = {0};
    switch (e.kind) {
    case LLS_GGUF_NESTED: return false;
    case LLS_GGUF_FLOAT: value.real = lls__gguf_float_at(kv, (uint64_t)element); break;
    case LLS_GGUF_STRING: {
        lls__gguf_str s = {NULL, 0};
        lls__gguf_strings strings = lls__gguf_strings_of(kv);
        for (int64_t i = 0; i <= element; i++) {
            if (!lls__gguf_next_string(&strings, &s)) return false;
        }
        value.string = s.data, value.string_bytes = s.size;
        break;
    }
    default: value.integer = lls__gguf_int_at(kv, (uint64_t)element);
    }
    *out = value;
    return true;
}

bool lls_gguf_tensor_at(const lls_gguf *file, int64_t index, lls_gguf_tensor *out) {
    const lls__gguf *g = reader(file);
    if (index < 0 || (uint64_t)index >= g->num_tensors) return false;
    const lls__gguf_tensor *t = &g->tensors[index];
    lls_gguf_tensor tensor = {
        .name = t->name,
        .dtype = t->dtype,
        .ndim = t->ndim,
        .bytes = (int64_t)t->nbytes,
        .offset = (int64_t)(g->data_offset + t->offset),
    };
    for (int32_t i = 0; i < t->ndim; i++) tensor.shape[i] = t->shape[i];
    *out = tensor;
    return true;
}
