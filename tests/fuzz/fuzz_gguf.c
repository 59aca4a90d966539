/* libFuzzer target: any bytes are a GGUF file. Whatever is accepted is read to its last byte. */
#include <stdlib.h>
#include <string.h>

#include "engine/model/config.h"

static volatile uint64_t sink;

static void read_bytes(const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        sink += ((const uint8_t *)bytes)[i];
    }
}

static void read_kv(const lls__gguf_kv *kv) {
    read_bytes(kv->key.data, kv->key.size);
    if (kv->type == LLS__GGUF_STRING) {
        lls__gguf_strings strings = lls__gguf_strings_of(kv);
        for (lls__gguf_str s; lls__gguf_next_string(&strings, &s);) {
            read_bytes(s.data, s.size);
        }
    } else {
        read_bytes(kv->values, kv->count * lls__gguf_type_bytes(kv->type));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *bytes = malloc(size > 0 ? size : 1); // aligned, and exactly as long as the file
    if (bytes == NULL) {
        return 0;
    }
    memcpy(bytes, data, size);
    lls__gguf *g;
    if (lls__gguf_parse(bytes, size, "fuzz", &g) == LLS_OK) {
        for (size_t i = 0; i < g->num_kvs; i++) {
            read_kv(&g->kvs[i]);
        }
        for (size_t i = 0; i < g->num_tensors; i++) {
            read_bytes(g->tensors[i].data, g->tensors[i].nbytes);
        }
        lls__model_config config;
        if (lls__model_config_read(g, &config) == LLS_OK) {
            sink += (uint64_t)config.hidden;
        }
        lls__gguf_close(g);
    }
    free(bytes);
    return 0;
}
