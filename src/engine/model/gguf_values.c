/* Looking up and reading what gguf.c has checked. */
#include <stdlib.h>
#include <string.h>

#include "engine/model/gguf.h"

static const struct {
    const char *name;
    size_t bytes; // 0: of variable size
} value_types[] = {
    [LLS__GGUF_U8] = {"u8", 1},       [LLS__GGUF_I8] = {"i8", 1},     [LLS__GGUF_U16] = {"u16", 2},
    [LLS__GGUF_I16] = {"i16", 2},     [LLS__GGUF_U32] = {"u32", 4},   [LLS__GGUF_I32] = {"i32", 4},
    [LLS__GGUF_F32] = {"f32", 4},     [LLS__GGUF_BOOL] = {"bool", 1}, [LLS__GGUF_STRING] = {"string", 0},
    [LLS__GGUF_ARRAY] = {"array", 0}, [LLS__GGUF_U64] = {"u64", 8},   [LLS__GGUF_I64] = {"i64", 8},
    [LLS__GGUF_F64] = {"f64", 8},
};
enum { NUM_VALUE_TYPES = sizeof value_types / sizeof value_types[0] };

const char *lls__gguf_type_name(lls__gguf_type type) {
    return (size_t)type < NUM_VALUE_TYPES ? value_types[type].name : "unknown";
}

size_t lls__gguf_type_bytes(lls__gguf_type type) {
    return (size_t)type < NUM_VALUE_TYPES ? value_types[type].bytes : 0;
}

// ---- Look-up ---------------------------------------------------------------------------------------

