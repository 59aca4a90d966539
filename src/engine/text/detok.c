#include "engine/text/detok.h"

#include "engine/text/utf8.h"

#define REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

void lls__detok_init(lls__detok *d, const lls__tokenizer *tokenizer, unsigned flags) {
    *d = (lls__detok){.tokenizer = tokenizer, .flags = flags};
    d->space_is_prefix = lls__tokenizer_adds_space_prefix(tokenizer) && !(flags & LLS__DETOK_CONTINUE);
}

lls_status lls__detok_flush(lls__detok *d, lls__bytes *out) {
    if (d->num_waiting == 0) return LLS_OK;
    LLS_TRY(lls__bytes_append(out, REPLACEMENT, 3));
    d->num_waiting = 0;
    return LLS_OK;
}

/* Completes the waiting character, or gives up on it; returns how many of the bytes it took. */
static lls_status complete(lls__detok *d, lls__str bytes, size_t *taken, lls__bytes *out) {
    for (*taken = 0; d->num_waiting > 0 && *taken < bytes.size;) {
        size_t len;
        d->waiting[d->num_waiting] = bytes.data[*taken];
        switch (lls__utf8_next(d->waiting, d->num_waiting + 1u, &len)) {
        case LLS__UTF8_CHAR:
            LLS_TRY(lls__bytes_append(out, d->waiting, len));
            d->num_waiting = 0;
            ++*taken;
            break;
        case LLS__UTF8_PARTIAL:
            d->num_waiting++;
            ++*taken;
            break;
        case LLS__UTF8_INVALID: // what waits is a maximal subpart; this byte may begin something new
            LLS_TRY(lls__detok_flush(d, out));
            break;
        }
    }
    return LLS_OK;
}

static lls_status push_bytes(lls__detok *d, lls__str bytes, lls__bytes *out) {
    size_t i;
    LLS_TRY(complete(d, bytes, &i, out));
    for (size_t len; i < bytes.size; i += len) {
        len = lls__utf8_valid_prefix(bytes.data + i, bytes.size - i);
        if (len > 0) {
            LLS_TRY(lls__bytes_append(out, bytes.data + i, len));
        } else if (lls__utf8_next(bytes.data + i, bytes.size - i, &len) == LLS__UTF8_PARTIAL) {
            memcpy(d->waiting, bytes.data + i, len);
            d->num_waiting = (uint8_t)len;
        } else {
            LLS_TRY(lls__bytes_append(out, REPLACEMENT, 3));
        }
    }
    return LLS_OK;
}

lls_status lls__detok_push(lls__detok *d, int32_t id, lls__bytes *out) {
    lls__str bytes = lls__token_bytes(d->tokenizer, id);
    if (!bytes.data) {
        return lls__fail(LLS_ERR_ARGUMENT, "detokenize: id is %d, must be in [0, %d)", id,
                         lls__tokenizer_size(d->tokenizer));
    }
    bool control = lls__token_is_control(d->tokenizer, id);
    bool special = control || lls__token_type_of(d->tokenizer, id) == LLS__TOKEN_USER_DEFINED;
    if (control && !(d->flags & LLS__DETOK_SHOW_CONTROL)) {
        LLS_TRY(lls__detok_flush(d, out));
        bytes.size = 0;
    }
    if (!special && d->space_is_prefix && bytes.size > 0 && bytes.data[0] == ' ') {
        bytes.data++;
        bytes.size--;
    }
    LLS_TRY(push_bytes(d, bytes, out));
    d->space_is_prefix = special && lls__tokenizer_adds_space_prefix(d->tokenizer);
    return LLS_OK;
}

lls_status lls__detokenize(const lls__tokenizer *tokenizer, const int32_t *ids, size_t num_ids, unsigned flags,
                           lls__bytes *out) {
    size_t before = out->size;
    lls__detok d;
    lls__detok_init(&d, tokenizer, flags);
    lls_status status = LLS_OK;
    for (size_t i = 0; i < num_ids && status == LLS_OK; i++) status = lls__detok_push(&d, ids[i], out);
    if (status == LLS_OK) status = lls__detok_flush(&d, out);
    if (status != LLS_OK) out->size = before;
    return status;
}
