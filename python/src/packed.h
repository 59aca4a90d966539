/* Weights that lls_linear_pack has put into the order of the CPU's vector units. */
#ifndef LLM_SPEED_PACKED_H
#define LLM_SPEED_PACKED_H

#include <pybind11/pybind11.h>

#include "llmspeed/core.h"

namespace llm_speed {

// The tensor of a PackedWeight; NULL for any other object, without an error.
const lls_tensor *packed_weight(PyObject *object);
// Adds the class PackedWeight to the module.
void add_packed_weight(pybind11::module_ &module);

} // namespace llm_speed

#endif
