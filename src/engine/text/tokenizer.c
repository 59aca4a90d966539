#include "engine/text/tokenizer.h"

#include <stdatomic.h>

#include "core/log.h"
#include "engine/text/merges.h"
#include "engine/text/nfc.h"
#include "engine/text/pretok.h"
#include "engine/text/specials.h"
#include "engine/text/utf8.h"

struct lls__tokenizer {
    lls__tokens tokens;
    lls__specials specials;
    lls__merge_table merges;

    /* [num_tokens] A word that is a token as a whole need not merge to that token. This says of which it is known that
     * they do, found out when the word first occurs: such words, most of any text, are not merged again. All threads
     * come to the same answer, so that relaxed order is enough. */
    _Atomic bool *whole;

    const lls__pretok_rule *rule; /* byte-level BPE; NULL for SentencePiece */
    lls__pretok *pretok;
    bool cut_at_spaces; /* SentencePiece: no token reaches from a word into the space after it */

    int32_t bos, eos, eot, unk;
    bool add_bos, add_eos, add_space_prefix;
};

/* ---- Merges ---------------------------------------------------------------------------------- */

/* "left right", in the byte-level spelling. */
static lls_status add_listed_merge(lls__tokenizer *t, lls__str merge, int32_t rank, lls__bytes *room) {
    const char *space = merge.size ? memchr(merge.data, ' ', merge.size) : NULL;
    lls__merge m = {-1, -1, rank, -1};
    room->size = 0;
    LLS_TRY(lls__bytes_append(room, merge.data, merge.size)); // the decoded pair is no longer than its spelling
    if (space) {
        lls__str left = {merge.data, (size_t)(space - merge.data)};
        lls__str right = {space + 1, merge.size - left.size - 1};
        size_t a, b;
        if (lls__byte_level_decode(left, room->data, &a) && lls__byte_level_decode(right, room->data + a, &b)) {
            m.left = lls__tokens_find(&t->tokens, room->data, a);
            m.right = lls__tokens_find(&t->tokens, room->data + a, b);
            m.merged = lls__tokens_find(&t->tokens, room->data, a + b);
        }
    }
    if (m.left < 0 || m.right < 0 || m.merged < 0) {
        return lls__fail(LLS_ERR_FORMAT, "vocabulary: merge %d is \"%.*s\", must be two tokens that join to a third",
                         rank, LLS__STR_CLIPPED(merge, 80));
    }
    lls__merge_table_add(&t->merges, m);
    return LLS_OK;
}

static lls_status add_listed_merges(lls__tokenizer *t, const lls__vocab *vocab) {
    LLS_TRY(lls__merge_table_init(&t->merges, (size_t)vocab->num_merges));
    lls__bytes room = {0};
    lls_status status = LLS_OK;
    for (int32_t i = 0; i < vocab->num_merges && status == LLS_OK; i++) {
        status = add_listed_merge(t, vocab->merges[i], i, &room);
    }
    free(room.data);
    return status;
}

typedef struct scored {
    float score;
    int32_t id;
} scored;

static int by_score(const void *a, const void *b) {
    float x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    return x > y ? -1 : x < y;
}

/* rank[id]: how many different scores are above that token's. */
static lls_status rank_by_score(const lls__vocab *vocab, int32_t *rank) {
    scored *order = malloc((size_t)vocab->num_tokens * sizeof *order);
    if (!order) return lls__fail(LLS_ERR_MEMORY, "vocabulary: out of memory for %d scores", vocab->num_tokens);
    for (int32_t id = 0; id < vocab->num_tokens; id++) order[id] = (scored){vocab->scores[id], id};
    qsort(order, (size_t)vocab->num_tokens, sizeof *order, by_score);
    int32_t next = 0;
    for (int32_t i = 0; i < vocab->num_tokens; i++) {
        if (i > 0 && order[i].score < order[i - 1].score) next++;
        rank[order[i].id] = next;
    }
    free(order);
    return LLS_OK;
}

typedef struct merge_list {
    lls__merge *data;
    size_t size, cap;
} merge_list;

/* SentencePiece lists no merges: any two tokens whose bytes join to a third may merge, the highest score first
 * (Kudo and Richardson, "SentencePiece", 2018). */