int lls__gguf_compare_str(lls__gguf_str a, lls__gguf_str b) {
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

static int compare_key_to_kv(const void *key, const void *kv) {
    return lls__gguf_compare_str(*(const lls__gguf_str *)key, (*(const lls__gguf_kv *const *)kv)->key);
}

static int compare_name_to_tensor(const void *name, const void *tensor) {
    return strcmp(name, (*(const lls__gguf_tensor *const *)tensor)->name);
}

const lls__gguf_kv *lls__gguf_find(const lls__gguf *g, const char *key) {
    lls__gguf_str wanted = {key, strlen(key)};
    const lls__gguf_kv **found = bsearch(&wanted, g->kvs_by_key, g->num_kvs, sizeof *g->kvs_by_key, compare_key_to_kv);
    return found == NULL ? NULL : *found;
}

const lls__gguf_tensor *lls__gguf_find_tensor(const lls__gguf *g, const char *name) {
    const lls__gguf_tensor **found =
        bsearch(name, g->tensors_by_name, g->num_tensors, sizeof *g->tensors_by_name, compare_name_to_tensor);
    return found == NULL ? NULL : *found;
}

static bool is_int(lls__gguf_type type) {
    switch (type) {
    case LLS__GGUF_U8:
    case LLS__GGUF_I8:
    case LLS__GGUF_U16:
    case LLS__GGUF_I16:
    case LLS__GGUF_U32:
    case LLS__GGUF_I32:
    case LLS__GGUF_U64:
    case LLS__GGUF_I64: return true;
    default: return false;
    }
}

static bool is_float(lls__gguf_type type) {
    return type == LLS__GGUF_F32 || type == LLS__GGUF_F64;
}

static lls_status fail_type(const lls__gguf *g, const lls__gguf_kv *kv, const char *wanted) {
    return lls__fail(LLS_ERR_FORMAT, "gguf: %s: key '%.*s' is of type %s%s, must be %s", g->name,
                     LLS__GGUF_CLIPPED(kv->key), lls__gguf_type_name(kv->type), kv->is_array ? " array" : "", wanted);
}

lls_status lls__gguf_int(const lls__gguf *g, const char *key, int64_t fallback, int64_t min, int64_t max,
                         int64_t *out) {
    const lls__gguf_kv *kv = lls__gguf_find(g, key);
    if (kv == NULL) {
        *out = fallback;
        return LLS_OK;
    }
    if (kv->is_array || !is_int(kv->type)) {
        return fail_type(g, kv, "an integer");
    }
    int64_t value = lls__gguf_int_at(kv, 0);
    if (value < min || value > max) {
        return lls__fail(LLS_ERR_FORMAT, "gguf: %s: key '%s' is %lld, must be %lld to %lld", g->name, key,
                         (long long)value, (long long)min, (long long)max);
    }
    *out = value;
    return LLS_OK;
}

lls_status lls__gguf_u32(const lls__gguf *g, const char *key, uint32_t fallback, uint32_t *out) {
    int64_t value;
    LLS_TRY(lls__gguf_int(g, key, fallback, 0, UINT32_MAX, &value));
    *out = (uint32_t)value;
    return LLS_OK;
}

lls_status lls__gguf_float(const lls__gguf *g, const char *key, double fallback, double *out) {
    const lls__gguf_kv *kv = lls__gguf_find(g, key);
    if (kv != NULL && (kv->is_array || !is_float(kv->type))) {
        return fail_type(g, kv, "f32 or f64");
    }
    *out = kv == NULL ? fallback : lls__gguf_float_at(kv, 0);
    return LLS_OK;
}

lls_status lls__gguf_bool(const lls__gguf *g, const char *key, bool fallback, bool *out) {
    const lls__gguf_kv *kv = lls__gguf_find(g, key);
    if (kv != NULL && (kv->is_array || kv->type != LLS__GGUF_BOOL)) {
        return fail_type(g, kv, "bool");
    }
    *out = kv == NULL ? fallback : lls__gguf_int_at(kv, 0) != 0;
    return LLS_OK;
}

lls_status lls__gguf_string(const lls__gguf *g, const char *key, lls__gguf_str *out) {
    const lls__gguf_kv *kv = lls__gguf_find(g, key);
    if (kv == NULL) {
        *out = (lls__gguf_str){NULL, 0};
        return LLS_OK;
    }
    if (kv->is_array || kv->type != LLS__GGUF_STRING) {
        return fail_type(g, kv, "string");
    }
    lls__gguf_strings strings = lls__gguf_strings_of(kv);
    lls__gguf_next_string(&strings, out);
    return LLS_OK;
}

lls_status lls__gguf_array(const lls__gguf *g, const char *key, lls__gguf_kind kind, const lls__gguf_kv **out) {
    const lls__gguf_kv *kv = lls__gguf_find(g, key);
    if (kv != NULL) {
        static const char *const wanted[] = {"an array of integers or bools", "an array of floats",
                                             "an array of strings"};
        bool fits = kind == LLS__GGUF_KIND_INT     ? is_int(kv->type) || kv->type == LLS__GGUF_BOOL
                    : kind == LLS__GGUF_KIND_FLOAT ? is_float(kv->type)
                                                   : kv->type == LLS__GGUF_STRING;
        if (!kv->is_array || !fits) {
            return fail_type(g, kv, wanted[kind]);
        }
    }
    *out = kv;
    return LLS_OK;
}

// ---- Elements --------------------------------------------------------------------------------------

int64_t lls__gguf_int_at(const lls__gguf_kv *kv, uint64_t i) {
    size_t bytes = value_types[kv->type].bytes;
    uint64_t bits = 0;
    memcpy(&bits, kv->values + i * bytes, bytes); // little endian: the low bytes
    switch (kv->type) {
    case LLS__GGUF_I8: return (int8_t)bits;
    case LLS__GGUF_I16: return (int16_t)bits;
    case LLS__GGUF_I32: return (int32_t)bits;
    case LLS__GGUF_I64: return (int64_t)bits;
    default: return bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
    }
}

double lls__gguf_float_at(const lls__gguf_kv *kv, uint64_t i) {
    if (kv->type == LLS__GGUF_F64) {
        double value;
        memcpy(&value, kv->values + i * sizeof value, sizeof value);
        return value;
    }
    float value;
    memcpy(&value, kv->values + i * sizeof value, sizeof value);
    return value;
}

lls__gguf_strings lls__gguf_strings_of(const lls__gguf_kv *kv) {
    return (lls__gguf_strings){.next = kv->values, .left = kv->count};
}

bool lls__gguf_next_string(lls__gguf_strings *strings, lls__gguf_str *out) {
    if (strings->left == 0) {
        return false;
    }
    uint64_t size;
    memcpy(&size, strings->next, sizeof size);
    *out = (lls__gguf_str){(const char *)strings->next + sizeof size, (size_t)size};
    strings->next += sizeof size + size;
    strings->left--;
    return true;
}
