#include "engine/text/chat_format.h"

/* ---- Reading expressions ---------------------------------------------------------------------- */

/* One operand of a sum such as  '<s>[INST] ' + message['content'] | trim + ' [/INST]' . */
typedef enum term_kind { TERM_LITERAL, TERM_CONTENT, TERM_BOS, TERM_EOS, TERM_OTHER } term_kind;

typedef struct term {
    term_kind kind;
    bool trimmed;
    lls__str text; /* a literal without its quotes, escapes as written; a name as written */
} term;

typedef struct reader {
    const char *p, *end;
} reader;

static void skip_spaces(reader *r) {
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r')) r->p++;
}

static bool take(reader *r, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n) != 0) return false;
    r->p += n;
    return true;
}

static bool equals(lls__str s, const char *word) {
    return s.size == strlen(word) && memcmp(s.data, word, s.size) == 0;
}

static bool contains(lls__str s, const char *word) {
    return memmem(s.data, s.size, word, strlen(word)) != NULL;
}

/* 'text' or "text"; false when there is none. */
static bool read_literal(reader *r, lls__str *out) {
    if (r->p == r->end || (*r->p != '\'' && *r->p != '"')) return false;
    char quote = *r->p;
    const char *begin = r->p + 1, *p = begin;
    while (p < r->end && *p != quote) p += *p == '\\' && p + 1 < r->end ? 2 : 1;
    if (p >= r->end) return false;
    *out = (lls__str){begin, (size_t)(p - begin)};
    r->p = p + 1;
    return true;
}

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

/* message['content'], message.content, content: a name with subscripts. */
static bool read_name(reader *r, lls__str *out) {
    const char *begin = r->p;
    for (;;) {
        while (r->p < r->end && is_name_char(*r->p)) r->p++;
        if (r->p == begin || r->p == r->end || *r->p != '[') break;
        const char *close = memchr(r->p, ']', (size_t)(r->end - r->p));
        if (!close) return false;
        r->p = close + 1;
    }
    *out = (lls__str){begin, (size_t)(r->p - begin)};
    return out->size > 0;
}

static bool ends_with(lls__str s, const char *word) {
    size_t n = strlen(word);
    return s.size >= n && memcmp(s.data + s.size - n, word, n) == 0;
}

/* Jinja's "| trim" behind an operand. */
static bool take_trim(reader *r) {
    skip_spaces(r);
    if (!take(r, "|")) return false;
    skip_spaces(r);
    return take(r, "trim");
}

static bool read_term(reader *r, term *out) {
    *out = (term){0};
    skip_spaces(r);
    if (read_literal(r, &out->text)) return true; // TERM_LITERAL
    if (!read_name(r, &out->text)) return false;
    if (ends_with(out->text, ".strip")) {
        out->text.size -= strlen(".strip");
        out->trimmed = take(r, "()");
    }
    out->trimmed |= take_trim(r);
    static const char *const contents[] = {"message['content']", "message[\"content\"]", "message.content", "content"};
    out->kind = equals(out->text, "bos_token") ? TERM_BOS : equals(out->text, "eos_token") ? TERM_EOS : TERM_OTHER;
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        if (equals(out->text, contents[i])) out->kind = TERM_CONTENT;
    }
    return true;
}

#define MAX_TERMS 16

/* A sum of terms up to the end of the reader; 0 when the text is anything else. */
static int read_sum(reader *r, term terms[MAX_TERMS]) {
    for (int n = 0; n < MAX_TERMS;) {
        if (!read_term(r, &terms[n++])) return 0;
        skip_spaces(r);
        if (r->p == r->end) return n;
        if (!take(r, "+")) return 0;
    }
    return 0;
}

/* Whether the content of messages is trimmed anywhere: in an expression or in an assignment. */
static bool trims_content(lls__str text) {
    const char *end = text.data + text.size;
    for (const char *p = text.data; (p = memmem(p, (size_t)(end - p), "content", 7)); p += 7) {
        reader r = {p + 7, end};
        (void)(take(&r, "']") || take(&r, "\"]"));
        if (take(&r, ".strip()") || take_trim(&r)) return true;
    }
    return false;
}

/* The inside of the next {{ expression }} at or after *from, which moves behind it. */
static bool next_expression(lls__str text, size_t *from, reader *out) {
    const char *begin = memmem(text.data + *from, text.size - *from, "{{", 2);
    if (!begin) return false;
    begin += 2;
    const char *end = memmem(begin, (size_t)(text.data + text.size - begin), "}}", 2);
    if (!end) return false;
    *from = (size_t)(end + 2 - text.data);
    if (begin < end && *begin == '-') begin++; // white space control
    if (begin < end && end[-1] == '-') end--;
    *out = (reader){begin, end};
    return true;
}

/* ---- Writing rules ---------------------------------------------------------------------------- */

static lls_status append(lls__bytes *out, const char *text) {
    return lls__bytes_append(out, text, strlen(text));
}

