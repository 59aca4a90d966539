#include "state.h"

const lls_tensor *bench_packed(bench *b, const lls_tensor *weight) {
    // A tensor of its own either way: the values of what is made after it depend on the count.
    lls_tensor *packed = bench_add_view(b, weight);
    if (b->status || b->oracle || bench_is_cuda(b)) return packed;
    size_t bytes;
    void *buffer;
    b->status = lls_linear_packed_bytes(b->ctx, weight, 1, &bytes);
    if (!b->status) b->status = bench_arena_take(b->arena, bytes, &buffer);
    if (!b->status) b->status = lls_linear_pack(b->ctx, weight, 1, buffer, bytes, packed);
    return packed;
}
