#include "engine/model/weights.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/element.h"
#include "core/tensor.h"
#include "llmspeed/ops.h"

enum { SLAB_BYTES = 16 << 20, PIECE_ALIGN = 256 };

typedef struct loader {
    const lls_model *model;
    lls_ctx *ctx;
    lls__weights *weights;
    bool *used;           // [num_tensors] of the file
    int64_t placed_bytes; // for progress
} loader;

// Weights are cut from few large slabs: few allocations on CUDA, huge pages on the CPU, where streaming through 4 KB ones
// costs a sixth of the bandwidth. (The KV pool goes without: it would become resident as a whole with its first tokens.)
static lls_status add_slab(lls__weights *w, size_t bytes) {
    void *slab;
    if (w->num_slabs == w->cap_slabs) {
        void **grown = lls__grown(w->slabs, &w->cap_slabs, w->num_slabs + 1, sizeof *grown);
        if (!grown) return LLS_ERR_MEMORY;
        w->slabs = grown;
    }
    LLS_TRY(lls_malloc(w->ctx, bytes, &slab));
    if (lls_ctx_device(w->ctx).type == LLS_CPU) madvise(slab, bytes, MADV_HUGEPAGE);
    w->slabs[w->num_slabs++] = slab;
    w->slab_next = slab;
    w->slab_left = bytes;
    return LLS_OK;
}

