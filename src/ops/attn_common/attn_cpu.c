/* Attention on the CPU: tasks over (sequence, KV head, block of query rows), each an online softmax over tiles of keys.
 *
 * A block holds TILE_ROWS rows of (token, head of the group), so that a tile of keys, converted once, serves every head
 * of the group and several tokens. Tiles that no row of the block sees are skipped. A sequence with one block only
 * (decoding) is cut into parts of PART_KEYS keys that run in parallel and are merged in order (Dao et al. 2023,
 * "Flash-Decoding"). Cuts depend on the sequence alone: neither batch-mates nor threads change a bit. */
#include <math.h>

#include "core/ctx.h"
#include "core/error.h"
#include "core/tensor.h"
#include "ops/attn_common/attn_bias_cpu.h"
#include "ops/attn_common/attn_tile_cpu.h"

enum {
    PART_KEYS = FEW_KEYS,
    GRAIN_MACS = 1 << 16 /* below some 65k multiply-adds a thread's wake-up costs more than it saves */
};

typedef struct job {
    const lls__attn_problem *p;
    int64_t group;        // query heads a KV head
    int64_t dp, dvp;      // head_dim and head_dim_v in whole vectors
    int64_t *first_task;  // [batch + 1]
    int64_t *first_state; // [batch], offset in `states`: where a sequence cut into parts keeps them
    float *states;
    float *scratch; // [threads][scratch_floats]
    int64_t scratch_floats, num_tasks, grain;
} job;

// How the work of one sequence is cut: into blocks of rows, or, when there is one block only, into parts of keys.
typedef struct cut {
    int64_t rows, blocks, first_part, parts;
} cut;

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static cut cut_of(const job *j, const lls__attn_seq *seq) {
    cut c = {.rows = seq->q_len * j->group, .parts = 1};
    c.blocks = ceil_div(c.rows, TILE_ROWS);
    if (c.blocks == 1) {
        int64_t begin = lls__attn_span_of(j->p, seq, 0).begin, end = lls__attn_span_of(j->p, seq, seq->q_len - 1).end;
        c.first_part = begin / PART_KEYS;
        c.parts = end > begin ? ceil_div(end, PART_KEYS) - c.first_part : 1;
    }
    return c;
}

static int64_t padded_rows(int64_t rows) {
    return ceil_div(rows, LLS_VF) * LLS_VF;
}

// Floats of the running softmax of `rows` rows: max, sum, acc.
static int64_t state_floats(const job *j, int64_t rows) {
    return 2 * padded_rows(rows) + rows * j->dvp;
}

static void bind_state(query_rows *rows, float *state) {
    rows->max = state;
    rows->sum = state + rows->padded;
    rows->acc = state + 2 * rows->padded;
}

/* ---- One task ---- */

// Row r of a sequence's packed rows is token r / group, head r % group of the group.
static void bind_rows(const job *j, const lls__attn_seq *seq, int64_t kv_head, int64_t first, int64_t count,
                      query_rows *rows) {
    rows->count = (int32_t)count;
    rows->padded = (int32_t)padded_rows(count);
    rows->last_begin = 0, rows->first_end = INT32_MAX;
    rows->bias_key = j->p->bias_key, rows->bias_dtype = j->p->bias_dtype;
    for (int32_t r = 0; r < rows->padded; r++) {
        bool real = r < count;
        int64_t i = (first + r) / j->group, head = kv_head * j->group + (first + r) % j->group;
        lls__attn_span span = real ? lls__attn_span_of(j->p, seq, i) : (lls__attn_span){0, 0};
        rows->begin[r] = (int32_t)span.begin;
        rows->end[r] = (int32_t)span.end;
        rows->position[r] = real ? (int32_t)lls__attn_position(seq, i) : 0;
        rows->slope[r] = real && j->p->alibi ? j->p->alibi[head] : 0;
        if (real && j->p->bias.data)
            rows->bias[r] = (const char *)j->p->bias.data +
                            lls__attn_q_offset(&j->p->bias, seq, i, head) * lls__elem_size(j->p->bias_dtype);
        if (real && rows->begin[r] > rows->last_begin) rows->last_begin = rows->begin[r];
        if (real && rows->end[r] < rows->first_end) rows->first_end = rows->end[r];
    }
}

