/* The host side of the Hopper rungs 08 to 10: which calls they take, the configuration, the descriptors, the launch. */
#include "ops/gemm/sm90.h"

#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/launch.h"
#include "dispatch/tma.h"
#include "ops/gemm/gemm_kernels.h"
#include "ops/gemm/sm90_plan.h"
#include "ops/gemm/tune.h"

/* ---- Instances --------------------------------------------------------------------------------------- */

typedef enum family { // the order of families[]
    bf16_kk,
    bf16_kn,
    bf16_mk,
    bf16_mn,
    bf16_plain,
    bf16_swap,
    f16_kk,
    f16_kn,
    f16_mk,
    f16_mn,
    f16_plain,
    f16_swap,
    tf32,
    i8,
    f8_e4m3_e4m3,
    f8p_e4m3_e4m3,
    f8p_e4m3_e5m2,
    f8p_e5m2_e4m3,
    f8p_e5m2_e5m2
} family;

static const struct family_row {
    lls_dtype a, b;
    bool a_mn, b_mn, promoted;
    enum { any, plain, swapped } use; // as in sm90_family.cuh
} families[] = {
    [bf16_kk] = {LLS_BF16, LLS_BF16, false, false, false, any},
    [bf16_kn] = {LLS_BF16, LLS_BF16, false, true, false, any},
    [bf16_mk] = {LLS_BF16, LLS_BF16, true, false, false, any},
    [bf16_mn] = {LLS_BF16, LLS_BF16, true, true, false, any},
    [bf16_plain] = {LLS_BF16, LLS_BF16, .use = plain},
    [bf16_swap] = {LLS_BF16, LLS_BF16, .use = swapped},
    [f16_kk] = {LLS_F16, LLS_F16, false, false, false, any},
    [f16_kn] = {LLS_F16, LLS_F16, false, true, false, any},
    [f16_mk] = {LLS_F16, LLS_F16, true, false, false, any},
    [f16_mn] = {LLS_F16, LLS_F16, true, true, false, any},
    [f16_plain] = {LLS_F16, LLS_F16, .use = plain},
    [f16_swap] = {LLS_F16, LLS_F16, .use = swapped},
    [tf32] = {LLS_F32, LLS_F32, false, false, false, any},
    [i8] = {LLS_I8, LLS_I8, false, false, false, any},
    [f8_e4m3_e4m3] = {LLS_F8_E4M3, LLS_F8_E4M3, false, false, false, any},
    [f8p_e4m3_e4m3] = {LLS_F8_E4M3, LLS_F8_E4M3, false, false, true, any},
    [f8p_e4m3_e5m2] = {LLS_F8_E4M3, LLS_F8_E5M2, false, false, true, any},
    [f8p_e5m2_e4m3] = {LLS_F8_E5M2, LLS_F8_E4M3, false, false, true, any},
    [f8p_e5m2_e5m2] = {LLS_F8_E5M2, LLS_F8_E5M2, false, false, true, any},
};

#define KERNEL(family, tile_m, tile_n) LLS_KERNEL(LLS_SM90_NAME(family, tile_m, tile_n)),
const lls__kernel lls__gemm_sm90_kernels[] = {LLS_SM90_INSTANCES(KERNEL){NULL, NULL}};
#define FAMILY(family, tile_m, tile_n) family,
#define TILE(family, tile_m, tile_n) {tile_m, tile_n},
// In the order of the kernels; the tiles of a family are neighbours.
static const family families_of[] = {LLS_SM90_INSTANCES(FAMILY)};
static const int32_t tiles[][2] = {LLS_SM90_INSTANCES(TILE)};

static void tiles_of(family f, lls__sm90_shape *s) {
    int32_t first = 0, count = 0;
    while (families_of[first] != f) first++;
    while (first + count < LLS_COUNT(tiles) && families_of[first + count] == f) count++;
    s->tiles = tiles + first, s->num_tiles = count;
}

/* ---- The call as TMA and the plan see it --------------------------------------------------------------- */