static lls_status append_literal(lls__bytes *out, lls__str literal) {
    for (size_t i = 0; i < literal.size; i++) {
        char c = literal.data[i];
        if (c == '\\' && i + 1 < literal.size) {
            c = literal.data[++i];
            c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
        }
        LLS_TRY(lls__bytes_append(out, &c, 1));
    }
    return LLS_OK;
}

static const char *const role_names[LLS__NUM_ROLES] = {"system", "user", "assistant"};

/* The same frame around every role: open ROLE close CONTENT after. The answer begins like an assistant's message. */
static lls_status frame_roles(lls__chat_rules *rules, const char *open, const char *close, lls__str after,
                              const char *end) {
    for (int role = 0; role < LLS__NUM_ROLES; role++) {
        LLS_TRY(append(&rules->before[role], open));
        LLS_TRY(append(&rules->before[role], role_names[role]));
        LLS_TRY(append(&rules->before[role], close));
        LLS_TRY(lls__bytes_append(&rules->after[role], after.data, after.size));
        LLS_TRY(append(&rules->after[role], end));
    }
    const lls__bytes *assistant = &rules->before[LLS__ASSISTANT];
    LLS_TRY(lls__bytes_append(&rules->answer, assistant->data, assistant->size));
    return lls__bytes_append(&rules->end_of_turn, after.data, after.size);
}

typedef struct template_text {
    lls__str text, bos, eos;
} template_text;

/* What the families that frame all roles alike have in common. */
static lls_status common_rules(const template_text *t, lls__chat_rules *rules) {
    for (int role = 0; role < LLS__NUM_ROLES; role++) rules->trim[role] = trims_content(t->text);
    return contains(t->text, "bos_token") ? lls__bytes_append(&rules->head, t->bos.data, t->bos.size) : LLS_OK;
}

/* ---- The formats ------------------------------------------------------------------------------ */

/* A template that gives a system message to chats without one holds that message as one literal, frame and all. */
static lls_status chatml_default_system(lls__str text, lls__chat_rules *rules) {
    lls__bytes whole = {0};
    lls_status status = LLS_OK;
    const char *open = "<|im_start|>system\n", *close = "<|im_end|>";
    size_t from = 0;
    term terms[MAX_TERMS];
    for (reader r; status == LLS_OK && !rules->has_default_system && next_expression(text, &from, &r);) {
        if (read_sum(&r, terms) != 1 || terms[0].kind != TERM_LITERAL) continue;
        whole.size = 0;
        status = append_literal(&whole, terms[0].text);
        lls__str s = {whole.data, whole.size};
        if (status != LLS_OK || s.size < strlen(open) || memcmp(s.data, open, strlen(open)) != 0) continue;
        s.data += strlen(open);
        s.size -= strlen(open);
        const char *end = memmem(s.data, s.size, close, strlen(close));
        if (!end) continue; // "<|im_start|>system\n" alone: the message comes from elsewhere
        rules->has_default_system = true;
        status = lls__bytes_append(&rules->default_system, s.data, (size_t)(end - s.data));
    }
    free(whole.data);
    return status;
}

static lls_status chatml(const template_text *t, lls__chat_rules *rules) {
    LLS_TRY(common_rules(t, rules));
    LLS_TRY(frame_roles(rules, "<|im_start|>", "\n", (lls__str){"<|im_end|>", 10}, "\n"));
    return chatml_default_system(t->text, rules);
}

/* From 3.1 on there is always a system turn, with two dates in front of the message. The second is a parameter of the
 * template; without one it is the date that the template names. */