static lls_status keep(loader *l, size_t bytes, void **out) {
    lls__weights *w = l->weights;
    size_t rounded = (bytes + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN;
    if (rounded > w->slab_left) LLS_TRY(add_slab(w, rounded > SLAB_BYTES ? rounded : SLAB_BYTES));
    *out = w->slab_next;
    w->slab_next += rounded;
    w->slab_left -= rounded;
    w->total_bytes += (int64_t)rounded;
    return LLS_OK;
}

static void progress(loader *l, size_t bytes) {
    l->placed_bytes += (int64_t)bytes;
    if (!l->model->progress) return;
    double fraction = (double)l->placed_bytes / (double)l->model->gguf->file_bytes;
    l->model->progress(fraction < 1 ? fraction : 1, l->model->progress_user);
}

// The tensor of that name, which must be there and have this shape; columns 0: a vector.
static lls_status find(const loader *l, const char *name, int64_t rows, int64_t columns, const lls__gguf_tensor **out) {
    const lls__gguf_tensor *t = lls__gguf_find_tensor(l->model->gguf, name);
    if (!t) return lls__fail(LLS_ERR_MODEL, "%s: tensor %s is missing", l->model->gguf->name, name);
    bool fits = columns ? t->ndim == 2 && t->shape[0] == rows && t->shape[1] == columns
                        : t->ndim == 1 && t->shape[0] == rows;
    if (!fits) {
        char got[96] = "";
        for (int32_t i = 0, used = 0; i < t->ndim; i++)
            used += snprintf(got + used, sizeof got - (size_t)used, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
        return columns ? lls__fail(LLS_ERR_MODEL, "%s: tensor %s has shape [%s], must be [%lld, %lld]",
                                   l->model->gguf->name, name, got, (long long)rows, (long long)columns)
                       : lls__fail(LLS_ERR_MODEL, "%s: tensor %s has shape [%s], must be [%lld]", l->model->gguf->name,
                                   name, got, (long long)rows);
    }
    l->used[t - l->model->gguf->tensors] = true;
    *out = t;
    return LLS_OK;
}

// A tensor that nothing reads means a model that is not what its keys say: its output would be wrong without a sign.
static lls_status check_all_used(const loader *l) {
    const lls__gguf *g = l->model->gguf;
    for (size_t i = 0; i < g->num_tensors; i++) {
        if (!l->used[i])
            return lls__fail(LLS_ERR_MODEL, "%s: tensor %s is not part of a %s model as this library knows it", g->name,
                             g->tensors[i].name, lls__arch_name(l->model->config.arch));
    }
    return LLS_OK;
}

static lls_tensor host_view(const lls__gguf_tensor *t) {
    return lls_tensor_make((void *)(uintptr_t)t->data, t->dtype, (lls_device){LLS_CPU, 0}, t->ndim, t->shape);
}

// Appends a vector to `values` as f32.
static lls_status read_vector(const loader *l, const char *name, int64_t n, float *values) {
    const lls__gguf_tensor *t;
    LLS_TRY(find(l, name, n, 0, &t));
    if (!lls__is_float(t->dtype))
        return lls__fail(LLS_ERR_MODEL, "%s: tensor %s is %s, vectors must be f32, f16 or bf16", l->model->gguf->name,
                         name, lls_dtype_name(t->dtype));
    lls_tensor view = host_view(t);
    for (int64_t i = 0; i < n; i++) values[i] = (float)lls__get(&view, i);
    return LLS_OK;
}

// n floats of the host to the device.
static lls_status place_floats(loader *l, const float *values, int64_t n, void **out) {
    size_t bytes = (size_t)n * sizeof *values;
    LLS_TRY(keep(l, bytes, out));
    l->weights->bytes_per_token += (int64_t)bytes;
    return lls_upload(l->ctx, *out, values, bytes, NULL);
}

static lls_status load_vector(loader *l, const char *name, int64_t n, lls_tensor *out) {
    float *values = malloc((size_t)n * sizeof *values);
    if (!values) return lls__fail(LLS_ERR_MEMORY, "weights: out of memory for %s", name);
    void *device = NULL;
    lls_status status = read_vector(l, name, n, values);
    if (!status) status = place_floats(l, values, n, &device);
    free(values);
    *out = lls_tensor_make(device, LLS_F32, lls_ctx_device(l->ctx), 1, &n);
    return status;
}

// The same rows on the device, in the file's layout.
static lls_status upload_rows(loader *l, const lls__gguf_tensor *const *tensors, int32_t n, lls_tensor *out) {
    size_t total = 0, offset = 0;
    int64_t shape[2] = {0, tensors[0]->shape[1]};
    for (int32_t i = 0; i < n; i++) total += tensors[i]->nbytes, shape[0] += tensors[i]->shape[0];
    void *device;
    LLS_TRY(keep(l, total, &device));
    for (int32_t i = 0; i < n; i++) {
        LLS_TRY(lls_upload(l->ctx, (char *)device + offset, tensors[i]->data, tensors[i]->nbytes, NULL));
        offset += tensors[i]->nbytes;
    }
    *out = lls_tensor_make(device, tensors[0]->dtype, lls_ctx_device(l->ctx), 2, shape);
    return LLS_OK;
}

static lls_status pack_rows(loader *l, const lls__gguf_tensor *const *tensors, int32_t n, lls_tensor *out) {
    lls_tensor views[LLS__MAX_PARTS];
    for (int32_t i = 0; i < n; i++) views[i] = host_view(tensors[i]);
    size_t bytes;
    void *buffer;
    LLS_TRY(lls_linear_packed_bytes(l->ctx, views, n, &bytes));
    LLS_TRY(keep(l, bytes, &buffer));
    return lls_linear_pack(l->ctx, views, n, buffer, bytes, out);
}

static lls_status place_matrices(loader *l, const lls__gguf_tensor *const *tensors, int32_t n, lls_tensor *out) {
    bool cpu = lls_ctx_device(l->ctx).type == LLS_CPU;
    LLS_TRY(cpu ? pack_rows(l, tensors, n, out) : upload_rows(l, tensors, n, out));
    for (int32_t i = 0; i < n; i++) {
        l->weights->bytes_per_token += (int64_t)tensors[i]->nbytes;
        lls__gguf_drop_pages(l->model->gguf, tensors[i]);
        progress(l, tensors[i]->nbytes);
    }
    return LLS_OK;
}

typedef struct source {
    const char *name; // with ".weight" and, where the model has one, ".bias" behind it
    int64_t rows;
} source;

// Reads the matrices [rows_i, k] named prefix.name.weight, neighbours of one dtype fused.
static lls_status load_projection(loader *l, const char *prefix, const source *sources, int32_t n, int64_t k, bool bias,
                                  lls__projection *out) {
    const lls__gguf_tensor *tensors[LLS__MAX_PARTS];
    char name[LLS__GGUF_MAX_NAME + 1];
    *out = (lls__projection){0};
    int64_t first[LLS__MAX_PARTS];
    for (int32_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s%s.weight", prefix, sources[i].name);
        LLS_TRY(find(l, name, sources[i].rows, k, &tensors[i]));
        first[i] = out->rows;
        out->rows += sources[i].rows;
    }
    for (int32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && tensors[end]->dtype == tensors[i]->dtype;) end++;
        out->first_row[out->num_parts] = first[i];
        LLS_TRY(place_matrices(l, &tensors[i], end - i, &out->parts[out->num_parts++]));
    }
    if (!bias) return LLS_OK;
    float *values = malloc((size_t)out->rows * sizeof *values);
    if (!values) return lls__fail(LLS_ERR_MEMORY, "weights: out of memory for %s biases", prefix);
    lls_status status = LLS_OK;
    for (int32_t i = 0; i < n && !status; i++) {
        snprintf(name, sizeof name, "%s%s.bias", prefix, sources[i].name);
        status = read_vector(l, name, sources[i].rows, values + first[i]);
    }
    void *device = NULL;
    if (!status) status = place_floats(l, values, out->rows, &device);
    out->bias = device;
    free(values);
    return status;
}

static lls_status load_layer(loader *l, int32_t index, lls__layer *layer) {
    const lls__model_config *c = &l->model->config;
    char prefix[24], name[LLS__GGUF_MAX_NAME + 1];
    int64_t q_rows = (int64_t)c->num_heads * c->head_dim, kv_rows = (int64_t)c->num_kv_heads * c->head_dim;
    snprintf(prefix, sizeof prefix, "blk.%d.", index);
    const struct {
        const char *name;
        int64_t n;
        lls_tensor *to;
    } vectors[] = {
        {"attn_norm", c->hidden, &layer->attn_norm},
        {"ffn_norm", c->hidden, &layer->ffn_norm},
        {"attn_q_norm", c->qk_norm ? c->head_dim : 0, &layer->q_norm},
        {"attn_k_norm", c->qk_norm ? c->head_dim : 0, &layer->k_norm},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        if (!vectors[i].n) continue;
        snprintf(name, sizeof name, "%s%s.weight", prefix, vectors[i].name);
        LLS_TRY(load_vector(l, name, vectors[i].n, vectors[i].to));
    }
    LLS_TRY(load_projection(l, prefix, (source[]){{"attn_q", q_rows}, {"attn_k", kv_rows}, {"attn_v", kv_rows}}, 3,
                            c->hidden, c->qkv_bias, &layer->qkv));
    LLS_TRY(load_projection(l, prefix, (source[]){{"attn_output", c->hidden}}, 1, q_rows, false, &layer->attn_out));
    LLS_TRY(load_projection(l, prefix, (source[]){{"ffn_gate", c->ffn}, {"ffn_up", c->ffn}}, 2, c->hidden, false,
                            &layer->gate_up));
    return load_projection(l, prefix, (source[]){{"ffn_down", c->hidden}}, 1, c->ffn, false, &layer->down);
}

// The head comes first: packing it drops the embedding's pages when the two are tied, and afterwards only rows that are
// used come back.
static lls_status load_ends(loader *l) {
    const lls__model_config *c = &l->model->config;
    const lls__gguf_tensor *embed;
    LLS_TRY(find(l, "token_embd.weight", c->vocab_size, c->hidden, &embed));
    LLS_TRY(load_projection(l, "", (source[]){{c->tied_embeddings ? "token_embd" : "output", c->vocab_size}}, 1,
                            c->hidden, false, &l->weights->head));
    LLS_TRY(load_vector(l, "output_norm.weight", c->hidden, &l->weights->output_norm));
    if (lls_ctx_device(l->ctx).type == LLS_CPU) {
        l->weights->embed = host_view(embed);
    } else if (c->tied_embeddings) {
        l->weights->embed = l->weights->head.parts[0];
    } else {
        LLS_TRY(upload_rows(l, &embed, 1, &l->weights->embed));
    }
    if (!lls__gguf_find_tensor(l->model->gguf, "rope_freqs.weight")) return LLS_OK;
    l->weights->rope_factors = malloc((size_t)(c->rotary_dim / 2) * sizeof(float));
    if (!l->weights->rope_factors) return lls__fail(LLS_ERR_MEMORY, "weights: out of memory for rope_freqs.weight");
    return read_vector(l, "rope_freqs.weight", c->rotary_dim / 2, l->weights->rope_factors);
}

static lls_status load_all(loader *l) {
    LLS_TRY(load_ends(l));
    for (int32_t i = 0; i < l->model->config.num_layers; i++) LLS_TRY(load_layer(l, i, &l->weights->layers[i]));
    LLS_TRY(check_all_used(l));
    progress(l, l->model->gguf->file_bytes);
    return LLS_OK;
}

lls_status lls__weights_load(const lls_model *model, lls_ctx *ctx, lls__weights **out) {
    lls__weights *weights = calloc(1, sizeof *weights);
    lls__layer *layers = calloc((size_t)model->config.num_layers, sizeof *layers);
    bool *used = calloc(model->gguf->num_tensors, sizeof *used);
    lls_status status = LLS_OK;
    if (!weights || !layers || !used) {
        status = lls__fail(LLS_ERR_MEMORY, "weights: out of memory for %d layers", model->config.num_layers);
        free(layers);
    } else {
        weights->ctx = ctx, weights->layers = layers;
        loader l = {.model = model, .ctx = ctx, .weights = weights, .used = used};
        status = load_all(&l);
    }
    free(used);
    if (status) lls__weights_free(weights);
    else *out = weights;
    return status;
}

void lls__weights_free(lls__weights *weights) {
    if (!weights) return;
    for (size_t i = 0; i < weights->num_slabs; i++) lls_free(weights->ctx, weights->slabs[i]);
    free(weights->slabs);
    free(weights->rope_factors);
    free(weights->layers);
    free(weights);
}