enum { MOST_WAYS = 3 };
typedef struct view {
    lls__gemm_problem p; // out's rows contiguous
    lls__tma_tensor a, b, out;
    bool a_mn, b_mn, promoted, tma_store;
    int32_t elems;                   // of k, a stage
    lls__sm90_shape ways[MOST_WAYS]; // each use of the types and layouts that there are tiles for
    int32_t num_ways;
} view;

// out^T = b^T a^T, for an out whose columns are contiguous. False when a vector along its rows forbids it.
static bool transpose(lls__gemm_problem *p) {
    if (p->bias.data || p->gated || p->offsets || p->scale_a.blocks || p->scale_b.blocks) return false;
    lls__gemm_matrix a = p->a, *all[] = {&p->a, &p->b, &p->c, &p->out, &p->residual};
    lls__gemm_scale scale_a = p->scale_a, scale_out = p->scale_out;
    p->a = p->b, p->b = a;
    p->scale_a = p->scale_b, p->scale_b = scale_a;
    p->scale_out = p->scale_out_col, p->scale_out_col = scale_out;
    for (int i = 0; i < LLS_COUNT(all); i++) {
        int64_t row = all[i]->row;
        all[i]->row = all[i]->col, all[i]->col = row;
    }
    int64_t m = p->m;
    p->m = p->n, p->n = m;
    return true;
}

// An operand whose lines (rows of a, columns of b) are `line` apart and whose k is `k` apart: along k, or along its lines.
static bool operand(const lls__gemm_matrix *x, int64_t line, int64_t k, int64_t lines, int64_t depth_k, int64_t batch,
                    bool mn_allowed, lls__tma_tensor *out, bool *mn_major) {
    *out =
        (lls__tma_tensor){.data = x->data, .dtype = x->dtype, .depth = x->batch ? batch : 1, .depth_stride = x->batch};
    out->cols = depth_k, out->rows = lines, out->row_stride = line;
    *mn_major = false;
    if (k == 1 && lls__tma_reaches(out)) return true;
    out->cols = lines, out->rows = depth_k, out->row_stride = k;
    *mn_major = true;
    return mn_allowed && line == 1 && lls__tma_reaches(out);
}

static bool is_scalar(const lls__gemm_scale *s) {
    return !s->data || (s->batch == 0 && s->line == 0 && !s->blocks);
}

static bool find_family(lls_dtype a, lls_dtype b, bool a_mn, bool b_mn, bool promoted, int use, family *out) {
    for (int32_t i = 0; i < LLS_COUNT(families); i++) {
        const struct family_row *f = &families[i];
        if (f->a != a || f->b != b || f->a_mn != a_mn || f->b_mn != b_mn || f->promoted != promoted ||
            f->use != (unsigned)use)
            continue;
        *out = (family)i;
        return true;
    }
    return false;
}

// Whether out may leave by TMA, which writes whole pieces of 16 bytes.
static bool can_store(const view *v) {
    const lls__gemm_problem *p = &v->p;
    lls_dtype d = p->out.dtype;
    bool type = p->a.dtype == LLS_I8 ? d == LLS_I32 : lls__is_float(d);
    return type && lls__gemm_is_plain(p) && is_scalar(&p->scale_a) && is_scalar(&p->scale_b) && p->out.col == 1 &&
           p->n * lls__elem_size(d) % 16 == 0 && lls__tma_reaches(&v->out);
}

// Lines of L2 that 128 bytes of a row touch.
static int32_t lines_of(const lls__tma_tensor *t) {
    return t->rows > 1 && t->row_stride * lls__elem_size(t->dtype) % 128 ? 2 : 1;
}

static lls__sm90_shape shape_of(const view *v, family f, int32_t k_steps) {
    const lls__gemm_problem *p = &v->p;
    lls__sm90_shape s;
    memset(&s, 0, sizeof s); // padding too
    s.swap = families[f].use == swapped;
    s.m = s.swap ? p->n : p->offsets ? (p->m + p->batch - 1) / p->batch : p->m;
    s.n = s.swap ? p->m : p->n;
    s.batch = p->batch, s.k_steps = k_steps, s.out_bytes = (int32_t)lls__elem_size(p->out.dtype);
    s.a_lines = lines_of(s.swap ? &v->b : &v->a), s.b_lines = lines_of(s.swap ? &v->a : &v->b);
    s.a_granule = v->a_mn ? 64 : 8, s.b_granule = v->b_mn ? 64 : 8;
    s.only_n = p->scale_a.blocks || p->scale_b.blocks ? LLS__GEMM_BLOCK : 0; // one block scale a tile
    s.grouped = p->offsets != NULL, s.promoted = v->promoted, s.plain = v->tma_store;
    s.any_split = families[f].use == any && !(p->flags & LLS_GEMM_BATCH_INVARIANT), s.any_cluster = true;
    tiles_of(f, &s);
    return s;
}