static lls_status list_implied_merges(const lls__tokens *tokens, const int32_t *rank, merge_list *list) {
    for (int32_t id = 0; id < tokens->count; id++) {
        lls__str token = lls__tokens_at(tokens, id);
        if (lls__tokens_find(tokens, token.data, token.size) != id) continue; // not made of text
        for (size_t cut = 1; cut < token.size; cut++) {
            lls__merge m = {.rank = rank[id], .merged = id};
            m.left = lls__tokens_find(tokens, token.data, cut);
            if (m.left < 0) continue;
            m.right = lls__tokens_find(tokens, token.data + cut, token.size - cut);
            if (m.right < 0) continue;
            lls__merge *grown = lls__grown(list->data, &list->cap, list->size + 1, sizeof m);
            if (!grown) return LLS_ERR_MEMORY;
            list->data = grown;
            list->data[list->size++] = m;
        }
    }
    return LLS_OK;
}

static lls_status add_implied_merges(lls__tokenizer *t, const lls__vocab *vocab) {
    merge_list list = {0};
    int32_t *rank = malloc((size_t)vocab->num_tokens * sizeof *rank);
    lls_status status = rank ? rank_by_score(vocab, rank)
                             : lls__fail(LLS_ERR_MEMORY, "vocabulary: out of memory for %d ranks", vocab->num_tokens);
    if (status == LLS_OK) status = list_implied_merges(&t->tokens, rank, &list);
    if (status == LLS_OK) status = lls__merge_table_init(&t->merges, list.size);
    for (size_t i = 0; i < list.size && status == LLS_OK; i++) lls__merge_table_add(&t->merges, list.data[i]);
    free(list.data);
    free(rank);
    return status;
}

/* ---- Creation -------------------------------------------------------------------------------- */

/* Whether merges never cross from a character other than a space to a space, so that text may be cut there. */
static bool no_token_spans_words(const lls__tokens *tokens) {
    for (int32_t id = 0; id < tokens->count; id++) {
        lls__str token = lls__tokens_at(tokens, id);
        for (size_t i = 1; i < token.size; i++) {
            if (token.data[i] == ' ' && token.data[i - 1] != ' ' && tokens->type[id] == LLS__TOKEN_NORMAL) return false;
        }
    }
    return true;
}

static lls_status init_byte_level(lls__tokenizer *t, const lls__vocab *vocab) {
    if (!vocab->pre) lls__log(LLS_LOG_WARN, "vocabulary: no pre-tokenizer is named; taking GPT-2's");
    t->rule = lls__pretok_find(vocab->pre ? vocab->pre : "default");
    if (!t->rule) {
        return lls__fail(LLS_ERR_MODEL, "vocabulary: pre-tokenizer \"%.80s\" is not known; a guess would lower quality",
                         vocab->pre);
    }
    LLS_TRY(lls__pretok_create(t->rule, &t->pretok));
    return add_listed_merges(t, vocab);
}

static bool has_byte_tokens(const lls__tokenizer *t, const char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (t->tokens.byte_id[(uint8_t)bytes[i]] < 0) return false;
    }
    return true;
}

static lls_status init_sentencepiece(lls__tokenizer *t, const lls__vocab *vocab) {
    if (!vocab->scores) return lls__fail(LLS_ERR_FORMAT, "vocabulary: scores are absent, \"llama\" needs them");
    char every_byte[256];
    for (int i = 0; i < 256; i++) every_byte[i] = (char)i;
    if (!has_byte_tokens(t, every_byte, 256) && vocab->unk < 0) {
        return lls__fail(LLS_ERR_FORMAT, "vocabulary: has neither 256 byte tokens nor an unknown token, must have one");
    }
    t->cut_at_spaces = no_token_spans_words(&t->tokens);
    t->add_space_prefix = vocab->add_space_prefix;
    return add_implied_merges(t, vocab);
}

static lls_status check_id(const char *name, int32_t id, int32_t num_tokens, bool needed) {
    if (id < LLS__VOCAB_NONE || id >= num_tokens) {
        return lls__fail(LLS_ERR_FORMAT, "vocabulary: %s is %d, must be in [0, %d) or -1", name, id, num_tokens);
    }
    if (needed && id < 0) return lls__fail(LLS_ERR_MODEL, "vocabulary: %s shall be added but is absent", name);
    return LLS_OK;
}

