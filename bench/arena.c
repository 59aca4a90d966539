#include "arena.h"

#include <stdlib.h>

#include "core/error.h"

lls_status bench_arena_take(bench_arena *arena, size_t bytes, void **out) {
    enum { PIECE = 32 << 20, ALIGN = 256 };
    size_t rounded = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (arena->num_pieces == 0 || arena->piece_bytes - arena->piece_used < rounded) {
        void **grown = realloc(arena->pieces, sizeof *grown * (size_t)(arena->num_pieces + 1));
        if (!grown) return lls__fail(LLS_ERR_MEMORY, "bench: no memory for %d pieces", arena->num_pieces + 1);
        arena->pieces = grown;
        size_t piece = rounded > PIECE ? rounded : PIECE;
        LLS_TRY(lls_malloc(arena->ctx, piece, &arena->pieces[arena->num_pieces]));
        arena->num_pieces++;
        arena->piece_bytes = piece, arena->piece_used = 0;
    }
    *out = (char *)arena->pieces[arena->num_pieces - 1] + arena->piece_used;
    arena->piece_used += rounded;
    arena->total += rounded;
    return LLS_OK;
}

void bench_arena_free(bench_arena *arena) {
    for (int32_t i = 0; i < arena->num_pieces; i++) lls_free(arena->ctx, arena->pieces[i]);
    free(arena->pieces);
    *arena = (bench_arena){.ctx = arena->ctx};
}
