#include "engine/gguf_builder.h"

#include <stdlib.h>
#include <string.h>

#include "engine/model/gguf.h"

void build_free(gguf_builder *b) {
    free(b->bytes);
    *b = (gguf_builder){0};
}

void build_bytes(gguf_builder *b, const void *bytes, size_t n) {
    if (n == 0) {
        return;
    }
    uint8_t *grown = realloc(b->bytes, b->size + n);
    if (grown == NULL) {
        abort(); // a test without memory has nothing to say
    }
    memcpy(grown + b->size, bytes, n);
    b->bytes = grown;
    b->size += n;
}

void build_u32(gguf_builder *b, uint32_t value) {
    build_bytes(b, &value, sizeof value);
}

void build_u64(gguf_builder *b, uint64_t value) {
    build_bytes(b, &value, sizeof value);
}

void build_string(gguf_builder *b, const char *text) {
    build_u64(b, strlen(text));
    build_bytes(b, text, strlen(text));
}

void build_header(gguf_builder *b, uint32_t version, uint64_t num_tensors, uint64_t num_kvs) {
    build_bytes(b, "GGUF", 4);
    build_u32(b, version);
    build_u64(b, num_tensors);
    build_u64(b, num_kvs);
}

void build_padding(gguf_builder *b, size_t alignment) {
    while (b->size % alignment != 0) {
        build_bytes(b, "", 1);
    }
}

void build_kv(gguf_builder *b, const char *key, uint32_t type, const void *value, size_t n) {
    build_string(b, key);
    build_u32(b, type);
    build_bytes(b, value, n);
}

void build_kv_u32(gguf_builder *b, const char *key, uint32_t value) {
    build_kv(b, key, LLS__GGUF_U32, &value, sizeof value);
}

void build_kv_f32(gguf_builder *b, const char *key, float value) {
    build_kv(b, key, LLS__GGUF_F32, &value, sizeof value);
}

void build_kv_string(gguf_builder *b, const char *key, const char *text) {
    build_kv(b, key, LLS__GGUF_STRING, NULL, 0);
    build_string(b, text);
}

void build_tensor_info(gguf_builder *b, const char *name, uint32_t ndim, const uint64_t *dims, uint32_t type,
                       uint64_t offset) {
    build_string(b, name);
    build_u32(b, ndim);
    for (uint32_t i = 0; i < ndim && i < 16; i++) { // an absurd ndim must not need absurd bytes
        build_u64(b, dims[i]);
    }
    build_u32(b, type);
    build_u64(b, offset);
}
