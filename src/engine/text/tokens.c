#include "engine/text/tokens.h"

#define SPACE_MARK "\xE2\x96\x81" /* U+2581, which SentencePiece writes for a space */

/* Bytes that print as themselves in Latin-1 are their own character; the other 68 take U+0100 to U+0143 in order
 * (the byte-level alphabet of GPT-2). */
static bool prints_as_itself(unsigned byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
}

/* The byte that a character of the alphabet stands for, or -1. */
static int byte_of_char(unsigned c) {
    if (c < 0x100) return prints_as_itself(c) ? (int)c : -1;
    if (c >= 0x100 + 68) return -1;
    // The c-th byte that does not print: 0x00-0x20, then 0x7F-0xA0, then 0xAD.
    unsigned nth = c - 0x100;
    return (int)(nth < 0x21 ? nth : nth < 0x43 ? 0x7F + nth - 0x21 : 0xAD);
}

bool lls__byte_level_decode(lls__str spelling, char *out, size_t *size) {
    const uint8_t *s = (const uint8_t *)spelling.data;
    size_t n = 0;
    for (size_t i = 0; i < spelling.size; i++) {
        unsigned c = s[i];
        if (c >= 0x80) { // the whole alphabet is below U+0800: two bytes
            if ((c & 0xE0) != 0xC0 || i + 1 == spelling.size || (s[i + 1] & 0xC0) != 0x80) return false;
            c = (c & 0x1F) << 6 | (s[++i] & 0x3F);
        }
        int byte = byte_of_char(c);
        if (byte < 0) return false;
        out[n++] = (char)byte;
    }
    *size = n;
    return true;
}

static size_t decode_space_marks(lls__str spelling, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < spelling.size;) {
        if (spelling.size - i >= 3 && memcmp(spelling.data + i, SPACE_MARK, 3) == 0) {
            out[n++] = ' ';
            i += 3;
        } else {
            out[n++] = spelling.data[i++];
        }
    }
    return n;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte of "<0xHH>", or -1. */
