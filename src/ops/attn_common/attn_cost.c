/* What attention asks for: the pairs of rows and keys that the mask lets meet, and the bytes of what takes part. */
#include <stdlib.h>

#include "core/tensor.h"
#include "dispatch/record.h"
#include "ops/attn_common/attn_check.h"

typedef struct work {
    double rows;  // of q
    double pairs; // a row and a key that it sees, of one head
    double keys;  // that some row of their sequence sees. A page that two sequences share counts for both.
    double pages; // entries of the page table that say where those are
} work;

// The lengths, where there are any, are readable by the host.
static work count(const lls__attn_problem *p) {
    work w = {0};
    for (int64_t b = 0; b < p->batch; b++) {
        lls__attn_seq seq = lls__attn_seq_at(p, b);
        int64_t rows = lls__attn_clamp(seq.q_len, 0, p->max_q_len), begin = INT64_MAX, end = 0;
        for (int64_t i = 0; i < rows; i++) {
            lls__attn_span span = lls__attn_span_of(p, &seq, i);
            if (span.begin == span.end) continue;
            w.pairs += (double)(span.end - span.begin);
            if (span.begin < begin) begin = span.begin;
            if (span.end > end) end = span.end;
        }
        w.rows += (double)rows;
        if (begin >= end) continue;
        w.keys += (double)(end - begin);
        if (p->page_table) w.pages += (double)((end - 1) / p->page_size - begin / p->page_size + 1);
    }
    return w;
}

// As much as the tensors let it be, for lengths that cannot be read.
static work most(const lls__attn_problem *p) {
    double keys = (double)(p->cu_kv ? p->total_kv : p->kv_len), seen = keys;
    double window = (double)p->window_left + p->window_right + 1;
    if (p->window_left >= 0 && p->window_right >= 0 && window < seen) seen = window;
    work w = {.rows = (double)p->total_q, .pairs = (double)p->total_q * seen};
    w.keys = p->cu_kv ? keys : (double)p->batch * keys;
    if (p->page_table) w.pages = w.keys / (double)p->page_size;
    return w;
}

static work work_of(lls_ctx *ctx, const lls__attn_problem *p, lls_stream stream) {
    lls__attn_problem known = *p;
    size_t bytes = (size_t)p->batch * sizeof(int32_t), bound_bytes = bytes + sizeof(int32_t);
    void *cu_q, *cu_kv, *kv_lens;
    known.cu_q = lls__host_values(ctx, p->cu_q, bound_bytes, stream, &cu_q);
    known.cu_kv = lls__host_values(ctx, p->cu_kv, bound_bytes, stream, &cu_kv);
    known.kv_lens = lls__host_values(ctx, p->kv_lens, bytes, stream, &kv_lens);
    bool all = !known.cu_q == !p->cu_q && !known.cu_kv == !p->cu_kv && !known.kv_lens == !p->kv_lens;
    work w = all ? count(&known) : most(p);
    free(cu_q), free(cu_kv), free(kv_lens);
    double room = (double)p->num_pages * (double)p->page_size;
    if (p->page_table && w.keys > room) w.keys = room; // sequences that share pages
    return w;
}

// Elements of a view; sequences or heads of stride 0 are one.
static double elems(const lls__attn_view *v, double batch, double rows, double heads, double width) {
    if (v->batch == 0 && batch > 1) batch = 1;
    if (v->head == 0 && heads > 1) heads = 1;
    return batch * rows * heads * width;
}

// Elements of the bias that lie where a row meets a key that it sees; axes of stride 0 are one element long.
static double bias_elems(const lls__attn_problem *p, work w) {
    bool rows = p->bias.row != 0, keys = p->bias_key != 0;
    double n = rows && keys ? w.pairs : rows ? w.rows : keys ? w.keys : (double)p->batch;
    if (p->bias.batch == 0 && p->batch > 1) n /= (double)p->batch;
    return p->bias.head == 0 ? n : n * p->num_heads;
}

void lls__attn_cost(lls_ctx *ctx, const void *args, lls_stream stream, lls__cost *c) {
    const lls__attn_problem *p = args;
    work w = work_of(ctx, p, stream);
    // Ragged rows and pages lie along one axis; elsewhere every sequence has its own.
    double q_batch = p->cu_q ? 1 : (double)p->batch, kv_batch = p->cu_kv || p->page_table ? 1 : (double)p->batch;
    double q_rows = w.rows / q_batch, kv_rows = w.keys / kv_batch;
    double q_size = (double)lls__elem_size(p->dtype), kv_size = (double)lls__elem_size(p->kv_dtype);
    c->bytes = q_size * (elems(&p->q, q_batch, q_rows, p->num_heads, p->head_dim) +
                         elems(&p->out, q_batch, q_rows, p->num_heads, p->head_dim_v)) +
               kv_size * (elems(&p->k, kv_batch, kv_rows, p->num_kv_heads, p->head_dim) +
                          elems(&p->v, kv_batch, kv_rows, p->num_kv_heads, p->head_dim_v));
    if (p->bias.data) c->bytes += (double)lls__elem_size(p->bias_dtype) * bias_elems(p, w);
    double words = w.pages + (double)p->num_heads * (!!p->alibi + !!p->sinks);
    if (p->lse.data) words += w.rows * p->num_heads;
    if (p->cu_q) words += (double)p->batch + 1;
    if (p->cu_kv) words += (double)p->batch + 1;
    if (p->kv_lens) words += (double)p->batch;
    c->bytes += 4 * words;
    c->flops = 2 * w.pairs * p->num_heads * (p->head_dim + p->head_dim_v); // the softmax is left out
    c->math = p->dtype == LLS_F32 || p->kv_dtype == LLS_F32 ? LLS_MATH_F32 : LLS_MATH_F16;
}
