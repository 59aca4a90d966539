#include "engine/exec/forward.h"

#include <stdlib.h>
#include <string.h>

#include "core/tensor.h"
#include "llmspeed/ops.h"

enum { STAGE_ALIGN = 64 };

struct lls__forward {
    const lls_model *model;
    const lls__model_config *c;
    const lls__weights *weights;
    lls_ctx *ctx;
    lls_device device;
    lls__forward_limits limits;
    int32_t max_pages;

    lls__batch batch;   // host arrays, slices of `stage`
    char *stage;        // one host block, so that CUDA needs one upload a step
    char *device_stage; // its image on the device; the same block on the CPU
    size_t stage_bytes, history_offset;

    // fp32 activations on the device, T = max_tokens rows (R = max_sequences for the last three)
    float *x;             // [T, hidden] residual stream
    float *h;             // [T, hidden] normalised
    float *qkv;           // [T, qkv rows]
    float *attn;          // [T, num_heads * head_dim]
    float *y;             // [T, hidden] what a block adds to the stream
    float *gate_up;       // [T, 2 ffn]
    float *row_x, *row_y; // [R, hidden] rows that get logits
    float *logits;        // [R, vocab]
    char *kv;             // [num_layers, 2, num_pages, num_kv_heads, page_size, head_dim] kv_dtype
    int32_t *out_ids;     // [R]
    float *out_probs;     // [R]
    float *host_logits;   // [vocab], CUDA only
    void *owned[16];
    int num_owned;
};

/* ---- Memory ---- */

static lls_status device_block(lls__forward *f, size_t bytes, void *out) {
    void *block;
    LLS_TRY(lls_malloc(f->ctx, bytes, &block));
    f->owned[f->num_owned++] = block;
    memcpy(out, &block, sizeof block);
    return LLS_OK;
}

static lls_status floats(lls__forward *f, int64_t n, float **out) {
    return device_block(f, (size_t)n * sizeof(float), out);
}

