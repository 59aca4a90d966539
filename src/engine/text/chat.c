#include "engine/text/chat.h"

#include <utf8proc.h>

#include "engine/text/chat_format.h"
#include "engine/text/utf8.h"

struct lls__chat {
    lls__chat_rules rules;
};

lls_status lls__chat_create(lls__str chat_template, lls__str bos, lls__str eos, lls__chat **out) {
    lls__chat_rules rules;
    LLS_TRY(lls__chat_rules_from_template(chat_template, bos, eos, &rules));
    lls__chat *chat = malloc(sizeof *chat);
    if (!chat) {
        lls__chat_rules_free(&rules);
        return lls__fail(LLS_ERR_MEMORY, "chat: out of memory");
    }
    chat->rules = rules;
    *out = chat;
    return LLS_OK;
}

void lls__chat_destroy(lls__chat *chat) {
    if (!chat) return;
    lls__chat_rules_free(&chat->rules);
    free(chat);
}

const char *lls__chat_format(const lls__chat *chat) {
    return chat->rules.name;
}

lls__str lls__chat_end_of_turn(const lls__chat *chat) {
    return (lls__str){chat->rules.end_of_turn.data, chat->rules.end_of_turn.size};
}

void lls__prompt_free(lls__prompt *prompt) {
    free(prompt->parts);
    *prompt = (lls__prompt){0};
}

/* ---- Rendering ------------------------------------------------------------------------------- */

static lls_status add_part(lls__prompt *p, const char *text, size_t size, bool parse_special) {
    if (size == 0) return LLS_OK;
    lls__text_part *grown = lls__grown(p->parts, &p->cap, p->num_parts + 1, sizeof *grown);
    if (!grown) return LLS_ERR_MEMORY;
    p->parts = grown;
    p->parts[p->num_parts++] = (lls__text_part){text, size, parse_special};
    return LLS_OK;
}

static lls_status add_frame(lls__prompt *p, const lls__bytes *text) {
    return add_part(p, text->data, text->size, true);
}

/* White space as Jinja's trim has it, which is Python's strip. */
static bool is_space(const char *p, size_t size) {
    utf8proc_int32_t c;
    if (utf8proc_iterate((const utf8proc_uint8_t *)p, (utf8proc_ssize_t)size, &c) < 0) return false;
    const utf8proc_property_t *property = utf8proc_get_property(c);
    return property->category == UTF8PROC_CATEGORY_ZS || property->bidi_class == UTF8PROC_BIDI_CLASS_WS ||
           property->bidi_class == UTF8PROC_BIDI_CLASS_B || property->bidi_class == UTF8PROC_BIDI_CLASS_S;
}

static lls__str trimmed(lls__str s) {
    while (s.size > 0) {
        size_t len;
        lls__utf8_next(s.data, s.size, &len);
        if (!is_space(s.data, len)) break;
        s.data += len;
        s.size -= len;
    }
    while (s.size > 0) {
        size_t begin = s.size - 1; // of the last character
        while (begin > 0 && ((uint8_t)s.data[begin] & 0xC0) == 0x80) begin--;
        if (!is_space(s.data + begin, s.size - begin)) break;
        s.size = begin;
    }
    return s;
}

static lls_status add_content(lls__prompt *p, lls__str content, bool trim) {
    if (trim) content = trimmed(content);
    return add_part(p, content.data, content.size, false);
}

static lls_status role_of(const lls__message *messages, size_t i, lls__role *role) {
    static const char *const names[LLS__NUM_ROLES] = {"system", "user", "assistant"};
    lls__str name = messages[i].role;
    for (int r = 0; r < LLS__NUM_ROLES; r++) {
        if (name.size == strlen(names[r]) && memcmp(name.data, names[r], name.size) == 0) {
            *role = (lls__role)r;
            return LLS_OK;
        }
    }
    return lls__fail(LLS_ERR_ARGUMENT, "chat: messages[%zu].role is \"%.*s\", must be system, user or assistant", i,
                     LLS__STR_CLIPPED(name, 40));
}