static lls_status init(lls__tokenizer *t, const lls__vocab *vocab) {
    bool byte_level = vocab->model && strcmp(vocab->model, "gpt2") == 0;
    if (!byte_level && (!vocab->model || strcmp(vocab->model, "llama") != 0)) {
        return lls__fail(LLS_ERR_MODEL, "vocabulary: tokenizer model is \"%.80s\", must be \"gpt2\" or \"llama\"",
                         vocab->model ? vocab->model : "");
    }
    if (vocab->num_tokens < 1 || vocab->num_merges < 0 || !vocab->text || (vocab->num_merges && !vocab->merges)) {
        return lls__fail(LLS_ERR_FORMAT, "vocabulary: %d tokens and %d merges, must be at least 1 and 0",
                         vocab->num_tokens, vocab->num_merges);
    }
    LLS_TRY(check_id("bos", vocab->bos, vocab->num_tokens, vocab->add_bos));
    LLS_TRY(check_id("eos", vocab->eos, vocab->num_tokens, vocab->add_eos));
    LLS_TRY(check_id("eot", vocab->eot, vocab->num_tokens, false));
    LLS_TRY(check_id("unk", vocab->unk, vocab->num_tokens, false));
    t->bos = vocab->bos;
    t->eos = vocab->eos;
    t->eot = vocab->eot;
    t->unk = vocab->unk;
    t->add_bos = vocab->add_bos;
    t->add_eos = vocab->add_eos;

    t->whole = calloc((size_t)vocab->num_tokens, sizeof *t->whole);
    if (!t->whole) return lls__fail(LLS_ERR_MEMORY, "vocabulary: out of memory for %d tokens", vocab->num_tokens);
    LLS_TRY(lls__tokens_init(&t->tokens, vocab));
    LLS_TRY(lls__specials_init(&t->specials, &t->tokens));
    return byte_level ? init_byte_level(t, vocab) : init_sentencepiece(t, vocab);
}

lls_status lls__tokenizer_create(const lls__vocab *vocab, lls__tokenizer **out) {
    lls__tokenizer *t = calloc(1, sizeof *t);
    if (!t) return lls__fail(LLS_ERR_MEMORY, "tokenizer: out of memory");
    lls_status status = init(t, vocab);
    if (status != LLS_OK) {
        lls__tokenizer_destroy(t);
        return status;
    }
    *out = t;
    return LLS_OK;
}

void lls__tokenizer_destroy(lls__tokenizer *t) {
    if (!t) return;
    lls__pretok_destroy(t->pretok);
    lls__merge_table_free(&t->merges);
    lls__specials_free(&t->specials);
    lls__tokens_free(&t->tokens);
    free((void *)t->whole);
    free(t);
}

/* ---- Encoding -------------------------------------------------------------------------------- */

/* What one call works with; the tokenizer itself stays untouched. */
typedef struct encoder {
    const lls__tokenizer *t;
    lls__ids *out;
    size_t plain_begin; /* of `out`: where the tokens of the current plain text begin */
    lls__ids word;      /* the tokens of the word being merged */
    lls__merge_scratch merge;
    lls__pretok_scratch *pretok;
    lls__bytes prefixed;
    size_t dropped;
    uint8_t first_dropped;
} encoder;

/* One token a byte: what the words of a byte-level vocabulary are merged from. */
static lls_status spell_bytes(encoder *e, const char *word, size_t size) {
    for (size_t i = 0; i < size; i++) {
        int32_t id = e->t->tokens.byte_id[(uint8_t)word[i]];
        if (id >= 0) {
            LLS_TRY(lls__ids_push(&e->word, id));
        } else if (e->dropped++ == 0) {
            e->first_dropped = (uint8_t)word[i];
        }
    }
    return LLS_OK;
}

/* One token a character, or its bytes, or the unknown token: the same for a SentencePiece vocabulary. */
static lls_status spell_chars(encoder *e, const char *word, size_t size) {
    const lls__tokenizer *t = e->t;
    size_t len;
    for (size_t i = 0; i < size; i += len) {
        lls__utf8_next(word + i, size - i, &len);
        int32_t id = lls__tokens_find(&t->tokens, word + i, len);
        if (id < 0 && has_byte_tokens(t, word + i, len)) {
            LLS_TRY(spell_bytes(e, word + i, len));
        } else {
            LLS_TRY(lls__ids_push(&e->word, id >= 0 ? id : t->unk));
        }
    }
    return LLS_OK;
}

