/* Model files and the engine as Python classes; llm_speed/engine.py puts generate() on top. */
#ifndef LLM_SPEED_ENGINE_H
#define LLM_SPEED_ENGINE_H

#include <pybind11/pybind11.h>

namespace llm_speed {

// Adds the classes Model and Engine to the module.
void add_engine(pybind11::module_ &module);

} // namespace llm_speed

#endif
