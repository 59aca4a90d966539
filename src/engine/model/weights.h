/* The weights of a model on a device. On the CPU, matrices are packed for its vector units and the file's pages are
 * given back; on CUDA they are uploaded as they are in the file. Vectors (norms, biases) become f32. */
#ifndef LLS_ENGINE_WEIGHTS_H
#define LLS_ENGINE_WEIGHTS_H

#include "engine/model/model.h"

enum { LLS__MAX_PARTS = 3 };

/* One or several matrices that read the same input, stacked by rows: q, k, v, or gate and up. Matrices of one dtype are
 * fused into one part; others are applied one by one, each into its own columns of the output. */
typedef struct lls__projection {
    int32_t num_parts;
    lls_tensor parts[LLS__MAX_PARTS];  /* [rows, k] */
    int64_t first_row[LLS__MAX_PARTS]; /* column of the output where a part begins */
    int64_t rows;                      /* of all parts */
    const float *bias;                 /* [rows] on the device, or NULL */
} lls__projection;

typedef struct lls__layer {
    lls_tensor attn_norm, ffn_norm; /* [hidden] f32 */
    lls_tensor q_norm, k_norm;      /* [head_dim] f32; ndim 0 when the model has none */
    lls__projection qkv, attn_out, gate_up, down;
} lls__layer;

typedef struct lls__weights {
    lls_tensor embed;        /* [vocab, hidden], as in the file */
    lls_tensor output_norm;  /* [hidden] f32 */
    lls__projection head;    /* [vocab, hidden] */
    lls__layer *layers;      /* [num_layers] */
    float *rope_factors;     /* host, [rotary_dim / 2]; NULL: ones */
    int64_t bytes_per_token; /* matrices and vectors that a decode step reads */
    int64_t total_bytes;     /* on the device */
    lls_ctx *ctx;
    void **slabs; /* device allocations, from which the weights are cut */
    size_t num_slabs, cap_slabs;
    char *slab_next; /* free part of the newest slab */
    size_t slab_left;
} lls__weights;

/* LLS_ERR_MODEL when a tensor is missing or has the wrong shape, naming it. */
lls_status lls__weights_load(const lls_model *model, lls_ctx *ctx, lls__weights **out);
void lls__weights_free(lls__weights *weights);

#endif
