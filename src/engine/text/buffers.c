#include "engine/text/buffers.h"

void *lls__grown(void *data, size_t *cap, size_t need, size_t elem) {
    if (need <= *cap) return data;
    size_t want = need < 16 ? 16 : need;
    if (*cap <= SIZE_MAX / 2 && want < 2 * *cap) want = 2 * *cap;
    void *grown = want <= SIZE_MAX / elem ? realloc(data, want * elem) : NULL;
    if (!grown) {
        (void)lls__fail(LLS_ERR_MEMORY, "text: out of memory for %zu elements of %zu bytes", want, elem);
        return NULL;
    }
    *cap = want;
    return grown;
}
