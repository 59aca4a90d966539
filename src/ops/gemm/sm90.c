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
    f16_kk,
    f16_kn,
    f16_mk,
    f16_mn,
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
} families[] = {
    [bf16_kk] = {LLS_BF16, LLS_BF16, false, false, false},
    [bf16_kn] = {LLS_BF16, LLS_BF16, false, true, false},
    [bf16_mk] = {LLS_BF16, LLS_BF16, true, false, false},
    [bf16_mn] = {LLS_BF16, LLS_BF16, true, true, false},
    [f16_kk] = {LLS_F16, LLS_F16, false, false, false},
    [f16_kn] = {LLS_F16, LLS_F16, false, true, false},
    [f16_mk] = {LLS_F16, LLS_F16, true, false, false},
    [f16_mn] = {LLS_F16, LLS_F16, true, true, false},
    [tf32] = {LLS_F32, LLS_F32, false, false, false},
    [i8] = {LLS_I8, LLS_I8, false, false, false},
    [f8_e4m3_e4m3] = {LLS_F8_E4M3, LLS_F8_E4M3, false, false, false},
    [f8p_e4m3_e4m3] = {LLS_F8_E4M3, LLS_F8_E4M3, false, false, true},
    [f8p_e4m3_e5m2] = {LLS_F8_E4M3, LLS_F8_E5M2, false, false, true},
    [f8p_e5m2_e4m3] = {LLS_F8_E5M2, LLS_F8_E4M3, false, false, true},
    [f8p_e5m2_e5m2] = {LLS_F8_E5M2, LLS_F8_E5M2, false, false, true},
};

#define KERNEL(family, tile_m, tile_n) LLS_KERNEL(LLS_SM90_NAME(family, tile_m, tile_n)),
const lls__kernel lls__gemm_sm90_kernels[] = {LLS_SM90_INSTANCES(KERNEL){NULL, NULL}};
#define INSTANCE(family, tile_m, tile_n) {family, {tile_m, tile_n}},
static const struct instance {
    family family;
    int32_t tile[2];
} instances[] = {LLS_SM90_INSTANCES(INSTANCE)}; // in the order of the kernels

static int32_t tiles_of(family f, bool blocks, int32_t tiles[LLS_COUNT(instances)][2]) {
    int32_t count = 0;
    for (int32_t i = 0; i < LLS_COUNT(instances); i++) {
        const int32_t *tile = instances[i].tile;
        if (instances[i].family != f || (blocks && tile[1] != LLS__GEMM_BLOCK)) continue; // one block scale a tile
        tiles[count][0] = tile[0], tiles[count++][1] = tile[1];
    }
    return count;
}

static const lls__kernel *kernel_of(family f, const lls__gemm_config *c) {
    for (int32_t i = 0; i < LLS_COUNT(instances); i++) {
        const struct instance *x = &instances[i];
        if (x->family == f && x->tile[0] == c->tile_m && x->tile[1] == c->tile_n) return &lls__gemm_sm90_kernels[i];
    }
    return NULL;
}

/* ---- The call as TMA and the plan see it --------------------------------------------------------------- */

