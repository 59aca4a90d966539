/* Builds GGUF files in memory, good and hostile alike: what it is told, it writes, and it checks nothing. */
#ifndef LLS_TESTS_GGUF_BUILDER_H
#define LLS_TESTS_GGUF_BUILDER_H

#include <stddef.h>
#include <stdint.h>

/* {0} is empty. Growing it may move `bytes`. */
typedef struct gguf_builder {
    uint8_t *bytes;
    size_t size;
} gguf_builder;

void build_free(gguf_builder *b);
void build_bytes(gguf_builder *b, const void *bytes, size_t n);
void build_u32(gguf_builder *b, uint32_t value);
void build_u64(gguf_builder *b, uint64_t value);
void build_string(gguf_builder *b, const char *text);
void build_header(gguf_builder *b, uint32_t version, uint64_t num_tensors, uint64_t num_kvs);
/* Zeros up to the next multiple of `alignment`. */
void build_padding(gguf_builder *b, size_t alignment);

/* Key, type number (lls__gguf_type), then the n bytes of the value. */
void build_kv(gguf_builder *b, const char *key, uint32_t type, const void *value, size_t n);
void build_kv_u32(gguf_builder *b, const char *key, uint32_t value);
void build_kv_f32(gguf_builder *b, const char *key, float value);
void build_kv_string(gguf_builder *b, const char *key, const char *text);

/* dims as the file has them, innermost first; type by its number in the file. */
void build_tensor_info(gguf_builder *b, const char *name, uint32_t ndim, const uint64_t *dims, uint32_t type,
                       uint64_t offset);

#endif
