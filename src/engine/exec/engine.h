/* What generate.c and the tests need of an engine beyond the public functions. */
#ifndef LLS_ENGINE_EXEC_ENGINE_H
#define LLS_ENGINE_EXEC_ENGINE_H

#include "llmspeed/engine.h"

const lls_model *lls__engine_model(const lls_engine *engine);
/* Events that one step can have. */
size_t lls__engine_event_capacity(const lls_engine *engine);

/* The KV pool's memory and the context it belongs to, for tests that fill it with NaN. */
void *lls__engine_kv(const lls_engine *engine, size_t *bytes, lls_ctx **ctx);

#endif