static void add_way(view *v, int use, int32_t k_steps) {
    family f;
    if (!find_family(v->p.a.dtype, v->p.b.dtype, v->a_mn, v->b_mn, v->promoted, use, &f)) return;
    v->ways[v->num_ways++] = shape_of(v, f, k_steps);
}

// NULL, or why the Hopper rungs do not take the product.
static const char *look(const lls__gemm_problem *problem, view *v) {
    *v = (view){.p = *problem};
    lls__gemm_problem *p = &v->p;
    if (p->k == 0) return "needs k above 0";
    if (p->a.pointers || p->b.pointers || p->c.pointers || p->out.pointers) return "takes no pointers";
    if (p->a.dtype == LLS_F32 && !(p->flags & LLS_GEMM_TF32)) return "takes f32 only where tf32 is allowed";
    if (p->out.col != 1 && p->out.row == 1 && !transpose(p)) return "needs contiguous rows of out";
    bool sixteen = lls__elem_size(p->a.dtype) == 2;
    if (!operand(&p->a, p->a.row, p->a.col, p->m, p->k, p->batch, sixteen, &v->a, &v->a_mn) ||
        !operand(&p->b, p->b.col, p->b.row, p->n, p->k, p->batch, sixteen, &v->b, &v->b_mn))
        return sixteen ? "needs operands contiguous along one axis, lines and base aligned to 16 bytes"
                       : "needs operands contiguous along k, lines and base aligned to 16 bytes";
    if (p->offsets && v->a_mn) return "needs a contiguous along k where rows have groups";
    // Which rows TMA reaches depends on m = 1 and so would the variant.
    bool invariant = p->flags & LLS_GEMM_BATCH_INVARIANT;
    if (invariant && !v->a_mn && p->k * lls__elem_size(p->a.dtype) % 16)
        return "needs k a multiple of 16 bytes to be invariant";
    if (v->a_mn && invariant) return "needs a contiguous along k to be invariant";
    bool f8 = p->a.dtype == LLS_F8_E4M3 || p->a.dtype == LLS_F8_E5M2;
    v->promoted = f8 && (p->scale_a.blocks || p->scale_b.blocks || !(p->flags & LLS_GEMM_FAST_ACCUM));
    family f; // formats without an instance for fast sums take exact ones
    if (!find_family(p->a.dtype, p->b.dtype, v->a_mn, v->b_mn, v->promoted, any, &f)) v->promoted = f8;
    if (p->offsets && p->batch > LLS__SM90_MAX_GROUPS) return "takes 512 groups at most";
    v->out = (lls__tma_tensor){.data = p->out.data,
                               .dtype = p->out.dtype,
                               .depth = p->out.batch ? p->batch : 1,
                               .rows = p->m,
                               .cols = p->n,
                               .depth_stride = p->out.batch,
                               .row_stride = p->out.row};
    v->tma_store = can_store(v);
    v->elems = (int32_t)(LLS__SM90_STAGE_ROW / lls__elem_size(p->a.dtype));
    int64_t k_steps = (p->k + v->elems - 1) / v->elems;
    if (p->m > INT32_MAX / 2 || p->n > INT32_MAX / 2 || k_steps > INT32_MAX / 256) return "takes sizes below 2^30";
    if (v->tma_store && !p->offsets) {
        add_way(v, plain, (int32_t)k_steps);
        if (!invariant && lls__elem_size(p->out.dtype) == 2) add_way(v, swapped, (int32_t)k_steps);
    }
    int32_t before = v->num_ways;
    add_way(v, any, (int32_t)k_steps);
    return v->num_ways > before ? NULL : "has no instance for these types";
}

