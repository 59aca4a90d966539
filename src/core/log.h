/* Logging: levels and sinks as core.h describes. Cheap when the level is off. */
#ifndef LLS_CORE_LOG_H
#define LLS_CORE_LOG_H

#include "llmspeed/core.h"

void lls__log(lls_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* True when LLS_LOG=plan asks for the selection of each op call. */
bool lls__log_plan_enabled(void);
/* A line of the plan; goes to the sink whatever the level. */
void lls__log_plan(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