static int decode_byte_token(lls__str s) {
    if (s.size != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>') return -1;
    int high = hex_digit(s.data[3]), low = hex_digit(s.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static uint32_t hash_of(const char *bytes, size_t size) {
    uint64_t h = size * 0x9E3779B97F4A7C15u, chunk;
    for (; size >= 8; size -= 8, bytes += 8) {
        memcpy(&chunk, bytes, 8);
        h = (h ^ chunk) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    chunk = 0;
    for (size_t i = 0; i < size; i++) chunk = chunk << 8 | (uint8_t)bytes[i];
    h = (h ^ chunk) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(h ^ h >> 32);
}

/* The slot of these bytes, or the empty one where they belong. */
static lls__token_slot *find_slot(const lls__tokens *t, uint32_t hash, const char *bytes, size_t size) {
    uint32_t i = hash & t->mask;
    for (; t->slot[i].id >= 0; i = (i + 1) & t->mask) {
        if (t->slot[i].hash != hash) continue;
        lls__str token = lls__tokens_at(t, t->slot[i].id);
        if (token.size == size && memcmp(token.data, bytes, size) == 0) break;
    }
    return &t->slot[i];
}

int32_t lls__tokens_find(const lls__tokens *t, const char *bytes, size_t size) {
    return find_slot(t, hash_of(bytes, size), bytes, size)->id;
}

/* Writes the bytes of token `id` behind those of the tokens before it. *plain: text may contain it. */
static lls_status decode_token(lls__tokens *t, bool byte_level, lls__str spelling, int32_t type, int32_t id,
                               bool *plain) {
    char *out = t->bytes + t->offset[id];
    size_t size = spelling.size;
    *plain = type == LLS__TOKEN_NORMAL && size > 0;
    switch (type) {
    case LLS__TOKEN_BYTE: {
        int byte = decode_byte_token(spelling);
        if (byte < 0) {
            return lls__fail(LLS_ERR_FORMAT, "vocabulary: byte token %d is \"%.*s\", must be like \"<0x0A>\"", id,
                             LLS__STR_CLIPPED(spelling, 40));
        }
        out[0] = (char)byte;
        size = 1;
        if (t->byte_id[byte] < 0) t->byte_id[byte] = id;
        break;
    }
    case LLS__TOKEN_NORMAL:
    case LLS__TOKEN_USER_DEFINED:
    case LLS__TOKEN_UNUSED:
        if (!byte_level) {
            size = decode_space_marks(spelling, out);
            break;
        }
        if (type != LLS__TOKEN_USER_DEFINED) {
            if (lls__byte_level_decode(spelling, out, &size)) break;
            *plain = false; // no text comes out as this: kept for display
            size = spelling.size;
        }
        // fall through
    default: // control, unknown, and added text of byte-level vocabularies: spelled as they are
        if (size) memcpy(out, spelling.data, size);
    }
    t->type[id] = (uint8_t)type;
    t->offset[id + 1] = t->offset[id] + (uint32_t)size;
    return LLS_OK;
}

static void index_token(lls__tokens *t, int32_t id) {
    lls__str token = lls__tokens_at(t, id);
    uint32_t hash = hash_of(token.data, token.size);
    lls__token_slot *slot = find_slot(t, hash, token.data, token.size);
    if (slot->id < 0) *slot = (lls__token_slot){.hash = hash, .id = id};
}

static lls_status allocate(lls__tokens *t, int32_t count, size_t bytes) {
    size_t slots = 2;
    while (slots < 2 * (size_t)count) slots *= 2;
    t->bytes = malloc(bytes + 1);
    t->offset = calloc((size_t)count + 1, sizeof *t->offset);
    t->type = calloc((size_t)count, 1);
    t->slot = malloc(slots * sizeof *t->slot);
    if (!t->bytes || !t->offset || !t->type || !t->slot) {
        return lls__fail(LLS_ERR_MEMORY, "vocabulary: out of memory for %d tokens of %zu bytes", count, bytes);
    }
    for (size_t i = 0; i < slots; i++) t->slot[i].id = -1;
    for (int i = 0; i < 256; i++) t->byte_id[i] = -1;
    t->mask = (uint32_t)(slots - 1);
    t->count = count;
    return LLS_OK;
}

static lls_status fill(lls__tokens *t, const lls__vocab *vocab) {
    size_t bytes = 0;
    for (int32_t id = 0; id < vocab->num_tokens; id++) bytes += vocab->text[id].size;
    if (bytes > UINT32_MAX) {
        return lls__fail(LLS_ERR_FORMAT, "vocabulary: %zu bytes of tokens, must be below 2^32", bytes);
    }
    LLS_TRY(allocate(t, vocab->num_tokens, bytes));
    bool byte_level = strcmp(vocab->model, "gpt2") == 0;
    for (int32_t id = 0; id < vocab->num_tokens; id++) {
        int32_t type = vocab->type ? vocab->type[id] : LLS__TOKEN_NORMAL;
        if (type < LLS__TOKEN_NORMAL || type > LLS__TOKEN_BYTE) {
            return lls__fail(LLS_ERR_FORMAT, "vocabulary: type of token %d is %d, must be 1 to 6", id, type);
        }
        bool plain;
        LLS_TRY(decode_token(t, byte_level, vocab->text[id], type, id, &plain));
        if (plain) index_token(t, id);
    }
    for (int byte = 0; byte < 256 && byte_level; byte++) {
        char c = (char)byte;
        t->byte_id[byte] = lls__tokens_find(t, &c, 1);
    }
    return LLS_OK;
}

lls_status lls__tokens_init(lls__tokens *tokens, const lls__vocab *vocab) {
    lls__tokens t = {0};
    lls_status status = fill(&t, vocab);
    if (status == LLS_OK) {
        *tokens = t;
    } else {
        lls__tokens_free(&t);
    }
    return status;
}

void lls__tokens_free(lls__tokens *tokens) {
    free(tokens->bytes);
    free(tokens->offset);
    free(tokens->type);
    free(tokens->slot);
}