static void restrict_to(const lls_ctx *ctx, view *v, lls__sm90_rung rung) {
    for (int32_t w = 0; w < v->num_ways; w++) {
        v->ways[w].num_sms = ctx->num_sms;
        if (rung < LLS__SM90_SPLIT_K) v->ways[w].any_split = false;
        if (rung < LLS__SM90_CLUSTER) v->ways[w].any_cluster = false;
    }
}

const char *lls__gemm_sm90_reject(const lls__gemm_problem *p) {
    view v;
    return look(p, &v);
}

int32_t lls__gemm_sm90_configs(const lls_ctx *ctx, const lls__gemm_problem *p,
                               lls__gemm_config out[LLS__SM90_MAX_CONFIGS]) {
    view v;
    if (look(p, &v)) return 0;
    restrict_to(ctx, &v, LLS__SM90_SPLIT_K);
    return lls__sm90_configs(v.ways, v.num_ways, out);
}

// The instance that runs a configuration, or NULL and why there is none.
static const lls__kernel *kernel_of(const view *v, const lls__gemm_config *c, const lls__sm90_shape **way,
                                    const char **fault) {
    *fault = "there is no such tile for this call";
    for (int32_t w = 0; w < v->num_ways; w++) {
        const lls__sm90_shape *s = &v->ways[w];
        for (int32_t i = 0; i < s->num_tiles; i++) {
            if (s->tiles[i][0] != c->tile_m || s->tiles[i][1] != c->tile_n || s->swap != c->swap) continue;
            *fault = lls__sm90_config_fault(s, c);
            if (*fault) continue; // another way may have the tile too
            *way = s;
            return &lls__gemm_sm90_kernels[s->tiles + i - tiles];
        }
    }
    return NULL;
}

// The model's choice is remembered: it takes longer than the launch.
static bool best(const view *v, lls__gemm_config *out) {
    static _Thread_local struct {
        lls__sm90_shape ways[MOST_WAYS];
        int32_t num_ways;
        lls__gemm_config config;
    } seen[64];
    const lls__sm90_shape *s = &v->ways[0];
    const size_t bytes = (size_t)v->num_ways * sizeof *s;
    uint64_t slot = ((uint64_t)s->m * 31 + (uint64_t)s->n) * 31 + (uint64_t)s->k_steps;
    slot = (slot ^ slot >> 7 ^ slot >> 14) % LLS_COUNT(seen);
    if (seen[slot].num_ways != v->num_ways || memcmp(seen[slot].ways, v->ways, bytes)) {
        if (!lls__sm90_best(v->ways, v->num_ways, out)) return false;
        memcpy(seen[slot].ways, v->ways, bytes);
        seen[slot].num_ways = v->num_ways, seen[slot].config = *out;
    }
    *out = seen[slot].config;
    return true;
}

static lls_status choose(const char *op, const lls_ctx *ctx, view *v, const char *pinned, lls__gemm_config *out,
                         const lls__sm90_shape **way, const lls__kernel **kernel) {
    const char *fault, *tuned = NULL;
    if (!pinned && !(v->p.flags & LLS_GEMM_BATCH_INVARIANT)) tuned = lls__gemm_tuned(ctx, &v->p);
    if (pinned && !lls__gemm_config_parse(pinned, out))
        return lls__fail(LLS_ERR_ARGUMENT,
                         "%s: config is \"%s\", must be like \"tile=128x256 stages=4 cluster=1x1 split=1 raster=8\"",
                         op, pinned);
    bool given = pinned || (tuned && lls__gemm_config_parse(tuned, out) && kernel_of(v, out, way, &fault));
    if (!given && !best(v, out)) return lls__fail(LLS_ERR_UNSUPPORTED, "%s: no configuration runs this call", op);
    *kernel = kernel_of(v, out, way, &fault);
    if (*kernel) return LLS_OK;
    return lls__fail(LLS_ERR_ARGUMENT, "%s: config is \"%s\", which cannot run this call: %s", op, pinned, fault);
}

/* ---- Launch ------------------------------------------------------------------------------------------- */