// Walks the stage twice: with base NULL to size it, then to hand out the arrays. History, which few steps need, comes
// last.
static size_t lay_out_stage(lls__forward *f, char *base) {
    size_t at = 0, t = (size_t)f->limits.max_tokens, b = (size_t)f->limits.max_sequences;
    lls__batch *batch = &f->batch;
    const struct {
        void *field; // address of a pointer in the batch
        size_t bytes;
    } arrays[] = {
        {&batch->slots, t * 8},
        {&batch->seed, b * 8},
        {&batch->step, b * 8},
        {&batch->ids, t * 4},
        {&batch->positions, t * 4},
        {&batch->cu_seqlens, (b + 1) * 4},
        {&batch->kv_lens, b * 4},
        {&batch->rows, b * 4},
        {&batch->temperature, b * 4},
        {&batch->top_p, b * 4},
        {&batch->min_p, b * 4},
        {&batch->penalty, b * 4},
        {&batch->top_k, b * 4},
        {&batch->history_lens, b * 4},
        {&batch->page_table, b * (size_t)f->max_pages * 4},
        {&batch->history, b * (size_t)f->limits.context_length * 4},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        char *array = base ? base + at : NULL;
        memcpy(arrays[i].field, &array, sizeof array);
        f->history_offset = at;
        at += (arrays[i].bytes + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
    }
    return at;
}

static lls_status create_stage(lls__forward *f) {
    f->stage_bytes = lay_out_stage(f, NULL);
    f->stage = aligned_alloc(STAGE_ALIGN, f->stage_bytes);
    if (!f->stage)
        return lls__fail(LLS_ERR_MEMORY, "engine: out of memory for %zu bytes of step inputs", f->stage_bytes);
    lay_out_stage(f, f->stage);
    f->device_stage = f->stage;
    return f->device.type == LLS_CPU ? LLS_OK : device_block(f, f->stage_bytes, &f->device_stage);
}

int64_t lls__forward_kv_bytes(const lls__forward *f) {
    return 2ll * f->c->num_layers * f->limits.num_pages * f->limits.page_size * f->c->num_kv_heads * f->c->head_dim *
           lls__elem_size(f->limits.kv_dtype);
}

lls_status lls__forward_create(const lls_model *model, const lls__weights *weights, lls_ctx *ctx,
                               const lls__forward_limits *limits, lls__forward **out) {
    lls__forward *f = calloc(1, sizeof *f);
    if (!f) return lls__fail(LLS_ERR_MEMORY, "engine: out of memory");
    const lls__model_config *c = &model->config;
    f->model = model, f->c = c, f->weights = weights, f->ctx = ctx, f->device = lls_ctx_device(ctx),
    f->limits = *limits;
    f->max_pages = (limits->context_length + limits->page_size - 1) / limits->page_size;
    int64_t t = limits->max_tokens, r = limits->max_sequences, heads = c->num_heads + 2ll * c->num_kv_heads;
    lls_status status = create_stage(f);
    if (!status) status = floats(f, t * c->hidden, &f->x);
    if (!status) status = floats(f, t * c->hidden, &f->h);
    if (!status) status = floats(f, t * heads * c->head_dim, &f->qkv);
    if (!status) status = floats(f, t * c->num_heads * c->head_dim, &f->attn);
    if (!status) status = floats(f, t * c->hidden, &f->y);
    if (!status) status = floats(f, t * 2 * c->ffn, &f->gate_up);
    if (!status) status = floats(f, r * c->hidden, &f->row_x);
    if (!status) status = floats(f, r * c->hidden, &f->row_y);
    if (!status) status = floats(f, r * c->vocab_size, &f->logits);
    if (!status) status = device_block(f, (size_t)lls__forward_kv_bytes(f), &f->kv);
    if (!status) status = device_block(f, (size_t)r * 4, &f->out_ids);
    if (!status) status = device_block(f, (size_t)r * 4, &f->out_probs);
    if (!status && f->device.type == LLS_CUDA && !(f->host_logits = malloc((size_t)c->vocab_size * 4)))
        status = lls__fail(LLS_ERR_MEMORY, "engine: out of memory");
    if (status) {
        lls__forward_destroy(f);
        return status;
    }
    *out = f;
    return LLS_OK;
}

void lls__forward_destroy(lls__forward *f) {
    if (!f) return;
    for (int i = 0; i < f->num_owned; i++) lls_free(f->ctx, f->owned[i]);
    free(f->host_logits);
    free(f->stage);
    free(f);
}

lls__batch *lls__forward_batch(lls__forward *f) {
    return &f->batch;
}

int32_t lls__forward_max_pages(const lls__forward *f) {
    return f->max_pages;
}

void *lls__forward_kv(const lls__forward *f) {
    return f->kv;
}

/* ---- Views ---- */

// [rows, columns] f32 whose rows lie `stride` apart.
static lls_tensor matrix(const lls__forward *f, float *data, int64_t rows, int64_t columns, int64_t stride) {
    lls_tensor t = lls_tensor_make(data, LLS_F32, f->device, 2, (int64_t[]){rows, columns});
    t.stride[0] = stride;
    return t;
}

// [tokens, heads, head_dim] f32 out of rows `stride` apart.
static lls_tensor head_view(const lls__forward *f, float *data, int64_t tokens, int64_t num_heads, int64_t stride) {
    lls_tensor t = lls_tensor_make(data, LLS_F32, f->device, 3, (int64_t[]){tokens, num_heads, f->c->head_dim});
    t.stride[0] = stride;
    return t;
}

// A step input on the device, by its host address.
static lls_tensor input(const lls__forward *f, lls_dtype dtype, const void *host, int32_t ndim, const int64_t *shape) {
    return lls_tensor_make(f->device_stage + ((const char *)host - f->stage), dtype, f->device, ndim, shape);
}

// [num_pages, page_size, num_kv_heads, head_dim]; in memory a head's rows of a page are neighbours.
static lls_tensor cache_view(const lls__forward *f, int32_t layer, int which) {
    int64_t kv_heads = f->c->num_kv_heads, d = f->c->head_dim, page = f->limits.page_size;
    int64_t elements = f->limits.num_pages * page * kv_heads * d;
    char *data = f->kv + (2ll * layer + which) * elements * lls__elem_size(f->limits.kv_dtype);
    lls_tensor t =
        lls_tensor_make(data, f->limits.kv_dtype, f->device, 4, (int64_t[]){f->limits.num_pages, page, kv_heads, d});
    t.stride[1] = d;
    t.stride[2] = page * d;
    return t;
}

/* ---- Steps ---- */

static lls_status project(lls__forward *f, const lls_tensor *x, const lls__projection *p, float *out, int64_t rows) {
    for (int32_t i = 0; i < p->num_parts; i++) {
        int64_t n = p->parts[i].shape[0], first = p->first_row[i];
        lls_tensor y = matrix(f, out + first, rows, n, p->rows);
        lls_tensor bias =
            lls_tensor_make((void *)(uintptr_t)(p->bias ? p->bias + first : NULL), LLS_F32, f->device, 1, &n);
        lls_linear_args args = LLS_LINEAR_ARGS_INIT;
        args.x = x, args.weight = &p->parts[i], args.out = &y;
        args.bias = p->bias ? &bias : NULL;
        args.compute = f->limits.f32_activations ? LLS_COMPUTE_F32 : LLS_COMPUTE_DEFAULT;
        LLS_TRY(lls_linear(f->ctx, &args, NULL));
    }
    return LLS_OK;
}

// stream += added (when given), out = rmsnorm(stream) * weight
static lls_status add_norm(lls__forward *f, const lls_tensor *stream, const lls_tensor *added, const lls_tensor *weight,
                           const lls_tensor *out) {
    lls_rmsnorm_args args = LLS_RMSNORM_ARGS_INIT;
    args.x = added ? added : stream;
    args.residual = args.residual_out = added ? stream : NULL;
    args.weight = weight, args.out = out, args.eps = f->c->rms_eps;
    return lls_rmsnorm(f->ctx, &args, NULL);
}

static lls_status rotate(lls__forward *f, const lls_tensor *q, const lls_tensor *k, const lls_tensor *positions) {
    lls_rope_args args = LLS_ROPE_ARGS_INIT;
    args.x = args.out = q, args.x2 = args.out2 = k, args.positions = positions;
    args.style = f->c->rope_style, args.rotary_dim = f->c->rotary_dim, args.theta = f->c->rope_theta;
    args.freq_factors = f->weights->rope_factors, args.scaling = f->c->rope_scaling;
    return lls_rope(f->ctx, &args, NULL);
}

static lls_status attend(lls__forward *f, int32_t layer, const lls_tensor *q, const lls_tensor *out) {
    const lls__batch *b = &f->batch;
    lls_tensor k_cache = cache_view(f, layer, 0), v_cache = cache_view(f, layer, 1);
    lls_tensor table = input(f, LLS_I32, b->page_table, 2, (int64_t[]){b->num_sequences, f->max_pages});
    lls_tensor lens = input(f, LLS_I32, b->kv_lens, 1, (int64_t[]){b->num_sequences});
    lls_tensor cu = input(f, LLS_I32, b->cu_seqlens, 1, (int64_t[]){b->num_sequences + 1});
    lls_attn_decode_args args = LLS_ATTN_DECODE_ARGS_INIT;
    args.q = q, args.k_cache = &k_cache, args.v_cache = &v_cache, args.page_table = &table, args.kv_lens = &lens,
    args.out = out;
    args.cu_seqlens_q = &cu, args.max_q_len = b->max_q_len;
    args.mask.causal = true, args.mask.window_left = f->c->window_left;
    return lls_attn_decode(f->ctx, &args, NULL);
}

// h -> y: attention of one layer over the cache, the new tokens' keys and values written to it first.
static lls_status attention_block(lls__forward *f, int32_t index, const lls__layer *layer, const lls_tensor *h,
                                  int64_t tokens) {
    const lls__batch *b = &f->batch;
    int64_t heads = f->c->num_heads, kv_heads = f->c->num_kv_heads, d = f->c->head_dim, stride = layer->qkv.rows;
    LLS_TRY(project(f, h, &layer->qkv, f->qkv, tokens));
    lls_tensor q = head_view(f, f->qkv, tokens, heads, stride);
    lls_tensor k = head_view(f, f->qkv + heads * d, tokens, kv_heads, stride);
    lls_tensor v = head_view(f, f->qkv + (heads + kv_heads) * d, tokens, kv_heads, stride);
    if (layer->q_norm.ndim) {
        LLS_TRY(add_norm(f, &q, NULL, &layer->q_norm, &q));
        LLS_TRY(add_norm(f, &k, NULL, &layer->k_norm, &k));
    }
    lls_tensor positions = input(f, LLS_I32, b->positions, 1, &tokens), slots = input(f, LLS_I64, b->slots, 1, &tokens);
    LLS_TRY(rotate(f, &q, &k, &positions));
    lls_tensor k_cache = cache_view(f, index, 0), v_cache = cache_view(f, index, 1);
    lls_kv_write_args write = LLS_KV_WRITE_ARGS_INIT;
    write.k = &k, write.v = &v, write.k_cache = &k_cache, write.v_cache = &v_cache, write.slots = &slots;
    LLS_TRY(lls_kv_write(f->ctx, &write, NULL));
    lls_tensor attn = head_view(f, f->attn, tokens, heads, heads * d);
    LLS_TRY(attend(f, index, &q, &attn));
    lls_tensor flat = matrix(f, f->attn, tokens, heads * d, heads * d);
    return project(f, &flat, &layer->attn_out, f->y, tokens);
}

// h -> y: down(silu(gate(h)) * up(h))
static lls_status ffn_block(lls__forward *f, const lls__layer *layer, const lls_tensor *h, int64_t tokens) {
    int64_t ffn = f->c->ffn;
    LLS_TRY(project(f, h, &layer->gate_up, f->gate_up, tokens));
    lls_tensor gate = matrix(f, f->gate_up, tokens, ffn, 2 * ffn),
               up = matrix(f, f->gate_up + ffn, tokens, ffn, 2 * ffn);
    lls_gated_act_args act = LLS_GATED_ACT_ARGS_INIT;
    act.gate = &gate, act.up = &up, act.out = &gate, act.act = LLS_ACT_SILU;
    LLS_TRY(lls_gated_act(f->ctx, &act, NULL));
    return project(f, &gate, &layer->down, f->y, tokens);
}

// out[i, :] = table[ids[i], :]
static lls_status gather(lls__forward *f, const lls_tensor *table, const lls_tensor *ids, const lls_tensor *out) {
    lls_embed_args args = LLS_EMBED_ARGS_INIT;
    args.table = table, args.ids = ids, args.out = out;
    return lls_embed(f->ctx, &args, NULL);
}

// Logits of the rows that are sampled: their last residual add and norm, then the head.
static lls_status head(lls__forward *f, const lls_tensor *x, const lls_tensor *y) {
    int64_t rows = f->batch.num_rows, hidden = f->c->hidden;
    lls_tensor row_x = *x, row_y = *y, normed = matrix(f, f->h, rows, hidden, hidden);
    if (rows != f->batch.num_tokens) {
        lls_tensor which = input(f, LLS_I32, f->batch.rows, 1, &rows);
        row_x = matrix(f, f->row_x, rows, hidden, hidden), row_y = matrix(f, f->row_y, rows, hidden, hidden);
        LLS_TRY(gather(f, x, &which, &row_x));
        LLS_TRY(gather(f, y, &which, &row_y));
    }
    LLS_TRY(add_norm(f, &row_x, &row_y, &f->weights->output_norm, &normed));
    return project(f, &normed, &f->weights->head, f->logits, rows);
}

static lls_status sample(lls__forward *f, int32_t *ids, float *probabilities) {
    const lls__batch *b = &f->batch;
    int64_t rows = b->num_rows, history_shape[] = {rows, f->limits.context_length};
    // The head may have more rows than the tokenizer has tokens: those are padding.
    lls_tensor logits = matrix(f, f->logits, rows, lls__tokenizer_size(f->model->tokenizer), f->c->vocab_size);
    lls_tensor temperature = input(f, LLS_F32, b->temperature, 1, &rows), top_k = input(f, LLS_I32, b->top_k, 1, &rows);
    lls_tensor top_p = input(f, LLS_F32, b->top_p, 1, &rows), min_p = input(f, LLS_F32, b->min_p, 1, &rows),
               penalty = input(f, LLS_F32, b->penalty, 1, &rows);
    lls_tensor seed = input(f, LLS_I64, b->seed, 1, &rows), step = input(f, LLS_I64, b->step, 1, &rows);
    lls_tensor history = input(f, LLS_I32, b->history, 2, history_shape),
               lens = input(f, LLS_I32, b->history_lens, 1, &rows);
    lls_tensor out_ids = lls_tensor_make(f->out_ids, LLS_I32, f->device, 1, &rows),
               out_probs = lls_tensor_make(f->out_probs, LLS_F32, f->device, 1, &rows);
    lls_sample_args args = LLS_SAMPLE_ARGS_INIT;
    args.logits = &logits, args.temperature = &temperature, args.top_k = &top_k, args.top_p = &top_p,
    args.min_p = &min_p, args.seed = &seed, args.step = &step;
    if (b->use_history) args.repetition_penalty = &penalty, args.history = &history, args.history_lens = &lens;
    args.out_ids = &out_ids, args.out_probs = &out_probs;
    LLS_TRY(lls_sample(f->ctx, &args, NULL));
    LLS_TRY(lls_download(f->ctx, ids, f->out_ids, (size_t)rows * 4, NULL));
    return lls_download(f->ctx, probabilities, f->out_probs, (size_t)rows * 4, NULL);
}

lls_status lls__forward_run(lls__forward *f, int32_t *ids, float *probabilities) {
    const lls__batch *b = &f->batch;
    int64_t tokens = b->num_tokens, hidden = f->c->hidden;
    if (f->device_stage != f->stage) {
        LLS_TRY(
            lls_upload(f->ctx, f->device_stage, f->stage, b->use_history ? f->stage_bytes : f->history_offset, NULL));
    }
    lls_tensor x = matrix(f, f->x, tokens, hidden, hidden), h = matrix(f, f->h, tokens, hidden, hidden),
               y = matrix(f, f->y, tokens, hidden, hidden);
    lls_tensor token_ids = input(f, LLS_I32, b->ids, 1, &tokens);
    LLS_TRY(gather(f, &f->weights->embed, &token_ids, &x));
    for (int32_t i = 0; i < f->c->num_layers; i++) {
        const lls__layer *layer = &f->weights->layers[i];
        LLS_TRY(add_norm(f, &x, i ? &y : NULL, &layer->attn_norm, &h));
        LLS_TRY(attention_block(f, i, layer, &h, tokens));
        LLS_TRY(add_norm(f, &x, &y, &layer->ffn_norm, &h));
        LLS_TRY(ffn_block(f, layer, &h, tokens));
    }
    if (b->num_rows == 0) return lls_synchronize(f->ctx, NULL);
    LLS_TRY(head(f, &x, &y));
    return sample(f, ids, probabilities);
}

lls_status lls__forward_logits(lls__forward *f, int32_t row, const float **out) {
    const float *logits = f->logits + (int64_t)row * f->c->vocab_size;
    *out = f->host_logits ? f->host_logits : logits;
    return f->host_logits ? lls_download(f->ctx, f->host_logits, logits, (size_t)f->c->vocab_size * 4, NULL) : LLS_OK;
}
