/* Device memory of a case: many small tensors from few large pieces, all freed at once. */
#ifndef BENCH_ARENA_H
#define BENCH_ARENA_H

#include "llmspeed/core.h"

typedef struct bench_arena {
    lls_ctx *ctx;
    void **pieces;
    int32_t num_pieces;
    size_t piece_bytes, piece_used; /* of the newest piece */
    size_t total;                   /* handed out */
} bench_arena;

lls_status bench_arena_take(bench_arena *arena, size_t bytes, void **out);
void bench_arena_free(bench_arena *arena);

#endif
