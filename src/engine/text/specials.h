/* Finds special tokens inside text, before anything else looks at it. */
#ifndef LLS_ENGINE_TEXT_SPECIALS_H
#define LLS_ENGINE_TEXT_SPECIALS_H

#include "engine/text/tokens.h"

/* Control, unknown and user-defined tokens, those whose spelling is UTF-8, in byte order: a trie without nodes, walked
 * by narrowing a range. */
typedef struct lls__specials {
    const lls__tokens *tokens;
    int32_t count;
    int32_t *id;         /* [count] */
    bool any_user;       /* whether there are user-defined ones */
    bool starts[2][256]; /* whether one begins with this byte; [0] looks at user-defined ones only */
} lls__specials;

/* `tokens` must outlive *specials. */
lls_status lls__specials_init(lls__specials *specials, const lls__tokens *tokens);
void lls__specials_free(lls__specials *specials);

/* The first special token that begins in [from, end), the longest of those that begin there; its position in *at.
 * User-defined tokens may reach past `end`, up to `size`; control and unknown tokens count only where `control` is set
 * and must lie within. -1 when there is none. */
int32_t lls__specials_next(const lls__specials *specials, const char *text, size_t size, size_t from, size_t end,
                           bool control, size_t *at);

/* The special token spelled exactly like this, or -1. */
int32_t lls__specials_find(const lls__specials *specials, const char *text, size_t size);

#endif