static const void *query_row(const job *j, const lls__attn_seq *seq, int64_t kv_head, int64_t row) {
    const lls__attn_problem *p = j->p;
    int64_t offset = lls__attn_q_offset(&p->q, seq, row / j->group, kv_head * j->group + row % j->group);
    return (const char *)p->q.data + offset * lls__elem_size(p->dtype);
}

LLS_INLINE void convert_row_of(lls_dtype dtype, const void *from, int64_t n, float *to) {
    int64_t i = 0;
    for (; i + LLS_VF <= n; i += LLS_VF) vf_store_f32(to + i, vf_load(dtype, from, i));
    if (i < n) vf_store_f32(to + i, vf_load_n(dtype, from, i, n - i));
}

// to [n rounded up to whole vectors] = from [n], the rest 0.
LLS_INLINE void convert_row(lls_dtype dtype, const void *from, int64_t n, float *to) {
    switch (dtype) {
    case LLS_F16: convert_row_of(LLS_F16, from, n, to); break;
    case LLS_BF16: convert_row_of(LLS_BF16, from, n, to); break;
    default: convert_row_of(LLS_F32, from, n, to); break;
    }
}

// q [count][dp] for few rows; for many [dp][TILE_ROWS], transposed, with zeros in rows past the last.
static void load_queries(const job *j, const lls__attn_seq *seq, int64_t kv_head, int64_t first, const query_rows *rows,
                         bool few, float *q) {
    const lls__attn_problem *p = j->p;
    if (few) {
        for (int32_t r = 0; r < rows->count; r++)
            convert_row(p->dtype, query_row(j, seq, kv_head, first + r), p->head_dim, q + r * j->dp);
        return;
    }
    _Alignas(64) float block[LLS_VF][LLS__ATTN_MAX_HEAD_DIM] = {{0}};
    for (int32_t r = 0; r < rows->padded; r += LLS_VF) {
        for (int32_t i = 0; i < LLS_VF; i++) {
            if (r + i < rows->count)
                convert_row(p->dtype, query_row(j, seq, kv_head, first + r + i), p->head_dim, block[i]);
            else memset(block[i], 0, (size_t)j->dp * sizeof(float));
        }
        for (int64_t d = 0; d < p->head_dim; d++) {
            vf column;
            for (int32_t i = 0; i < LLS_VF; i++) column[i] = block[i][d];
            vf_store_f32(q + d * TILE_ROWS + r, column);
        }
    }
}

// The rows of keys [begin, end) of k or v. In place where the kernels can read them so; else converted into `converted`
// [keys][KEY_STRIDE].
static void load_keys(const job *j, const lls__attn_view *view, const lls__attn_seq *seq, int64_t kv_head,
                      int64_t begin, int64_t end, int64_t dim, bool in_place, float *converted, key_rows *rows) {
    const lls__attn_problem *p = j->p;
    int64_t size = lls__elem_size(p->kv_dtype), step = view->row * size, n = 0;
    rows->dtype = in_place ? p->kv_dtype : LLS_F32;
    for (int64_t key = begin; key < end;) {
        int64_t run = end; // keys up to here lie at a constant step
        if (p->page_table) run = lls__attn_clamp(key - key % p->page_size + p->page_size, key, end);
        const char *at = (const char *)view->data + lls__attn_kv_offset(p, view, seq, key, kv_head) * size;
        int64_t count = run - key;
        for (int64_t i = 0; i < count; i++)
            rows->row[n + i] = in_place ? at + i * step : (const void *)(converted + (n + i) * KEY_STRIDE);
        for (int64_t i = 0; !in_place && i < count; i++)
            convert_row(p->kv_dtype, at + i * step, dim, converted + (n + i) * KEY_STRIDE);
        key = run, n += count;
    }
    for (; n % LLS_VF; n++) rows->row[n] = rows->row[n - 1];
}

