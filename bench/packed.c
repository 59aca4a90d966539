#include "state.h"

const lls_tensor *bench_packed(bench *b, const lls_tensor *weight) {
    if (b->status || b->set->num_tensors == BENCH_MAX_TENSORS - 1) return weight;
    // A slot either way: what is made after it must be the same for the oracle.
    lls_tensor *packed = &b->set->tensors[b->set->num_tensors];
    b->set->tol[b->set->num_tensors++] = -1;
    *packed = *weight;
    if (b->oracle || lls_ctx_device(b->ctx).type != LLS_CPU) return packed;
    size_t bytes;
    void *buffer;
    b->status = lls_linear_packed_bytes(b->ctx, weight, 1, &bytes);
    if (!b->status) b->status = bench_arena_take(b->arena, bytes, &buffer);
    if (!b->status) b->status = lls_linear_pack(b->ctx, weight, 1, buffer, bytes, packed);
    return packed;
}
