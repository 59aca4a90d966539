/* Packed weights: prepare the activations once, then give units of (weight tiles x token tiles) to the threads. */
#include "core/tensor.h"
#include "ops/linear/linear_cpu.h"

/* How the work is cut. A unit is tiles_per_unit tiles of 16 weight rows times tokens_per_unit tokens; it walks its
 * token tiles and, for each, its weight tiles. The activations of a token tile then stay in L1 (9 to 40 KB) and the
 * weights of the unit in L2. */
typedef struct plan {
    int64_t tiles_per_unit, tokens_per_unit;
} plan;

enum { UNIT_WEIGHT_BYTES = 256 * 1024, MIN_TILES = 4, UNITS_PER_THREAD = 4 };

static plan make_plan(int64_t m, int64_t n, int64_t tile_bytes, int threads) {
    int64_t tiles = lls__tile_count(n);
    if (m < MAX_TOKENS) return (plan){2, m}; // one pass over the weights: each pair of tiles is read from memory once
    int64_t units = (int64_t)threads * UNITS_PER_THREAD;
    int64_t fit = UNIT_WEIGHT_BYTES / (tile_bytes + 1), even = tiles / units;
    plan p = {fit < even ? fit : even, m};
    if (p.tiles_per_unit < MIN_TILES) p.tiles_per_unit = MIN_TILES;
    int64_t tile_units = (tiles + p.tiles_per_unit - 1) / p.tiles_per_unit;
    if (tile_units < units) { // few rows: cut the tokens as well
        int64_t cuts = (units + tile_units - 1) / tile_units;
        p.tokens_per_unit = ((m + cuts - 1) / cuts + MAX_TOKENS - 1) / MAX_TOKENS * MAX_TOKENS;
    }
    return p;
}

typedef struct job {
    const lls_linear_args *args;
    const lls__tile_math *math;
    plan plan;
    int64_t m, n, k, tile_bytes, tile_units;
    int64_t act_row_bytes;
    uint8_t *act; // token tiles one after the other: the tile of token t begins at t * act_row_bytes
} job;

static void prepare(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    for (int64_t m = begin; m < end;) {
        int width = lls__token_width(j->m - m);
        j->math->prepare(j->args, m, width, j->act + m * j->act_row_bytes);
        m += width;
    }
}

// Rounds products [tokens][16] of weight rows n0 .. n0+15 to out, with the bias.
static void store(const job *j, const float *product, int64_t m, int tokens, int64_t n0) {
    const lls_tensor *out = j->args->out, *bias = j->args->bias;
    for (int lane = 0; lane < LLS__TILE_ROWS; lane += LLS_VF) {
        int64_t n = n0 + lane, left = j->n - n;
        if (left <= 0) return;
        bool whole = left >= LLS_VF;
        vf b = vf_set1(0);
        if (bias) b = whole ? vf_load(bias->dtype, bias->data, n) : vf_load_n(bias->dtype, bias->data, n, left);
        for (int t = 0; t < tokens; t++) {
            vf v = vf_load_f32(product + t * LLS__TILE_ROWS + lane);
            if (bias) v += b; // without one, -0 stays -0
            int64_t at = (m + t) * out->stride[0] + n;
            if (whole) vf_store(out->dtype, out->data, at, v);
            else vf_store_n(out->dtype, out->data, at, left, v);
        }
    }
}

static void multiply(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    const uint8_t *weight = j->args->weight->data;
    int64_t tiles = lls__tile_count(j->n);
    float product[2 * MAX_TOKENS * LLS__TILE_ROWS];
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t first = unit % j->tile_units * j->plan.tiles_per_unit, last = first + j->plan.tiles_per_unit;
        int64_t m = unit / j->tile_units * j->plan.tokens_per_unit, m_end = m + j->plan.tokens_per_unit;
        if (last > tiles) last = tiles;
        if (m_end > j->m) m_end = j->m;
        while (m < m_end) {
            int width = lls__token_width(j->m - m), together;
            for (int64_t tile = first; tile < last; tile += together) {
                together = width == 1 && tile + 1 < last ? 2 : 1;
                lls__tile_kernel kernel = j->math->kernel[together == 2 ? PAIR_KERNEL : __builtin_ctz((unsigned)width)];
                kernel(weight + tile * j->tile_bytes, j->tile_bytes, j->k, j->act + m * j->act_row_bytes, product);
                for (int i = 0; i < together; i++) {
                    store(j, product + i * width * LLS__TILE_ROWS, m, width, (tile + i) * LLS__TILE_ROWS);
                }
            }
            m += width;
        }
    }
}

lls_status LLS_CPU(lls__linear_packed)(lls_ctx *ctx, const lls_linear_args *args) {
    lls_dtype weight = args->weight->dtype;
    bool i8 = args->compute == LLS_COMPUTE_DEFAULT && lls__is_block_type(weight);
    job j = {
        .args = args,
        .math = i8 ? LLS_CPU(lls__tile_math_i8)(weight) : LLS_CPU(lls__tile_math_f32)(weight),
        .m = args->x->shape[0],
        .n = args->weight->shape[0],
        .k = args->weight->shape[1],
    };
    j.tile_bytes = lls__tile_bytes(weight, j.k);
    j.act_row_bytes = j.k / j.math->act_elems * j.math->act_bytes;
    j.plan = make_plan(j.m, j.n, j.tile_bytes, lls__pool_threads(ctx->pool));
    j.tile_units = (lls__tile_count(j.n) + j.plan.tiles_per_unit - 1) / j.plan.tiles_per_unit;
    void *workspace;
    lls_status status = lls__ctx_workspace(ctx, "linear", (size_t)(j.m * j.act_row_bytes), &workspace);
    if (status) return status;
    j.act = workspace;
    lls__parallel(ctx, j.m, 16, prepare, &j); // a multiple of every token width
    int64_t token_units = (j.m + j.plan.tokens_per_unit - 1) / j.plan.tokens_per_unit;
    lls__parallel(ctx, j.tile_units * token_units, 1, multiply, &j);
    return LLS_OK;
}
