/* Any chat template, any roles. The input is lines: bos, eos, the roles as letters (s, u, a; anything else is a role
 * that does not exist), and everything behind that is the template, of which the messages are pieces. */
#include "engine/text/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition) ((condition) ? (void)0 : __builtin_trap())

enum { MAX_MESSAGES = 8 };

static lls__str take_line(const char **p, const char *end) {
    const char *newline = *p < end ? memchr(*p, '\n', (size_t)(end - *p)) : NULL;
    lls__str line = {*p, (size_t)((newline ? newline : end) - *p)};
    *p = newline ? newline + 1 : end;
    return line;
}

/* What a message says comes out whole or trimmed, without the right to control tokens; nothing else lacks it. */
static void check_prompt(const lls__prompt *prompt, const lls__message *messages, size_t n) {
    size_t from_messages = 0, contents = 0;
    for (size_t i = 0; i < n; i++) contents += messages[i].content.size;
    for (size_t i = 0; i < prompt->num_parts; i++) {
        lls__text_part part = prompt->parts[i];
        REQUIRE(part.size > 0);
        bool inside = false;
        for (size_t m = 0; m < n; m++) {
            lls__str c = messages[m].content;
            inside |= c.size && part.text >= c.data && part.text + part.size <= c.data + c.size;
        }
        REQUIRE(inside == !part.parse_special);
        if (inside) from_messages += part.size;
    }
    REQUIRE(from_messages <= contents);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *p = (const char *)data, *end = p + size;
    lls__str bos = take_line(&p, end), eos = take_line(&p, end), roles = take_line(&p, end);
    lls__str template = {p, (size_t)(end - p)};
    lls__chat *chat;
    if (lls__chat_create(template, bos, eos, &chat) != LLS_OK) return 0;

    lls__message messages[MAX_MESSAGES];
    size_t n = roles.size < MAX_MESSAGES ? roles.size : MAX_MESSAGES;
    for (size_t i = 0; i < n; i++) {
        char c = roles.data[i];
        const char *role = c == 's' ? "system" : c == 'u' ? "user" : c == 'a' ? "assistant" : "other";
        size_t begin = i * template.size / MAX_MESSAGES, stop = (i + 1) * template.size / MAX_MESSAGES;
        messages[i] = (lls__message){{role, strlen(role)}, {template.data + begin, stop - begin}};
    }
    for (int answer = 0; answer < 2; answer++) {
        lls__prompt prompt;
        if (lls__chat_render(chat, messages, n, answer, &prompt) != LLS_OK) continue;
        check_prompt(&prompt, messages, n);
        lls__prompt_free(&prompt);
    }
    lls__chat_destroy(chat);
    return 0;
}
