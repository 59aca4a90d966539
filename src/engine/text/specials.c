#include "engine/text/specials.h"

#include "engine/text/utf8.h"

/* Whether text is searched for this token. Valid UTF-8 is found on borders of characters only; a spelling that is not
 * (a file may hold anything) would cut characters apart. */
static bool is_special(const lls__tokens *tokens, int32_t id) {
    uint8_t type = tokens->type[id];
    if (type != LLS__TOKEN_CONTROL && type != LLS__TOKEN_UNKNOWN && type != LLS__TOKEN_USER_DEFINED) return false;
    lls__str token = lls__tokens_at(tokens, id);
    return token.size > 0 && lls__utf8_valid_prefix(token.data, token.size) == token.size;
}

/* Bytes, then length, then id. */
static int compare(const void *a, const void *b, void *tokens) {
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    lls__str x = lls__tokens_at(tokens, i), y = lls__tokens_at(tokens, j);
    int order = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
    if (order) return order;
    if (x.size != y.size) return x.size < y.size ? -1 : 1;
    return i < j ? -1 : 1;
}

lls_status lls__specials_init(lls__specials *specials, const lls__tokens *tokens) {
    lls__specials s = {.tokens = tokens};
    for (int32_t id = 0; id < tokens->count; id++) {
        s.count += is_special(tokens, id);
    }
    s.id = malloc(((size_t)s.count + 1) * sizeof *s.id);
    if (!s.id) return lls__fail(LLS_ERR_MEMORY, "vocabulary: out of memory for %d special tokens", s.count);
    int32_t n = 0;
    for (int32_t id = 0; id < tokens->count; id++) {
        if (!is_special(tokens, id)) continue;
        s.id[n++] = id;
        uint8_t first = (uint8_t)lls__tokens_at(tokens, id).data[0];
        s.starts[1][first] = true;
        if (tokens->type[id] == LLS__TOKEN_USER_DEFINED) s.any_user = s.starts[0][first] = true;
    }
    qsort_r(s.id, (size_t)n, sizeof *s.id, compare, (void *)tokens);
    *specials = s;
    return LLS_OK;
}

void lls__specials_free(lls__specials *specials) {
    free(specials->id);
}

/* Of the entries [low, high), which share their first `depth` bytes: the first whose next byte is at least `byte`.
 * Entries that end here come before all others. */
static int32_t lower_bound(const lls__specials *s, int32_t low, int32_t high, size_t depth, int byte) {
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        lls__str token = lls__tokens_at(s->tokens, s->id[middle]);
        if (token.size == depth || (uint8_t)token.data[depth] < byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The longest token that begins at `text`. */
static int32_t longest(const lls__specials *s, const char *text, size_t size, size_t control_size) {
    int32_t low = 0, high = s->count, best = -1;
    for (size_t depth = 0; depth < size && low < high; depth++) {
        int byte = (uint8_t)text[depth];
        low = lower_bound(s, low, high, depth, byte);
        high = lower_bound(s, low, high, depth, byte + 1);
        if (low == high) break;
        int32_t id = s->id[low];
        if (lls__tokens_at(s->tokens, id).size != depth + 1) continue;
        if (depth < control_size || s->tokens->type[id] == LLS__TOKEN_USER_DEFINED) best = id;
    }
    return best;
}

int32_t lls__specials_next(const lls__specials *s, const char *text, size_t size, size_t from, size_t end, bool control,
                           size_t *at) {
    if (!control && !s->any_user) return -1;
    const bool *starts = s->starts[control];
    for (size_t i = from; i < end; i++) {
        if (!starts[(uint8_t)text[i]]) continue;
        int32_t id = longest(s, text + i, size - i, control ? end - i : 0);
        if (id >= 0) {
            *at = i;
            return id;
        }
    }
    return -1;
}

int32_t lls__specials_find(const lls__specials *s, const char *text, size_t size) {
    int32_t id = size ? longest(s, text, size, size) : -1;
    return id >= 0 && lls__tokens_at(s->tokens, id).size == size ? id : -1;
}
