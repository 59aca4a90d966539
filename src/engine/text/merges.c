#include "engine/text/merges.h"

/* A token of the word: a linked list inside an array, so that a merge is O(1). `rank` and `merged` belong to the pair
 * of this symbol and the next. */
typedef struct lls__symbol {
    int32_t id;
    int32_t prev, next; // -1 at the ends
    int32_t rank, merged;
} lls__symbol;

#define NO_RANK INT32_MAX // no such pair, or the symbol was swallowed by its neighbour

static uint64_t pair_hash(int32_t left, int32_t right) {
    uint64_t x = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    return x ^ x >> 32;
}

lls_status lls__merge_table_init(lls__merge_table *table, size_t max_merges) {
    size_t slots = 2;
    while (slots < 2 * max_merges) slots *= 2;
    table->slot = malloc(slots * sizeof *table->slot);
    if (!table->slot) return lls__fail(LLS_ERR_MEMORY, "tokenizer: out of memory for %zu merges", max_merges);
    for (size_t i = 0; i < slots; i++) table->slot[i].left = -1;
    table->mask = slots - 1;
    return LLS_OK;
}

void lls__merge_table_free(lls__merge_table *table) {
    free(table->slot);
}

/* The pair's slot, or the empty one where it belongs. */
static lls__merge *find_slot(const lls__merge_table *table, int32_t left, int32_t right) {
    uint64_t i = pair_hash(left, right) & table->mask;
    while (table->slot[i].left >= 0 && (table->slot[i].left != left || table->slot[i].right != right)) {
        i = (i + 1) & table->mask;
    }
    return &table->slot[i];
}

void lls__merge_table_add(lls__merge_table *table, lls__merge merge) {
    lls__merge *slot = find_slot(table, merge.left, merge.right);
    if (slot->left < 0) *slot = merge;
}

void lls__merge_scratch_free(lls__merge_scratch *scratch) {
    free(scratch->symbol);
    free(scratch->heap);
}

/* A heap entry is rank, then position: its order is the order of merging. */
static uint64_t entry_of(int32_t rank, int32_t position) {
    return (uint64_t)(uint32_t)rank << 32 | (uint32_t)position;
}

static void heap_push(lls__merge_scratch *s, uint64_t entry) {
    size_t i = s->heap_size++;
    for (; i > 0 && s->heap[(i - 1) / 2] > entry; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = entry;
}

static uint64_t heap_pop(lls__merge_scratch *s) {
    uint64_t top = s->heap[0], last = s->heap[--s->heap_size];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < s->heap_size; i = child) {
        if (child + 1 < s->heap_size && s->heap[child + 1] < s->heap[child]) child++;
        if (s->heap[child] >= last) break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    return top;
}

/* Looks up the pair that begins at `left` and queues it. */
static void consider(const lls__merge_table *table, lls__merge_scratch *s, int32_t left) {
    lls__symbol *a = &s->symbol[left];
    a->rank = NO_RANK;
    if (a->next < 0) return;
    const lls__merge *merge = find_slot(table, a->id, s->symbol[a->next].id);
    if (merge->left < 0) return;
    a->rank = merge->rank;
    a->merged = merge->merged;
    heap_push(s, entry_of(a->rank, left));
}

lls_status lls__merge_word(const lls__merge_table *table, lls__merge_scratch *s, int32_t *ids, size_t *size) {
    int32_t n = (int32_t)*size;
    if (n < 2) return LLS_OK;
    // Each merge retires one entry at least and queues two at most: 2n entries are enough.
    lls__symbol *symbol = lls__grown(s->symbol, &s->symbol_cap, (size_t)n, sizeof *symbol);
    if (!symbol) return LLS_ERR_MEMORY;
    s->symbol = symbol;
    uint64_t *heap = lls__grown(s->heap, &s->heap_cap, 2 * (size_t)n, sizeof *heap);
    if (!heap) return LLS_ERR_MEMORY;
    s->heap = heap;
    s->heap_size = 0;

    for (int32_t i = 0; i < n; i++) {
        symbol[i] = (lls__symbol){.id = ids[i], .prev = i - 1, .next = i + 1 < n ? i + 1 : -1};
    }
    for (int32_t i = 0; i < n; i++) consider(table, s, i);

    while (s->heap_size > 0) {
        uint64_t entry = heap_pop(s);
        int32_t left = (int32_t)(uint32_t)entry;
        lls__symbol *a = &symbol[left];
        if (a->rank != (int32_t)(entry >> 32)) continue; // that pair is gone
        lls__symbol *b = &symbol[a->next];
        a->id = a->merged;
        a->next = b->next;
        b->rank = NO_RANK;
        if (a->next >= 0) symbol[a->next].prev = left;
        consider(table, s, left);
        if (a->prev >= 0) consider(table, s, a->prev);
    }

    size_t kept = 0;
    for (int32_t i = 0; i >= 0; i = symbol[i].next) ids[kept++] = symbol[i].id;
    *size = kept;
    return LLS_OK;
}
