/* A pool of KV pages: integers handed out and taken back. Knows nothing of memory; exec/forward.h holds the cache
 * itself. */
#ifndef LLS_ENGINE_PAGES_H
#define LLS_ENGINE_PAGES_H

#include "core/error.h"

typedef struct lls__pages {
    int32_t num_pages, page_size; /* tokens a page */
    int32_t num_free;
    int32_t *free_list; /* stack of num_free page ids */
} lls__pages;

lls_status lls__pages_init(lls__pages *pages, int32_t num_pages, int32_t page_size);
void lls__pages_release(lls__pages *pages);

static inline int64_t lls__pages_for(const lls__pages *pages, int64_t tokens) {
    return (tokens + pages->page_size - 1) / pages->page_size;
}

/* Extends `table` from *count to `want` pages. All or nothing: false, and nothing changed, when the pool has too few.
 * */
bool lls__pages_extend(lls__pages *pages, int32_t *table, int32_t *count, int64_t want);
/* Takes all pages of a table back. */
void lls__pages_take_back(lls__pages *pages, const int32_t *table, int32_t *count);

#endif