/* Formats without a turn for the system message allow it at the start only, and want user and assistant in turn. */
static lls_status check_turn(const lls__chat_rules *rules, size_t i, lls__role role, bool has_system) {
    if (rules->system_place == LLS__SYSTEM_OWN_TURN) return LLS_OK;
    lls__role want = (i - has_system) % 2 == 0 ? LLS__USER : LLS__ASSISTANT;
    if (i == 0 && role == LLS__SYSTEM) return LLS_OK;
    if (role == want) return LLS_OK;
    return lls__fail(LLS_ERR_ARGUMENT, "chat: messages[%zu] of a %s chat must be the %s's, user and assistant in turn",
                     i, rules->name, want == LLS__USER ? "user" : "assistant");
}

static lls_status check_messages(const lls__chat_rules *rules, const lls__message *messages, size_t num_messages) {
    if (num_messages == 0) return lls__fail(LLS_ERR_ARGUMENT, "chat: there are no messages, must be at least one");
    lls__role first, role;
    LLS_TRY(role_of(messages, 0, &first));
    for (size_t i = 0; i < num_messages; i++) {
        LLS_TRY(role_of(messages, i, &role));
        LLS_TRY(check_turn(rules, i, role, first == LLS__SYSTEM));
    }
    if (rules->system_place != LLS__SYSTEM_OWN_TURN && first == LLS__SYSTEM && num_messages == 1) {
        return lls__fail(LLS_ERR_ARGUMENT, "chat: a %s chat cannot consist of a system message alone", rules->name);
    }
    return LLS_OK;
}

/* Index of the user message that carries the system message. */
static size_t carrier(const lls__chat_rules *rules, size_t num_messages) {
    if (rules->system_place == LLS__SYSTEM_IN_FIRST_USER) return 1;
    return num_messages % 2 == 0 ? num_messages - 1 : num_messages - 2; // system, user, assistant, user, ...
}

static lls_status render(const lls__chat_rules *rules, const lls__message *messages, size_t num_messages,
                         bool add_generation_prompt, lls__prompt *p) {
    lls__role role;
    LLS_TRY(check_messages(rules, messages, num_messages));
    LLS_TRY(role_of(messages, 0, &role));
    bool has_system = role == LLS__SYSTEM;
    bool system_moves = has_system && rules->system_place != LLS__SYSTEM_OWN_TURN;
    LLS_TRY(add_frame(p, &rules->head));
    if (!has_system && rules->has_default_system) {
        LLS_TRY(add_frame(p, &rules->before[LLS__SYSTEM]));
        LLS_TRY(add_frame(p, &rules->default_system));
        LLS_TRY(add_frame(p, &rules->after[LLS__SYSTEM]));
    }
    for (size_t i = system_moves; i < num_messages; i++) {
        LLS_TRY(role_of(messages, i, &role));
        LLS_TRY(add_frame(p, &rules->before[role]));
        if (system_moves && i == carrier(rules, num_messages)) {
            LLS_TRY(add_frame(p, &rules->before[LLS__SYSTEM]));
            LLS_TRY(add_content(p, messages[0].content, rules->trim[LLS__SYSTEM]));
            LLS_TRY(add_frame(p, &rules->after[LLS__SYSTEM]));
        }
        LLS_TRY(add_content(p, messages[i].content, rules->trim[role]));
        LLS_TRY(add_frame(p, &rules->after[role]));
    }
    return add_generation_prompt ? add_frame(p, &rules->answer) : LLS_OK;
}

lls_status lls__chat_render(const lls__chat *chat, const lls__message *messages, size_t num_messages,
                            bool add_generation_prompt, lls__prompt *prompt) {
    lls__prompt p = {0};
    lls_status status = render(&chat->rules, messages, num_messages, add_generation_prompt, &p);
    if (status != LLS_OK) {
        lls__prompt_free(&p);
        return status;
    }
    *prompt = p;
    return LLS_OK;
}
