/* What generate.c needs of an engine beyond the public functions. */
#ifndef LLS_ENGINE_EXEC_ENGINE_H
#define LLS_ENGINE_EXEC_ENGINE_H

#include "llmspeed/engine.h"

const lls_model *lls__engine_model(const lls_engine *engine);
/* Events that one step can have. */
size_t lls__engine_event_capacity(const lls_engine *engine);

#endif
