#include "ops/gemm/sm90_plan.h"

#include <stdlib.h>

/* As in sm90.h, which hosts without a CUDA toolkit cannot read. */
enum {
    STAGE_ROW = 128,
    PANEL_BYTES = 64 * 128,
    MAX_STAGES = 16,
    TABLE_BYTES = 2 * MAX_STAGES * 8 + 513 * 4 + 4,
    SHARED_BYTES = 227 * 1024 /* that a block may have */
};

static int64_t ceil_div(int64_t x, int64_t y) {
    return (x + y - 1) / y;
}

static double at_least(double x, double y) {
    return x > y ? x : y;
}

static int32_t stage_bytes(const lls__gemm_config *c) {
    return (c->tile_m + c->tile_n) * STAGE_ROW;
}

static int32_t warpgroups(const lls__gemm_config *c) {
    return c->tile_m == 64 ? 1 : 2;
}

int32_t lls__sm90_shared_bytes(const lls__gemm_config *c) {
    return c->stages * stage_bytes(c) + warpgroups(c) * 2 * PANEL_BYTES + TABLE_BYTES;
}

static int32_t most_stages(const lls__gemm_config *c) {
    lls__gemm_config none = *c;
    none.stages = 0;
    int32_t stages = (SHARED_BYTES - lls__sm90_shared_bytes(&none)) / stage_bytes(c);
    return stages < MAX_STAGES ? stages : MAX_STAGES;
}

const char *lls__sm90_config_fault(const lls__sm90_shape *s, const lls__gemm_config *c) {
    if (c->cluster_m < 1 || c->cluster_n < 1 || c->split < 1 || c->raster < 1 || c->stages < 1)
        return "stages, cluster, split and raster must be 1 or more";
    if (c->stages > most_stages(c)) return "its stages do not fit into shared memory";
    if (c->stages * stage_bytes(c) < c->tile_m * c->tile_n * 4) return "its stages cannot hold the sums of a tile";
    int32_t cluster = c->cluster_m * c->cluster_n;
    if (cluster > 4 || (c->tile_m / 64) % c->cluster_n || (c->tile_n / 64) % c->cluster_m)
        return "its tile does not divide among a cluster of at most 4";
    if (c->split > 1 && cluster > 1) return "a split tile takes the cluster for itself";
    if (c->split > 8 || (c->split & (c->split - 1)) || c->tile_n % (32 * c->split))
        return "its split must be 1, 2, 4 or 8 and divide its columns into parts of 32";
    if (c->split > s->k_steps) return "its split is more than k has stages";
    if (c->split > 1 && !s->any_split) return "this call takes no split";
    if (cluster > 1 && !s->any_cluster) return "this call takes no cluster";
    if (s->grouped && cluster > 1) return "grouped products take no cluster";
    return NULL;
}

/* The model, fitted to an H200. A multiprocessor multiplies 64 x 8 x 128 bytes of k in 16 cycles and takes in 64 bytes a
 * cycle, shared or not; all together take no more from L2 than it gives, and no more from memory. The loading thread needs
 * some time for a stage however small. What a tile costs besides its stages: filling the ring, and the way out. */
