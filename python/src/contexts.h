/* The contexts that ops run on: one for the CPU, one a CUDA device, and one more for each CUDA stream whose calls need a
 * workspace. Made at first use, kept to the end of the process. */
#ifndef LLM_SPEED_CONTEXTS_H
#define LLM_SPEED_CONTEXTS_H

#include <cstddef>
#include <vector>

#include "llmspeed/core.h"

namespace llm_speed {

// Runs call(ctx, stream) on the device's context and returns its status. On the CPU the GIL is released meanwhile and
// calls queue up; the op's threads are the parallelism. On CUDA an op only enqueues, so the GIL stays.
using Call = lls_status (*)(lls_ctx *ctx, const void *args, lls_stream stream);
lls_status run_on(lls_device device, lls_stream stream, Call call, const void *args);

struct RecordedCall {
    lls_record record;
    lls_stream stream;
};
// From now on each op call that this thread makes by run_on is noted in *calls; NULL: no more.
void record_calls(std::vector<RecordedCall> *calls);

// Makes the workspace of calls on this stream at least `bytes` large: before a graph capture, since a capture cannot
// allocate.
lls_status reserve_workspace(lls_device device, lls_stream stream, size_t bytes);

// CPU threads of the ops; 0: one a core.
lls_status set_num_threads(int32_t num_threads);
lls_status get_num_threads(int32_t *num_threads);

} // namespace llm_speed

#endif
