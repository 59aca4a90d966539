/* The oracle: one row and one head at a time, the formula of ops.h in double, a pass for the maximum and one for the
 * sum. */
#include <math.h>

#include "core/element.h"
#include "ops/attn_common/attn.h"

typedef struct row {
    const lls__attn_problem *p;
    const lls__attn_seq *seq;
    int64_t i, head, kv_head;
    lls_tensor q, k, v, out, bias; // data and dtype only: what lls__get needs
} row;

static double bias(const row *r, int64_t j) {
    const lls__attn_problem *p = r->p;
    if (!p->bias.data) return 0;
    return lls__get(&r->bias, lls__attn_q_offset(&p->bias, r->seq, r->i, r->head) + j * p->bias_key);
}

static double score(const row *r, int64_t j) {
    const lls__attn_problem *p = r->p;
    if (bias(r, j) == -INFINITY) return -INFINITY; // whatever the key holds
    int64_t q = lls__attn_q_offset(&p->q, r->seq, r->i, r->head),
            k = lls__attn_kv_offset(p, &p->k, r->seq, j, r->kv_head);
    double dot = 0;
    for (int64_t d = 0; d < p->head_dim; d++) dot += lls__get(&r->q, q + d) * lls__get(&r->k, k + d);
    double s = dot * (double)p->scale;
    if (p->softcap > 0) s = (double)p->softcap * tanh(s / (double)p->softcap);
    if (p->alibi) s += (double)p->alibi[r->head] * (double)(j - lls__attn_position(r->seq, r->i));
    return s + bias(r, j);
}

static void attend(const row *r) {
    const lls__attn_problem *p = r->p;
    lls__attn_span span = lls__attn_span_of(p, r->seq, r->i);
    double max = p->sinks ? (double)p->sinks[r->head] : -INFINITY, sum, acc[LLS__ATTN_MAX_HEAD_DIM] = {0};
    for (int64_t j = span.begin; j < span.end; j++) max = fmax(max, score(r, j));
    sum = p->sinks && max > -INFINITY ? exp((double)p->sinks[r->head] - max) : 0;
    for (int64_t j = span.begin; j < span.end; j++) {
        if (bias(r, j) == -INFINITY) continue; // whatever the value holds
        double s = score(r, j), weight = s == -INFINITY ? 0 : exp(s - max);
        int64_t v = lls__attn_kv_offset(p, &p->v, r->seq, j, r->kv_head);
        sum += weight;
        for (int64_t d = 0; d < p->head_dim_v; d++) acc[d] += weight * lls__get(&r->v, v + d);
    }
    int64_t out = lls__attn_q_offset(&p->out, r->seq, r->i, r->head);
    for (int64_t d = 0; d < p->head_dim_v; d++) lls__set(&r->out, out + d, sum == 0 ? 0 : acc[d] / sum);
    if (p->lse.data)
        ((float *)p->lse.data)[lls__attn_q_offset(&p->lse, r->seq, r->i, r->head)] =
            (float)(sum == 0 ? -INFINITY : max + log(sum));
}

lls_status lls__attn_ref(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)ctx, (void)stream;
    const lls__attn_problem *p = args;
    int64_t group = p->num_heads / p->num_kv_heads;
    for (int64_t b = 0; b < p->batch; b++) {
        lls__attn_seq seq = lls__attn_seq_at(p, b);
        for (int64_t i = 0; i < seq.q_len; i++) {
            for (int64_t head = 0; head < p->num_heads; head++) {
                row r = {.p = p, .seq = &seq, .i = i, .head = head, .kv_head = head / group};
                r.q.data = p->q.data, r.q.dtype = p->dtype;
                r.out.data = p->out.data, r.out.dtype = p->dtype;
                r.k.data = p->k.data, r.k.dtype = p->kv_dtype;
                r.bias.data = p->bias.data, r.bias.dtype = p->bias_dtype;
                r.v.data = p->v.data, r.v.dtype = p->kv_dtype;
                attend(&r);
            }
        }
    }
    return LLS_OK;
}
