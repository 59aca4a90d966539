/* Byte-pair merging (Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", 2016): of all
 * adjacent pairs of a word that the table knows, the one of lowest rank is merged, the leftmost of equals first, until
 * none is left. */
#ifndef LLS_ENGINE_TEXT_MERGES_H
#define LLS_ENGINE_TEXT_MERGES_H

#include "engine/text/buffers.h"

typedef struct lls__merge {
    int32_t left, right; /* token ids; left is -1 in an empty slot */
    int32_t rank, merged;
} lls__merge;

/* Open addressing with linear probes, at most half full. */
typedef struct lls__merge_table {
    lls__merge *slot; /* [mask + 1] */
    uint64_t mask;
} lls__merge_table;

/* Room for max_merges. */
lls_status lls__merge_table_init(lls__merge_table *table, size_t max_merges);
/* Of two merges of one pair the first stays. */
void lls__merge_table_add(lls__merge_table *table, lls__merge merge);
void lls__merge_table_free(lls__merge_table *table);

/* Working memory of lls__merge_word, to be reused; zeroed is empty. */
typedef struct lls__merge_scratch {
    struct lls__symbol *symbol;
    size_t symbol_cap;
    uint64_t *heap;
    size_t heap_size, heap_cap;
} lls__merge_scratch;
void lls__merge_scratch_free(lls__merge_scratch *scratch);

/* Merges the *size tokens of `ids` in place; O(n log n). *size is at most INT32_MAX. */
lls_status lls__merge_word(const lls__merge_table *table, lls__merge_scratch *scratch, int32_t *ids, size_t *size);

#endif
