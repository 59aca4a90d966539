/* The ops as Python functions: _C.<op>(*fields of op_table, stream). */
#ifndef LLM_SPEED_OPS_H
#define LLM_SPEED_OPS_H

#include <Python.h>

namespace llm_speed {

// Adds a function for each op, `op_names` and `op_fields` to the module. False with a Python error set.
bool add_ops(PyObject *module);

} // namespace llm_speed

#endif