typedef struct buffers {
    float *q, *k, *v, *s, *bias, *state;
} buffers;

static int64_t bias_floats(const job *j) {
    return j->p->bias.data ? WIDE_KEYS * TILE_ROWS : 0;
}

static int64_t buffer_floats(const job *j) {
    return TILE_ROWS * j->dp + 2 * MAX_KEYS * KEY_STRIDE + WIDE_KEYS * TILE_ROWS + bias_floats(j) + 2 * TILE_ROWS +
           TILE_ROWS * j->dvp;
}

static buffers buffers_of(const job *j, int worker) {
    buffers b = {.q = j->scratch + worker * j->scratch_floats};
    b.k = b.q + TILE_ROWS * j->dp;
    b.v = b.k + MAX_KEYS * KEY_STRIDE;
    b.s = b.v + MAX_KEYS * KEY_STRIDE;
    b.bias = b.s + WIDE_KEYS * TILE_ROWS;
    b.state = b.bias + bias_floats(j);
    return b;
}

// Runs the rows over keys [begin, end), tile by tile; tiles begin at multiples of their size.
static void run_tiles(const job *j, const lls__attn_seq *seq, int64_t kv_head, int64_t begin, int64_t end, bool few,
                      const buffers *b, query_rows *rows) {
    const lls__attn_problem *p = j->p;
    const score_rule rule = {p->scale, p->softcap, p->alibi != NULL, p->bias.data ? b->bias : NULL};
    const weights w = few ? (weights){b->s, FEW_KEYS, 1} : (weights){b->s, 1, TILE_ROWS};
    int64_t tile = few ? FEW_KEYS : WIDE_KEYS;
    key_rows k, v;
    for (int64_t first = begin, last; first < end; first = last) {
        last = lls__attn_clamp(first - first % tile + tile, first, end);
        int64_t keys = last - first, hidden = rule.bias ? load_bias(rows, first, keys, few, b->bias) : 0;
        if (hidden == rows->count * keys) continue;
        // Many rows read a key so often that it pays to convert it first, in one place.
        load_keys(j, &p->k, seq, kv_head, first, last, p->head_dim, few && p->head_dim == j->dp, b->k, &k);
        load_keys(j, &p->v, seq, kv_head, first, last, p->head_dim_v, few && p->head_dim_v == j->dvp, b->v, &v);
        if (few) {
            few_scores(&k, &v, keys, b->q, rows->count, j->dp, j->dvp, b->s);
            few_softmax(rows, &rule, (int32_t)first, keys, b->s);
        } else {
            wide_scores(b->k, keys, b->q, rows->padded, p->head_dim, b->s);
            wide_softmax(rows, &rule, (int32_t)first, keys, b->s);
        }
        if (hidden > 0 && !are_finite(&v, keys, j->dvp))
            add_visible_values(rows, (int32_t)first, keys, &v, w, rule.bias, j->dvp);
        else add_values(rows, (int32_t)first, keys, &v, w, j->dvp);
    }
}

