#include "engine/text/utf8.h"

#include <string.h>

lls__utf8_kind lls__utf8_next(const char *p, size_t n, size_t *len) {
    const uint8_t *s = (const uint8_t *)p;
    *len = 1;
    if (s[0] < 0x80) return LLS__UTF8_CHAR;
    if (s[0] < 0xC2 || s[0] > 0xF4) return LLS__UTF8_INVALID;

    // The lead byte fixes the length, and for four of its values a narrower range for the second byte.
    size_t want = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    uint8_t low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    uint8_t high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    for (; *len < want; (*len)++) {
        if (*len == n) return LLS__UTF8_PARTIAL;
        if (s[*len] < low || s[*len] > high) return LLS__UTF8_INVALID;
        low = 0x80;
        high = 0xBF;
    }
    return LLS__UTF8_CHAR;
}

size_t lls__utf8_valid_prefix(const char *p, size_t n) {
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= sizeof eight) { // most text is mostly ASCII
            memcpy(&eight, p + i, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                i += sizeof eight;
                continue;
            }
        }
        size_t len;
        if (lls__utf8_next(p + i, n - i, &len) != LLS__UTF8_CHAR) return i;
        i += len;
    }
    return n;
}
