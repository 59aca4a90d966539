#include "engine/kv/pages.h"

#include <stdlib.h>

lls_status lls__pages_init(lls__pages *pages, int32_t num_pages, int32_t page_size) {
    *pages = (lls__pages){.num_pages = num_pages, .page_size = page_size, .num_free = num_pages};
    pages->free_list = malloc((size_t)num_pages * sizeof *pages->free_list);
    if (!pages->free_list) return lls__fail(LLS_ERR_MEMORY, "kv: out of memory for a list of %d pages", num_pages);
    for (int32_t i = 0; i < num_pages; i++)
        pages->free_list[i] = num_pages - 1 - i; // low pages first: a short run touches little memory
    return LLS_OK;
}

void lls__pages_release(lls__pages *pages) {
    free(pages->free_list);
    *pages = (lls__pages){0};
}

bool lls__pages_extend(lls__pages *pages, int32_t *table, int32_t *count, int64_t want) {
    if (want - *count > pages->num_free) return false;
    while (*count < want) table[(*count)++] = pages->free_list[--pages->num_free];
    return true;
}

void lls__pages_take_back(lls__pages *pages, const int32_t *table, int32_t *count) {
    while (*count > 0) pages->free_list[pages->num_free++] = table[--(*count)];
}