// out = acc / sum and lse = max + ln(sum), with the sink as one more term of the sum.
static void finish(const job *j, const lls__attn_seq *seq, int64_t kv_head, int64_t first, const query_rows *rows) {
    const lls__attn_problem *p = j->p;
    int64_t size = lls__elem_size(p->dtype);
    for (int32_t r = 0; r < rows->count; r++) {
        int64_t i = (first + r) / j->group, head = kv_head * j->group + (first + r) % j->group;
        float max = rows->max[r], sum = rows->sum[r], scale = 1;
        if (p->sinks && p->sinks[head] > -INFINITY) {
            float top = fmaxf(max, p->sinks[head]);
            scale = sum == 0 ? 0 : expf(max - top); // sum is 0 only when nothing was seen: the largest weight is 1
            sum = sum * scale + expf(p->sinks[head] - top);
            max = top;
        }
        scale = sum == 0 ? 0 : scale / sum;
        char *out = (char *)p->out.data + lls__attn_q_offset(&p->out, seq, i, head) * size;
        const float *acc = rows->acc + r * j->dvp;
        for (int64_t d = 0; d < p->head_dim_v; d += LLS_VF) {
            vf y = vf_load_f32(acc + d) * vf_set1(scale);
            if (p->head_dim_v - d >= LLS_VF) vf_store(p->dtype, out, d, y);
            else vf_store_n(p->dtype, out, d, p->head_dim_v - d, y);
        }
        if (p->lse.data)
            ((float *)p->lse.data)[lls__attn_q_offset(&p->lse, seq, i, head)] = sum == 0 ? -INFINITY : max + logf(sum);
    }
}

static void reset_state(query_rows *rows, int64_t dvp) {
    for (int32_t r = 0; r < rows->padded; r++) rows->max[r] = -INFINITY, rows->sum[r] = 0;
    memset(rows->acc, 0, (size_t)(rows->count * dvp) * sizeof(float));
}

static float *part_state(const job *j, int64_t b, const cut *c, int64_t part, int64_t kv_head) {
    return j->states + j->first_state[b] + (part * j->p->num_kv_heads + kv_head) * state_floats(j, c->rows);
}

// Task t of sequence b: KV heads innermost, blocks of rows from the last, which under a causal mask is the longest.
static void run_task(const job *j, int64_t b, int64_t t, int worker) {
    const lls__attn_problem *p = j->p;
    lls__attn_seq seq = lls__attn_seq_at(p, b);
    cut c = cut_of(j, &seq);
    int64_t kv_head = t % p->num_kv_heads, unit = t / p->num_kv_heads;
    int64_t block = c.blocks == 1 ? 0 : c.blocks - 1 - unit, first = block * TILE_ROWS;
    buffers buf = buffers_of(j, worker);
    query_rows rows;
    bind_rows(j, &seq, kv_head, first, c.rows - first < TILE_ROWS ? c.rows - first : TILE_ROWS, &rows);
    bind_state(&rows, c.parts > 1 ? part_state(j, b, &c, unit, kv_head) : buf.state);
    reset_state(&rows, j->dvp);

    bool few = rows.count <= FEW_ROWS;
    int64_t begin = rows.begin[0], end = rows.end[rows.count - 1]; // spans move forward with the rows
    if (c.blocks == 1) {
        int64_t part = (c.first_part + unit) * PART_KEYS;
        begin = lls__attn_clamp(begin, part, part + PART_KEYS), end = lls__attn_clamp(end, part, part + PART_KEYS);
    }
    if (begin < end) {
        load_queries(j, &seq, kv_head, first, &rows, few, buf.q);
        run_tiles(j, &seq, kv_head, begin, end, few, &buf, &rows);
    }
    if (c.parts == 1) finish(j, &seq, kv_head, first, &rows);
}

static void run_tasks(void *arg, int64_t begin, int64_t end, int worker) {
    const job *j = arg;
    int64_t b = 0;
    for (int64_t high = j->p->batch; high - b > 1;) { // first_task[b] <= begin < first_task[high]
        int64_t middle = (b + high) / 2;
        if (j->first_task[middle] <= begin) b = middle;
        else high = middle;
    }
    for (int64_t t = begin; t < end; t++) {
        while (t >= j->first_task[b + 1]) b++;
        run_task(j, b, t - j->first_task[b], worker);
    }
}

/* ---- Merging the parts of a sequence ---- */

