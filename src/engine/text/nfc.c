#include "engine/text/nfc.h"

#include <utf8proc.h>

/* utf8proc_map would do, but sorts combining marks by exchange: a hundred kilobytes of them take half a minute. */

#define FORM (UTF8PROC_STABLE | UTF8PROC_COMPOSE)

typedef struct code_points {
    utf8proc_int32_t *data;
    size_t size, cap;
} code_points;

static lls_status decompose(const char *text, size_t size, code_points *out) {
    const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)text;
    enum { LONGEST = 8 }; // no canonical decomposition has more than 4
    for (size_t i = 0; i < size;) {
        utf8proc_int32_t c;
        i += (size_t)utf8proc_iterate(p + i, (utf8proc_ssize_t)(size - i), &c);
        utf8proc_int32_t *grown = lls__grown(out->data, &out->cap, out->size + LONGEST, sizeof *grown);
        if (!grown) return LLS_ERR_MEMORY;
        out->data = grown;
        int boundary = 0;
        out->size += (size_t)utf8proc_decompose_char(c, out->data + out->size, LONGEST, FORM, &boundary);
    }
    return LLS_OK;
}

static uint8_t class_of(utf8proc_int32_t c) {
    return (uint8_t)utf8proc_get_property(c)->combining_class;
}

/* Sorts a run of marks by combining class and keeps the order within a class: by counting. */
static void sort_marks(utf8proc_int32_t *marks, size_t n, utf8proc_int32_t *room) {
    size_t begin[257] = {0};
    for (size_t i = 0; i < n; i++) begin[class_of(marks[i]) + 1]++;
    for (int c = 0; c < 256; c++) begin[c + 1] += begin[c];
    for (size_t i = 0; i < n; i++) room[begin[class_of(marks[i])]++] = marks[i];
    memcpy(marks, room, n * sizeof *marks);
}

/* The canonical order: each run of marks between starters (class 0) is sorted, unless it is already. */
static void order_marks(code_points *text, utf8proc_int32_t *room) {
    size_t run = 0; // where the run began
    bool sorted = true;
    uint8_t last = 0;
    for (size_t i = 0; i <= text->size; i++) {
        uint8_t class = i < text->size ? class_of(text->data[i]) : 0;
        if (class == 0) {
            if (!sorted) sort_marks(text->data + run, i - run, room);
            run = i + 1;
            sorted = true;
        } else if (class < last) {
            sorted = false;
        }
        last = class;
    }
}

lls_status lls__nfc(const char *text, size_t size, lls__bytes *out) {
    code_points c = {0};
    lls_status status = decompose(text, size, &c);
    utf8proc_int32_t *room = status == LLS_OK ? malloc((c.size + 1) * sizeof *room) : NULL;
    if (!room) {
        free(c.data);
        return lls__fail(LLS_ERR_MEMORY, "text: out of memory for the normal form of %zu bytes", size);
    }
    order_marks(&c, room);
    free(room);
    // In place: no character takes more bytes in UTF-8 than a code point here, and there is room for the final NUL.
    utf8proc_ssize_t n = utf8proc_reencode(c.data, (utf8proc_ssize_t)c.size, FORM);
    if (n < 0) {
        free(c.data);
        return lls__fail(LLS_ERR_INTERNAL, "text: normal form C: %s", utf8proc_errmsg(n));
    }
    *out = (lls__bytes){.data = (char *)c.data, .size = (size_t)n, .cap = c.cap * sizeof *c.data};
    return LLS_OK;
}
