/* Unicode normal form C, in linear time. */
#ifndef LLS_ENGINE_TEXT_NFC_H
#define LLS_ENGINE_TEXT_NFC_H

#include "engine/text/buffers.h"

/* Composes valid UTF-8 (Unicode standard annex 15). The caller frees out->data; on failure *out is untouched. */
lls_status lls__nfc(const char *text, size_t size, lls__bytes *out);

#endif