double lls__sm90_cycles(const lls__sm90_shape *s, const lls__gemm_config *c) {
    const double l2_bytes_a_cycle = 8300, memory_bytes_a_cycle = 2100, block_bytes_a_cycle = 63, least_step = 300,
                 out_bytes_a_cycle = 32, fill = 2500, exchange = 20000, sharing = 1.02;
    int32_t cluster = c->cluster_m * c->cluster_n;
    int64_t tiles_m = ceil_div(ceil_div(s->m, c->tile_m), c->cluster_m) * c->cluster_m,
            tiles_n = ceil_div(ceil_div(s->n, c->tile_n), c->cluster_n) * c->cluster_n;
    int64_t blocks = tiles_m * tiles_n * s->batch * c->split;
    int64_t slots = s->num_sms / (cluster * c->split) * (cluster * c->split);
    if (cluster * c->split > 2) slots = slots * 15 / 16; // clusters do not fill every group of multiprocessors
    double waves = (double)ceil_div(blocks, slots), busy = blocks < slots ? (double)blocks : (double)slots;
    double steps = (double)ceil_div(s->k_steps, c->split);

    // The more a tile loads for what it multiplies, the sooner power limits the clock.
    double multiply = c->tile_m / 64.0 * c->tile_n / 8.0 * 16 * (s->promoted ? 1.15 : 1.0);
    multiply *= 0.82 + 20.0 * (1.0 / c->tile_m + 1.0 / c->tile_n) + (c->tile_m > c->tile_n ? 0.02 : 0);
    double taken_in = (double)(c->tile_m + c->tile_n) * STAGE_ROW / block_bytes_a_cycle;
    double from_l2 = ((double)c->tile_m / c->cluster_n + (double)c->tile_n / c->cluster_m) * STAGE_ROW * busy /
                     l2_bytes_a_cycle;
    double step = at_least(at_least(multiply, taken_in), at_least(from_l2, least_step));
    if (cluster > 1) step *= sharing;                                           // blocks wait for each other
    if (c->tile_m < s->m && c->tile_m == 64 && c->cluster_m == 1) step *= 1.03; // b comes from L2 more often

    double out = (double)c->tile_m * c->tile_n * s->out_bytes / out_bytes_a_cycle * (s->plain ? 1 : 2);
    if (c->split > 1) out = exchange + 2 * out / c->split;
    double unique = ((double)s->m + (double)s->n) * (double)s->batch * s->k_steps * STAGE_ROW +
                    (double)s->m * (double)s->n * (double)s->batch * s->out_bytes;
    double work = waves * (steps * step + out), memory = unique / memory_bytes_a_cycle;
    return fill + at_least(work, memory) + 0.1 * (work + memory); // neither hides the other entirely
}

static int64_t min64(int64_t x, int64_t y) {
    return x < y ? x : y;
}

// Rows of tiles walked together: a wave of tiles then covers about as many rows as columns of out.
static int32_t raster_of(const lls__sm90_shape *s, const lls__gemm_config *c) {
    int64_t units_m = ceil_div(ceil_div(s->m, c->tile_m), c->cluster_m), best = 1;
    double least = 1e300;
    for (int64_t r = 1; r <= 32; r *= 2) {
        double units = (double)s->num_sms / (c->cluster_m * c->cluster_n * c->split), rows = (double)min64(r, units_m);
        double traffic = rows * c->tile_m * c->cluster_m + units / rows * c->tile_n * c->cluster_n;
        if (traffic < least) least = traffic, best = r;
    }
    return (int32_t)best;
}

typedef struct ranked {
    lls__gemm_config config;
    double cycles;
} ranked;

static int by_cycles(const void *x, const void *y) {
    double a = ((const ranked *)x)->cycles, b = ((const ranked *)y)->cycles;
    return (a > b) - (a < b);
}

int32_t lls__sm90_configs(const lls__sm90_shape *s, const int32_t (*tiles)[2], int32_t num_tiles,
                          lls__gemm_config out[LLS__SM90_MAX_CONFIGS]) {
    static const int32_t clusters[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 1, 4}, {1, 1, 8}};
    ranked all[LLS__SM90_MAX_CONFIGS];
    int32_t count = 0;
    for (int32_t t = 0; t < num_tiles; t++) {
        for (size_t i = 0; i < sizeof clusters / sizeof *clusters && count < LLS__SM90_MAX_CONFIGS; i++) {
            lls__gemm_config c = {.tile_m = tiles[t][0],
                                  .tile_n = tiles[t][1],
                                  .cluster_m = clusters[i][0],
                                  .cluster_n = clusters[i][1],
                                  .split = clusters[i][2]};
            c.stages = most_stages(&c), c.raster = raster_of(s, &c);
            if (lls__sm90_config_fault(s, &c)) continue;
            all[count++] = (ranked){c, lls__sm90_cycles(s, &c)};
        }
    }
    qsort(all, (size_t)count, sizeof *all, by_cycles);
    for (int32_t i = 0; i < count; i++) out[i] = all[i].config;
    return count;
}