static int32_t ceil_div(int64_t x, int64_t y) {
    return (int32_t)((x + y - 1) / y);
}

// Makes v, and the maps of params, of out^T = b^T a^T. The map of out stays.
static void swap(view *v) {
    transpose(&v->p);
    lls__tma_tensor a = v->a;
    v->a = v->b, v->b = a;
}

// How many of an operand's `lines` in a tile one of `sharers` loads, as boxes of as many.
static int32_t set_box(lls__tma_tensor *t, bool mn_major, int32_t elems, int32_t lines, int32_t sharers) {
    int32_t count = lines / sharers;
    t->box_cols = mn_major ? 64 : elems;
    t->box_rows = mn_major ? 64 : count > 256 ? count / 2 : count;
    return count;
}

static lls_status encode(view *v, const lls__gemm_config *c, lls__sm90_params *params) {
    params->a_lines = set_box(&v->a, v->a_mn, v->elems, c->tile_m, c->cluster_n);
    params->b_lines = set_box(&v->b, v->b_mn, v->elems, c->tile_n, c->cluster_m);
    LLS_TRY(lls__tma_encode(&v->a, &params->a));
    LLS_TRY(lls__tma_encode(&v->b, &params->b));
    if (!v->tma_store) return LLS_OK;
    int32_t panel_cols = (int32_t)(128 / lls__elem_size(v->out.dtype)), rest = c->swap ? 0 : c->tile_n % panel_cols;
    v->out.box_cols = panel_cols, v->out.box_rows = c->swap ? LLS__SM90_SWAPPED_ROWS : 64;
    LLS_TRY(lls__tma_encode(&v->out, &params->out));
    if (rest == 0) return LLS_OK;
    v->out.box_cols = rest;
    return lls__tma_encode(&v->out, &params->out_rest);
}

lls_status lls__gemm_sm90_launch(const char *op, lls_ctx *ctx, const lls__gemm_problem *problem, const char *pinned,
                                 lls__sm90_rung rung, lls_stream stream) {
    view v;
    lls__gemm_config c;
    const lls__sm90_shape *way;
    const lls__kernel *kernel;
    const char *why = look(problem, &v);
    if (why) return lls__fail(LLS_ERR_INTERNAL, "%s: %s", op, why);
    restrict_to(ctx, &v, rung);
    LLS_TRY(choose(op, ctx, &v, pinned, &c, &way, &kernel));
    if (c.swap) swap(&v);
    lls__sm90_params params = {
        .p = v.p,
        .a_batched = v.p.a.batch != 0,
        .b_batched = v.p.b.batch != 0,
        .tma_store = v.tma_store,
        .units_m = ceil_div(ceil_div(v.p.m, c.tile_m), c.cluster_m),
        .units_n = ceil_div(ceil_div(v.p.n, c.tile_n), c.cluster_n),
        .k_steps = way->k_steps,
        .stages = c.stages,
        .cluster_m = c.cluster_m,
        .cluster_n = c.cluster_n,
        .split = c.split,
        .raster = c.raster,
    };
    int64_t units = (int64_t)params.units_m * params.units_n * v.p.batch;
    if (units > INT32_MAX)
        return lls__fail(LLS_ERR_UNSUPPORTED, "%s: out has %lld tiles, must be below 2^31", op, (long long)units);
    params.units = (int32_t)units;
    LLS_TRY(encode(&v, &c, &params));
    int32_t cluster = c.cluster_m * c.cluster_n * c.split, slots = lls__sm90_slots(way, &c);
    int64_t clusters = v.p.offsets || units > slots ? slots : units;
    lls__grid shape = {
        .grid = {(uint32_t)(clusters * cluster), 1, 1},
        .block = {LLS__SM90_THREADS(c.tile_m), 1, 1},
        .shared_bytes = (uint32_t)lls__sm90_shared_bytes(&c, v.p.offsets != NULL),
        .early = true,
    };
    if (cluster > 1) shape.cluster[0] = (uint32_t)cluster, shape.cluster[1] = shape.cluster[2] = 1;
    return lls__launch(ctx, kernel, &shape, (void *[]){&params}, stream);
}