typedef struct view {
    lls__gemm_problem p; // out's rows contiguous
    family family;
    lls__tma_tensor a, b, out;
    bool tma_store;
    int32_t elems; // of k, a stage
    lls__sm90_shape shape;
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

static bool find_family(lls_dtype a, lls_dtype b, bool a_mn, bool b_mn, bool promoted, family *out) {
    for (int32_t i = 0; i < LLS_COUNT(families); i++) {
        const struct family_row *f = &families[i];
        if (f->a != a || f->b != b || f->a_mn != a_mn || f->b_mn != b_mn || f->promoted != promoted) continue;
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

// NULL, or why the Hopper rungs do not take the product.
static const char *look(const lls__gemm_problem *problem, view *v) {
    *v = (view){.p = *problem};
    lls__gemm_problem *p = &v->p;
    if (p->k == 0) return "needs k above 0";
    if (p->a.pointers || p->b.pointers || p->c.pointers || p->out.pointers) return "takes no pointers";
    if (p->a.dtype == LLS_F32 && !(p->flags & LLS_GEMM_TF32)) return "takes f32 only where tf32 is allowed";
    if (p->out.col != 1 && p->out.row == 1 && !transpose(p)) return "needs contiguous rows of out";
    bool sixteen = lls__elem_size(p->a.dtype) == 2, a_mn, b_mn;
    if (!operand(&p->a, p->a.row, p->a.col, p->m, p->k, p->batch, sixteen, &v->a, &a_mn) ||
        !operand(&p->b, p->b.col, p->b.row, p->n, p->k, p->batch, sixteen, &v->b, &b_mn))
        return sixteen ? "needs operands contiguous along one axis, lines and base aligned to 16 bytes"
                       : "needs operands contiguous along k, lines and base aligned to 16 bytes";
    if (p->offsets && a_mn) return "needs a contiguous along k where rows have groups";
    // Which rows TMA reaches depends on m = 1 and so would the variant.
    if ((p->flags & LLS_GEMM_BATCH_INVARIANT) && !a_mn && p->k * lls__elem_size(p->a.dtype) % 16)
        return "needs k a multiple of 16 bytes to be invariant";
    if (a_mn && (p->flags & LLS_GEMM_BATCH_INVARIANT)) return "needs a contiguous along k to be invariant";
    bool eight = !sixteen && p->a.dtype != LLS_F32, f8 = eight && p->a.dtype != LLS_I8;
    bool blocks = p->scale_a.blocks || p->scale_b.blocks;
    bool promoted = f8 && (blocks || !(p->flags & LLS_GEMM_FAST_ACCUM));
    if (!find_family(p->a.dtype, p->b.dtype, a_mn, b_mn, promoted, &v->family) &&
        !find_family(p->a.dtype, p->b.dtype, a_mn, b_mn, f8, &v->family))
        return "has no instance for these types";
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
    bool invariant = p->flags & LLS_GEMM_BATCH_INVARIANT;
    v->shape = (lls__sm90_shape){
        .m = p->offsets ? (p->m + p->batch - 1) / p->batch : p->m,
        .n = p->n,
        .batch = p->batch,
        .k_steps = (int32_t)k_steps,
        .out_bytes = (int32_t)lls__elem_size(p->out.dtype),
        .grouped = p->offsets != NULL,
        .promoted = families[v->family].promoted,
        .plain = v->tma_store,
        .any_split = !invariant,
        .any_cluster = true,
    };
    return NULL;
}

static void restrict_to(view *v, lls__sm90_rung rung) {
    if (rung < LLS__SM90_SPLIT_K) v->shape.any_split = false;
    if (rung < LLS__SM90_CLUSTER) v->shape.any_cluster = false;
}

static int32_t configs_of(const lls_ctx *ctx, view *v, lls__gemm_config out[LLS__SM90_MAX_CONFIGS]) {
    int32_t tiles[LLS_COUNT(instances)][2];
    bool blocks = v->p.scale_a.blocks || v->p.scale_b.blocks;
    int32_t num_tiles = tiles_of(v->family, blocks, tiles);
    v->shape.num_sms = ctx->num_sms;
    return lls__sm90_configs(&v->shape, (const int32_t(*)[2])tiles, num_tiles, out);
}

const char *lls__gemm_sm90_reject(const lls__gemm_problem *p) {
    view v;
    return look(p, &v);
}

int32_t lls__gemm_sm90_configs(const lls_ctx *ctx, const lls__gemm_problem *p,
                               lls__gemm_config out[LLS__SM90_MAX_CONFIGS]) {
    view v;
    return look(p, &v) ? 0 : configs_of(ctx, &v, out);
}

static lls_status pinned_config(const char *op, const lls_ctx *ctx, view *v, const char *text, lls__gemm_config *out) {
    v->shape.num_sms = ctx->num_sms;
    if (!lls__gemm_config_parse(text, out))
        return lls__fail(LLS_ERR_ARGUMENT,
                         "%s: config is \"%s\", must be like \"tile=128x256 stages=4 cluster=1x1 split=1 raster=8\"",
                         op, text);
    const char *fault = kernel_of(v->family, out) ? lls__sm90_config_fault(&v->shape, out)
                                                  : "there is no such tile for these types and layouts";
    if (!fault && (v->p.scale_a.blocks || v->p.scale_b.blocks) && out->tile_n != LLS__GEMM_BLOCK)
        fault = "block scales need 128 columns a tile";
    return fault ? lls__fail(LLS_ERR_ARGUMENT, "%s: config is \"%s\", which cannot run this call: %s", op, text, fault)
                 : LLS_OK;
}

static lls_status choose(const char *op, const lls_ctx *ctx, view *v, const char *pinned, lls__gemm_config *out) {
    if (pinned) return pinned_config(op, ctx, v, pinned, out);
    const char *tuned = v->shape.any_split ? lls__gemm_tuned(ctx, &v->p) : NULL;
    if (tuned && pinned_config(op, ctx, v, tuned, out) == LLS_OK) return LLS_OK;
    lls__gemm_config all[LLS__SM90_MAX_CONFIGS];
    if (configs_of(ctx, v, all) == 0) return lls__fail(LLS_ERR_UNSUPPORTED, "%s: no configuration runs this call", op);
    *out = all[0];
    return LLS_OK;
}

/* ---- Launch ------------------------------------------------------------------------------------------- */

static int32_t ceil_div(int64_t x, int64_t y) {
    return (int32_t)((x + y - 1) / y);
}

static lls_status encode(view *v, const lls__gemm_config *c, lls__sm90_params *params) {
    const struct family_row *f = &families[v->family];
    v->a.box_cols = f->a_mn ? 64 : v->elems, v->a.box_rows = f->a_mn ? 64 : c->tile_m / c->cluster_n;
    v->b.box_cols = f->b_mn ? 64 : v->elems, v->b.box_rows = f->b_mn ? 64 : c->tile_n / c->cluster_m;
    LLS_TRY(lls__tma_encode(&v->a, &params->a));
    LLS_TRY(lls__tma_encode(&v->b, &params->b));
    if (!v->tma_store) return LLS_OK;
    v->out.box_cols = (int32_t)(128 / lls__elem_size(v->out.dtype)), v->out.box_rows = 64;
    return lls__tma_encode(&v->out, &params->out);
}

lls_status lls__gemm_sm90_launch(const char *op, lls_ctx *ctx, const lls__gemm_problem *problem, const char *pinned,
                                 lls__sm90_rung rung, lls_stream stream) {
    view v;
    lls__gemm_config c;
    const char *why = look(problem, &v);
    if (why) return lls__fail(LLS_ERR_INTERNAL, "%s: %s", op, why);
    restrict_to(&v, rung);
    LLS_TRY(choose(op, ctx, &v, pinned, &c));
    lls__sm90_params params = {
        .p = v.p,
        .a_batched = v.p.a.batch != 0,
        .b_batched = v.p.b.batch != 0,
        .tma_store = v.tma_store,
        .units_m = ceil_div(ceil_div(v.p.m, c.tile_m), c.cluster_m),
        .units_n = ceil_div(ceil_div(v.p.n, c.tile_n), c.cluster_n),
        .k_steps = v.shape.k_steps,
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
    // Larger clusters do not all run at a time on every device: a block each, none that waits for a second turn.
    int32_t cluster = c.cluster_m * c.cluster_n * c.split, slots = ctx->num_sms / cluster;
    bool all = cluster > 2 && !v.shape.grouped && units <= 2 * slots;
    int64_t clusters = v.shape.grouped ? slots : all || units < slots ? units : slots;
    lls__grid shape = {
        .grid = {(uint32_t)(clusters * cluster), 1, 1},
        .block = {LLS__SM90_THREADS(c.tile_m), 1, 1},
        .shared_bytes = (uint32_t)lls__sm90_shared_bytes(&c),
        .early = true,
    };
    if (cluster > 1) shape.cluster[0] = (uint32_t)cluster, shape.cluster[1] = shape.cluster[2] = 1;
    return lls__launch(ctx, kernel_of(v.family, &c), &shape, (void *[]){&params}, stream);
}