static lls_status llama3(const template_text *t, lls__chat_rules *rules) {
    LLS_TRY(common_rules(t, rules));
    LLS_TRY(frame_roles(rules, "<|start_header_id|>", "<|end_header_id|>\n\n", (lls__str){"<|eot_id|>", 10}, ""));
    if (!contains(t->text, "Cutting Knowledge Date")) return LLS_OK;
    rules->has_default_system = true; // an empty one
    return append(&rules->before[LLS__SYSTEM], "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
}

static lls_status zephyr(const template_text *t, lls__chat_rules *rules) {
    LLS_TRY(common_rules(t, rules));
    return frame_roles(rules, "<|", "|>\n", t->eos, "\n");
}

/* Takes over the sum as the frame of a role, when it has the content in it once and nothing unknown. */
static lls_status frame_from_sum(const template_text *t, const term *terms, int num_terms, lls__chat_rules *rules,
                                 lls__role role, bool *fits) {
    lls__bytes *out = &rules->before[role];
    int contents = 0;
    *fits = true;
    for (int i = 0; i < num_terms; i++) {
        contents += terms[i].kind == TERM_CONTENT;
        *fits &= terms[i].kind != TERM_OTHER;
    }
    *fits &= contents == 1;
    for (int i = 0; i < num_terms && *fits; i++) {
        switch (terms[i].kind) {
        case TERM_LITERAL: LLS_TRY(append_literal(out, terms[i].text)); break;
        case TERM_BOS: LLS_TRY(lls__bytes_append(out, t->bos.data, t->bos.size)); break;
        case TERM_EOS: LLS_TRY(lls__bytes_append(out, t->eos.data, t->eos.size)); break;
        case TERM_CONTENT:
            rules->trim[role] = terms[i].trimmed;
            out = &rules->after[role];
            break;
        case TERM_OTHER: break;
        }
    }
    return LLS_OK;
}

static bool has_term(const term *terms, int num_terms, term_kind kind, const char *word) {
    for (int i = 0; i < num_terms; i++) {
        if (terms[i].kind == kind && (!word || contains(terms[i].text, word))) return true;
    }
    return false;
}

/* Versions of this format differ in their spaces: the frames are those of the template's own expressions. */
static lls_status mistral(const template_text *t, lls__chat_rules *rules) {
    bool has_user = false, has_assistant = false, bos_each_turn = false;
    term terms[MAX_TERMS];
    size_t from = 0;
    for (reader r; next_expression(t->text, &from, &r);) {
        int n = read_sum(&r, terms);
        bool user = has_term(terms, n, TERM_LITERAL, "[INST]");
        if (user && !has_user) {
            LLS_TRY(frame_from_sum(t, terms, n, rules, LLS__USER, &has_user));
            bos_each_turn = has_user && has_term(terms, n, TERM_BOS, NULL);
        } else if (!user && !has_assistant && has_term(terms, n, TERM_EOS, NULL)) {
            LLS_TRY(frame_from_sum(t, terms, n, rules, LLS__ASSISTANT, &has_assistant));
        }
    }
    if (!has_user || !has_assistant) return LLS_ERR_MODEL;
    if (contains(t->text, "bos_token") && !bos_each_turn) {
        LLS_TRY(lls__bytes_append(&rules->head, t->bos.data, t->bos.size));
    }
    rules->system_place = contains(t->text, "loop.last and system_message") ? LLS__SYSTEM_IN_LAST_USER
                                                                            : LLS__SYSTEM_IN_FIRST_USER;
    bool llama2 = contains(t->text, "<<SYS>>");
    LLS_TRY(append(&rules->before[LLS__SYSTEM], llama2 ? "<<SYS>>\n" : ""));
    LLS_TRY(append(&rules->after[LLS__SYSTEM], llama2 ? "\n<</SYS>>\n\n" : "\n\n"));
    return lls__bytes_append(&rules->end_of_turn, t->eos.data, t->eos.size);
}

/* How a format is recognised: all of `has` occur, none of `lacks`. */
typedef struct format {
    const char *name;
    const char *has[3], *lacks[3];
    lls_status (*read)(const template_text *, lls__chat_rules *);
    const char *example; /* what its name stands for */
} format;

static const format formats[] = {
    {"chatml", {"<|im_start|>", "<|im_end|>"}, {"<|im_sep|>"}, chatml, "<|im_start|><|im_end|>"},
    {"llama3",
     {"<|start_header_id|>", "<|eot_id|>"},
     {NULL},
     llama3,
     "<|start_header_id|><|eot_id|>{{ bos_token + message.content | trim }}"},
    {"mistral",
     {"[INST]", "[/INST]"},
     {NULL},
     mistral,
     "{{ bos_token }}{{ '[INST] ' + content + ' [/INST]' }}{{ content + eos_token }}"},
    {"zephyr", {"<|user|>", "<|assistant|>", "eos_token"}, {"<|end|>"}, zephyr, "<|user|><|assistant|>eos_token"},
};

static bool matches(const format *f, lls__str text) {
    for (int i = 0; i < 3; i++) {
        if (f->has[i] && !contains(text, f->has[i])) return false;
        if (f->lacks[i] && contains(text, f->lacks[i])) return false;
    }
    return true;
}

lls_status lls__chat_rules_from_template(lls__str text, lls__str bos, lls__str eos, lls__chat_rules *out) {
    if (text.size == 0) {
        return lls__fail(LLS_ERR_MODEL, "chat: the model has no chat template; name a format: chatml, llama3, mistral "
                                        "or zephyr");
    }
    template_text t = {text, bos, eos};
    lls_status status = LLS_ERR_MODEL;
    lls__chat_rules rules = {0};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const format *f = &formats[i];
        if (equals(text, f->name)) t.text = (lls__str){f->example, strlen(f->example)};
        if (!matches(f, t.text)) continue;
        rules.name = f->name;
        status = f->read(&t, &rules);
        break;
    }
    if (status == LLS_OK) {
        *out = rules;
        return LLS_OK;
    }
    lls__chat_rules_free(&rules);
    if (status != LLS_ERR_MODEL) return status;
    return lls__fail(LLS_ERR_MODEL, "chat: the template is of no known format; it begins \"%.*s\"",
                     LLS__STR_CLIPPED(text, 60));
}

void lls__chat_rules_free(lls__chat_rules *rules) {
    free(rules->head.data);
    for (int role = 0; role < LLS__NUM_ROLES; role++) {
        free(rules->before[role].data);
        free(rules->after[role].data);
    }
    free(rules->answer.data);
    free(rules->end_of_turn.data);
    free(rules->default_system.data);
}
