/* cmocka, with the headers that it wants first. */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "llmspeed/llmspeed.h"

/* The message of the failed call before holds this text. */
#define assert_last_error(part)                                                          \
    do {                                                                                 \
        if (!strstr(lls_last_error(), part))                                             \
            fail_msg("the message is \"%s\", must hold \"%s\"", lls_last_error(), part); \
    } while (0)

#endif
