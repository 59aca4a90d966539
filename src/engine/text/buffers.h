/* A view of bytes, and the growing arrays of the text code. A zeroed array is empty; the owner frees it. */
#ifndef LLS_ENGINE_TEXT_BUFFERS_H
#define LLS_ENGINE_TEXT_BUFFERS_H

#include <stdlib.h>
#include <string.h>

#include "core/error.h"

/* Somebody else's bytes: not NUL-terminated, and they may hold NUL. */
typedef struct lls__str {
    const char *data;
    size_t size;
} lls__str;

/* The two arguments of "%.*s", cut to `max` bytes so that a message stays short. */
#define LLS__STR_CLIPPED(s, max) (int)((s).size < (max) ? (s).size : (max)), (s).data

typedef struct lls__bytes {
    char *data;
    size_t size, cap;
} lls__bytes;

typedef struct lls__ids {
    int32_t *data;
    size_t size, cap;
} lls__ids;

/* `data` with room for at least `need` elements of `elem` bytes, *cap updated; NULL (with the message set, and the old
 * block still valid) when memory is out. At least doubles, so that appending one by one is linear. */
void *lls__grown(void *data, size_t *cap, size_t need, size_t elem);

static inline lls_status lls__bytes_append(lls__bytes *b, const void *data, size_t size) {
    if (size > b->cap - b->size) {
        char *grown = lls__grown(b->data, &b->cap, b->size + size, 1);
        if (!grown) return LLS_ERR_MEMORY;
        b->data = grown;
    }
    if (size) memcpy(b->data + b->size, data, size);
    b->size += size;
    return LLS_OK;
}

static inline lls_status lls__ids_push(lls__ids *ids, int32_t id) {
    if (ids->size == ids->cap) {
        int32_t *grown = lls__grown(ids->data, &ids->cap, ids->size + 1, sizeof *ids->data);
        if (!grown) return LLS_ERR_MEMORY;
        ids->data = grown;
    }
    ids->data[ids->size++] = id;
    return LLS_OK;
}

#endif
