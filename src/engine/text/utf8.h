/* UTF-8 as the Unicode standard defines it (chapter 3, table 3-7): no overlong forms, no surrogates, nothing above
 * U+10FFFF. */
#ifndef LLS_ENGINE_TEXT_UTF8_H
#define LLS_ENGINE_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum lls__utf8_kind {
    LLS__UTF8_CHAR,    /* a whole character */
    LLS__UTF8_PARTIAL, /* the bytes end inside a character that is well-formed so far */
    LLS__UTF8_INVALID  /* a maximal ill-formed subpart: what a decoder replaces by one U+FFFD */
} lls__utf8_kind;

/* Looks at the character that starts at p, of n >= 1 bytes, and sets *len to the bytes that the answer covers. */
lls__utf8_kind lls__utf8_next(const char *p, size_t n, size_t *len);

/* Offset of the first byte that does not begin or continue a whole character; n when all of the text is valid. */
size_t lls__utf8_valid_prefix(const char *p, size_t n);

#endif