/* Hands over the word; a run of unknown tokens becomes one. */
static lls_status emit_word(encoder *e) {
    int32_t unk = e->t->rule ? -1 : e->t->unk;
    for (size_t i = 0; i < e->word.size; i++) {
        int32_t id = e->word.data[i];
        if (id == unk && e->out->size > e->plain_begin && e->out->data[e->out->size - 1] == unk) continue;
        LLS_TRY(lls__ids_push(e->out, id));
    }
    return LLS_OK;
}

static lls_status encode_word(void *user, const char *word, size_t size) {
    encoder *e = user;
    const lls__tokenizer *t = e->t;
    int32_t id = lls__tokens_find(&t->tokens, word, size);
    if (id >= 0) {
        bool whole = (t->rule && t->rule->ignore_merges) || atomic_load_explicit(&t->whole[id], memory_order_relaxed);
        if (whole) return lls__ids_push(e->out, id);
    }
    e->word.size = 0;
    LLS_TRY(t->rule ? spell_bytes(e, word, size) : spell_chars(e, word, size));
    LLS_TRY(lls__merge_word(&t->merges, &e->merge, e->word.data, &e->word.size));
    if (id >= 0 && e->word.size == 1 && e->word.data[0] == id) {
        atomic_store_explicit(&t->whole[id], true, memory_order_relaxed);
    }
    return emit_word(e);
}

static bool is_ascii(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if ((uint8_t)text[i] >= 0x80) return false;
    }
    return true;
}

static lls_status encode_byte_level(encoder *e, const char *text, size_t size) {
    const lls__tokenizer *t = e->t;
    if (!t->rule->nfc || is_ascii(text, size)) {
        return lls__pretok_split(t->pretok, e->pretok, text, size, encode_word, e);
    }
    lls__bytes composed;
    LLS_TRY(lls__nfc(text, size, &composed));
    lls_status status = lls__pretok_split(t->pretok, e->pretok, composed.data, composed.size, encode_word, e);
    free(composed.data);
    return status;
}

static lls_status encode_sentencepiece(encoder *e, const char *text, size_t size) {
    if (e->t->add_space_prefix) {
        e->prefixed.size = 0;
        LLS_TRY(lls__bytes_append(&e->prefixed, " ", 1));
        LLS_TRY(lls__bytes_append(&e->prefixed, text, size));
        text = e->prefixed.data;
        size = e->prefixed.size;
    }
    size_t done = 0;
    for (size_t i = 1; i < size && e->t->cut_at_spaces; i++) {
        if (text[i] != ' ' || text[i - 1] == ' ') continue;
        LLS_TRY(encode_word(e, text + done, i - done));
        done = i;
    }
    return encode_word(e, text + done, size - done);
}

/* Text without special tokens. */
static lls_status encode_plain(encoder *e, const char *text, size_t size) {
    if (size == 0) return LLS_OK;
    e->plain_begin = e->out->size;
    return e->t->rule ? encode_byte_level(e, text, size) : encode_sentencepiece(e, text, size);
}

/* `text` is the parts joined. */
static lls_status encode(encoder *e, const char *text, size_t size, const lls__text_part *parts, size_t num_parts) {
    size_t plain = 0; // begin of the text that is not encoded yet
    size_t part_end = 0;
    for (size_t p = 0; p < num_parts; p++) {
        part_end += parts[p].size;
        size_t from = part_end - parts[p].size, at;
        if (from < plain) from = plain; // a user-defined token reached into this part
        int32_t id;
        while (from < part_end && (id = lls__specials_next(&e->t->specials, text, size, from, part_end,
                                                           parts[p].parse_special, &at)) >= 0) {
            LLS_TRY(encode_plain(e, text + plain, at - plain));
            LLS_TRY(lls__ids_push(e->out, id));
            plain = from = at + lls__tokens_at(&e->t->tokens, id).size;
        }
    }
    return encode_plain(e, text + plain, size - plain);
}