static void merge_parts(const job *j, int64_t b, int64_t kv_head) {
    lls__attn_seq seq = lls__attn_seq_at(j->p, b);
    cut c = cut_of(j, &seq);
    if (c.blocks != 1 || c.parts == 1) return;
    query_rows rows, part;
    bind_rows(j, &seq, kv_head, 0, c.rows, &rows);
    part = rows;
    bind_state(&rows, part_state(j, b, &c, 0, kv_head)); // the first part's state takes the sum
    for (int32_t r = 0; r < rows.count; r++) {
        float *acc = rows.acc + r * j->dvp;
        for (int64_t i = 1; i < c.parts; i++) {
            bind_state(&part, part_state(j, b, &c, i, kv_head));
            if (part.sum[r] == 0) continue;
            float max = fmaxf(rows.max[r], part.max[r]);
            float own = rows.sum[r] == 0 ? 0 : expf(rows.max[r] - max), other = expf(part.max[r] - max);
            rows.max[r] = max;
            rows.sum[r] = rows.sum[r] * own + part.sum[r] * other;
            for (int64_t d = 0; d < j->dvp; d += LLS_VF) {
                vf_store_f32(acc + d, vf_fma(vf_load_f32(part.acc + r * j->dvp + d), vf_set1(other),
                                             vf_load_f32(acc + d) * vf_set1(own)));
            }
        }
    }
    finish(j, &seq, kv_head, 0, &rows);
}

static void merge_tasks(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    for (int64_t t = begin; t < end; t++) merge_parts(j, t / j->p->num_kv_heads, t % j->p->num_kv_heads);
}

/* ---- The plan ---- */

// Fills first_task and first_state; returns the floats that the states take.
static int64_t plan(job *j) {
    int64_t states = 0;
    double macs = 0;
    j->num_tasks = 0;
    for (int64_t b = 0; b < j->p->batch; b++) {
        lls__attn_seq seq = lls__attn_seq_at(j->p, b);
        cut c = cut_of(j, &seq);
        j->first_task[b] = j->num_tasks;
        j->first_state[b] = states;
        j->num_tasks += j->p->num_kv_heads * (c.blocks == 1 ? c.parts : c.blocks);
        if (c.parts > 1) states += j->p->num_kv_heads * c.parts * state_floats(j, c.rows);
        macs += (double)(c.rows * j->p->num_kv_heads) * (double)(seq.kv_len * (j->dp + j->dvp));
    }
    j->first_task[j->p->batch] = j->num_tasks;
    j->grain = 1 + (int64_t)(GRAIN_MACS * (double)j->num_tasks / (macs + 1));
    return states;
}

lls_status LLS_CPU(lls__attn_cpu)(lls_ctx *ctx, const void *args, lls_stream stream) {
    (void)stream;
    const lls__attn_problem *p = args;
    job j = {.p = p,
             .group = p->num_heads / p->num_kv_heads,
             .dp = padded_rows(p->head_dim),
             .dvp = padded_rows(p->head_dim_v)};
    j.scratch_floats = buffer_floats(&j);
    // The workspace moves when it grows, so the plan, whose size is known, is made twice: to size the states, then in
    // its final place.
    int64_t index_floats = ceil_div((2 * p->batch + 1) * 2, 16) * 16,
            fixed = index_floats + lls__pool_threads(ctx->pool) * j.scratch_floats, states = 0;
    for (int pass = 0; pass < 2; pass++) {
        void *memory;
        LLS_TRY(lls__ctx_workspace(ctx, p->op, (size_t)(fixed + states) * sizeof(float), &memory));
        j.first_task = memory;
        j.first_state = j.first_task + p->batch + 1;
        j.scratch = (float *)memory + index_floats;
        j.states = (float *)memory + fixed;
        states = plan(&j);
    }
    lls__parallel(ctx, j.num_tasks, j.grain, run_tasks, &j);
    if (states > 0) lls__parallel(ctx, p->batch * p->num_kv_heads, j.grain, merge_tasks, &j);
    return LLS_OK;
}
