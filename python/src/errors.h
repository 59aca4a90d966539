/* Statuses as Python exceptions. */
#ifndef LLM_SPEED_ERRORS_H
#define LLM_SPEED_ERRORS_H

#include <Python.h>

#include "llmspeed/core.h"

namespace llm_speed {

// Sets the exception that llm_speed.errors has for this status, with the library's last message. Returns NULL.
PyObject *raise(lls_status status);
// Sets an exception of llm_speed.errors ("ArgumentError", "DtypeError") of the binding's own. Returns false.
bool fail(const char *kind, const char *format, ...);
// `raise` as a C++ exception, for code that pybind11 calls. Nothing for LLS_OK.
void check(lls_status status);

} // namespace llm_speed

#endif