static lls_status check_text(const char *text, size_t size) {
    if (size > INT32_MAX) {
        return lls__fail(LLS_ERR_ARGUMENT, "tokenize: text has %zu bytes, must be below 2^31", size);
    }
    size_t valid = lls__utf8_valid_prefix(text, size);
    if (valid == size) return LLS_OK;
    return lls__fail(LLS_ERR_ENCODING, "tokenize: text is not UTF-8: byte %zu of %zu is 0x%02X and begins no character",
                     valid, size, (unsigned)(uint8_t)text[valid]);
}

static lls_status run(encoder *e, const char *text, size_t size, const lls__text_part *parts, size_t num_parts,
                      bool add_special) {
    LLS_TRY(check_text(text, size));
    if (e->t->rule) LLS_TRY(lls__pretok_scratch_create(&e->pretok));
    if (add_special && e->t->add_bos) LLS_TRY(lls__ids_push(e->out, e->t->bos));
    LLS_TRY(encode(e, text, size, parts, num_parts));
    if (add_special && e->t->add_eos) LLS_TRY(lls__ids_push(e->out, e->t->eos));
    return LLS_OK;
}

lls_status lls__tokenize_parts(const lls__tokenizer *t, const lls__text_part *parts, size_t num_parts, bool add_special,
                               lls__ids *ids) {
    lls__bytes joined = {0};
    lls_status status = LLS_OK;
    const char *text = num_parts == 1 ? parts[0].text : NULL;
    size_t size = num_parts == 1 ? parts[0].size : 0;
    if (num_parts > 1) {
        for (size_t i = 0; i < num_parts && status == LLS_OK; i++) {
            status = lls__bytes_append(&joined, parts[i].text, parts[i].size);
        }
        text = joined.data;
        size = joined.size;
    }
    if (size == 0) text = ""; // not NULL, to which nothing may be added
    encoder e = {.t = t, .out = ids};
    size_t before = ids->size;
    if (status == LLS_OK) status = run(&e, text, size, parts, num_parts, add_special);
    if (status != LLS_OK) ids->size = before;
    if (e.dropped) {
        lls__log(LLS_LOG_WARN, "tokenize: dropped %zu bytes that the vocabulary has no token for; the first is 0x%02X",
                 e.dropped, (unsigned)e.first_dropped);
    }
    free(joined.data);
    free(e.word.data);
    free(e.prefixed.data);
    lls__merge_scratch_free(&e.merge);
    lls__pretok_scratch_destroy(e.pretok);
    return status;
}

lls_status lls__tokenize(const lls__tokenizer *t, const char *text, size_t size, bool add_special, bool parse_special,
                         lls__ids *ids) {
    lls__text_part part = {text, size, parse_special};
    return lls__tokenize_parts(t, &part, 1, add_special, ids);
}

/* ---- Questions about tokens ------------------------------------------------------------------ */

int32_t lls__tokenizer_size(const lls__tokenizer *t) {
    return t->tokens.count;
}

int32_t lls__tokenizer_bos(const lls__tokenizer *t) {
    return t->bos;
}

int32_t lls__tokenizer_eos(const lls__tokenizer *t) {
    return t->eos;
}

int32_t lls__tokenizer_eot(const lls__tokenizer *t) {
    return t->eot;
}

bool lls__tokenizer_adds_space_prefix(const lls__tokenizer *t) {
    return t->add_space_prefix;
}

static bool has_id(const lls__tokenizer *t, int32_t id) {
    return id >= 0 && id < t->tokens.count;
}

lls__str lls__token_bytes(const lls__tokenizer *t, int32_t id) {
    return has_id(t, id) ? lls__tokens_at(&t->tokens, id) : (lls__str){0};
}

lls__token_type lls__token_type_of(const lls__tokenizer *t, int32_t id) {
    return has_id(t, id) ? (lls__token_type)t->tokens.type[id] : LLS__TOKEN_UNUSED;
}

bool lls__token_is_control(const lls__tokenizer *t, int32_t id) {
    lls__token_type type = lls__token_type_of(t, id);
    return type == LLS__TOKEN_CONTROL || type == LLS__TOKEN_UNKNOWN;
}

int32_t lls__token_find(const lls__tokenizer *t, const char *bytes, size_t size) {
    int32_t special = lls__specials_find(&t->specials, bytes, size);
    return special >= 0 ? special : lls__tokens_find(&t->tokens, bytes, size);
}
