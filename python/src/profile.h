/* What the op calls of a function did, and what the machine can do; llm_speed/profiler.py makes figures of it. */
#ifndef LLM_SPEED_PROFILE_H
#define LLM_SPEED_PROFILE_H

#include <pybind11/pybind11.h>

namespace llm_speed {

// Adds record_start, record_stop, measure_ceilings and the class Ceilings to the module.
void add_profile(pybind11::module_ &module);

} // namespace llm_speed

#endif
