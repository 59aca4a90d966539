/* What Python may pass to each op: the fields of its argument struct, in the order in which llm_speed.ops passes them.
 * This table is also where the torch operators get their schemas from (llm_speed/torch_ops.py). */
#ifndef LLM_SPEED_OP_TABLE_H
#define LLM_SPEED_OP_TABLE_H

#include <cstddef>

#include "llmspeed/ops.h"

namespace llm_speed {

enum class Kind {
    IN,          // const lls_tensor *, read
    OPTIONAL_IN, // the same, or None
    WEIGHT,      // IN; a PackedWeight too
    OUT,         // const lls_tensor *, written (or read and written)
    OPTIONAL_OUT,
    BLOCKS, // not in the struct: the GGUF type of the tensor at `offset`, or None
    FLOAT,
    INT,
    BOOL,
    STRING, // const char *, or None
    FLOATS  // const float *: a sequence of numbers, or None
};

struct Field {
    const char *name;
    Kind kind;
    size_t offset;
    int axes = 0; // arrays: leading axes are merged until this many are left; 0: passed as they are
};

enum { MAX_FIELDS = 24, MAX_ARGS_BYTES = 512 };

struct Op {
    const char *name;
    size_t args_bytes;
    void (*init)(void *args);
    lls_status (*call)(lls_ctx *ctx, const void *args, lls_stream stream);
    lls_status (*workspace)(lls_ctx *ctx, const void *args, size_t *bytes); // NULL: never needs one
    Field fields[MAX_FIELDS];                                               // ends with a name of NULL
};

// In layer order, ended by a name of NULL.
extern const Op op_table[];

} // namespace llm_speed

#endif
