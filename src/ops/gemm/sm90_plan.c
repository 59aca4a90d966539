#include "ops/gemm/sm90_plan.h"

#include <math.h>
#include <stdlib.h>

/* As in sm90.h, which hosts without a CUDA toolkit cannot read. */
enum {
    STAGE_ROW = 128,
    PANEL_BYTES = 64 * 128,
    MAX_STAGES = 16,
    BARRIER_BYTES = 2 * MAX_STAGES * 8,
    TABLE_BYTES = 513 * 4 + 4,
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
    return c->tile_m == 64 ? 1 : c->tile_m == 192 ? 3 : 2;
}

static int32_t panels(const lls__gemm_config *c) {
    return c->tile_m == 192 ? 1 : 2;
}

int32_t lls__sm90_shared_bytes(const lls__gemm_config *c, bool grouped) {
    return c->stages * stage_bytes(c) + warpgroups(c) * panels(c) * PANEL_BYTES + BARRIER_BYTES +
           (grouped ? TABLE_BYTES : 0);
}

int32_t lls__sm90_slots(const lls__sm90_shape *s, const lls__gemm_config *c) {
    int32_t cluster = c->cluster_m * c->cluster_n * c->split;
    int32_t slots = s->num_sms / cluster;
    return cluster > 2 ? slots * 15 / 16 : slots; // they do not fill every group of multiprocessors
}

static int32_t most_stages(const lls__sm90_shape *s, const lls__gemm_config *c) {
    lls__gemm_config none = *c;
    none.stages = 0;
    int32_t stages = (SHARED_BYTES - lls__sm90_shared_bytes(&none, s->grouped)) / stage_bytes(c);
    return stages < MAX_STAGES ? stages : MAX_STAGES;
}

const char *lls__sm90_config_fault(const lls__sm90_shape *s, const lls__gemm_config *c) {
    if (c->cluster_m < 1 || c->cluster_n < 1 || c->split < 1 || c->raster < 1 || c->stages < 1)
        return "stages, cluster, split and raster must be 1 or more";
    if (c->stages > most_stages(s, c)) return "its stages do not fit into shared memory";
    if (c->swap != s->swap) return "it is the other way around";
    if (s->only_n && c->tile_n != s->only_n) return "block scales need 128 columns a tile";
    int32_t cluster = c->cluster_m * c->cluster_n;
    if (cluster > 8 || c->tile_m % (s->a_granule * c->cluster_n) || c->tile_n % (s->b_granule * c->cluster_m))
        return "its tile does not divide among a cluster of at most 8";
    if (c->split > 1 && cluster > 1) return "a split tile takes the cluster for itself";
    if (c->split > 8 || (c->split & (c->split - 1)) || (c->split > 1 && c->tile_n % (32 * c->split)))
        return "its split must be 1, 2, 4 or 8 and divide its columns into parts of 32";
    if (c->split > 1 && c->stages * stage_bytes(c) < c->tile_m * c->tile_n * 4)
        return "its stages cannot hold the sums of a tile";
    if (c->split > s->k_steps) return "its split is more than k has stages";
    if (c->split > 1 && !s->any_split) return "this call takes no split";
    if (cluster > 1 && !s->any_cluster) return "this call takes no cluster";
    if (s->grouped && cluster > 1) return "grouped products take no cluster";
    return NULL;
}

/* The model, fitted to an H200. A multiprocessor multiplies 64 x 8 x 128 bytes of k in 16 cycles. Its shared memory moves 128
 * bytes a cycle: the stage as it comes, then a once, b once for each 64 rows. It takes in 64 bytes a cycle, shared or not; it
 * asks L2 for a line of 128 bytes every 2 cycles, or for what is wanted of one, and what blocks of a cluster share is asked
 * for once. All together take no more from L2 than it gives, and no more from memory. A stage takes some time however small,
 * more if it comes from memory.
 * What a tile costs besides its stages: filling the ring, and the way out. */
double lls__sm90_cycles(const lls__sm90_shape *s, const lls__gemm_config *c) {
    const double l2_bytes_a_cycle = 6940, memory_bytes_a_cycle = 2230, block_bytes_a_cycle = 58.6, line_cycles = 2.26,
                 shared_cycles = 0.893, least_step = 183, fresh_cycles = 0.67, out_bytes_a_cycle = 19.6, fill = 3580,
                 meeting = 1130, exchange = 16500;
    int32_t cluster = c->cluster_m * c->cluster_n, together = cluster * c->split;
    int64_t tiles_m = ceil_div(ceil_div(s->m, c->tile_m), c->cluster_m) * c->cluster_m,
            tiles_n = ceil_div(ceil_div(s->n, c->tile_n), c->cluster_n) * c->cluster_n;
    int64_t blocks = tiles_m * tiles_n * s->batch * c->split;
    // Groups differ, which the host does not see: each ends with half a tile, the last wave is half full.
    if (s->grouped) blocks = (int64_t)(((double)s->m / c->tile_m + 0.5) * (double)(tiles_n * s->batch * c->split));
    int64_t slots = (int64_t)lls__sm90_slots(s, c) * together;
    double waves = s->grouped ? at_least(1, (double)blocks / (double)slots + 0.5) : (double)ceil_div(blocks, slots);
    double busy = blocks < slots ? (double)blocks : (double)slots;
    double steps = (double)ceil_div(s->k_steps, c->split);

    // The more a tile loads for what it multiplies, the sooner power limits the clock.
    double multiply = c->tile_m / 64.0 * c->tile_n / 8.0 * 16 * (s->promoted ? 1.1 : 1.0);
    multiply *= 0.9 + 15.3 * (1.0 / c->tile_m + 1.0 / c->tile_n);
    double shared = (2.0 * c->tile_m + c->tile_n * (1 + c->tile_m / 64.0)) * shared_cycles;
    double rows_a = (double)c->tile_m / c->cluster_n, rows_b = (double)c->tile_n / c->cluster_m; // loaded by a block
    double taken_in = (double)(c->tile_m + c->tile_n) * STAGE_ROW / block_bytes_a_cycle;
    double asked = (rows_a * s->a_lines + rows_b * s->b_lines) * line_cycles;
    double from_l2 = (rows_a + rows_b) * STAGE_ROW * busy / l2_bytes_a_cycle;
    // Lines that no other block of a wave asks for come from memory; the same line for several blocks comes with delay.
    double sharers = (double)ceil_div(tiles_m, c->cluster_m);
    double fresh = rows_b / sharers * (sharers > 1 ? 1.3 : 1) + rows_a / (double)ceil_div(tiles_n, c->cluster_n);
    if (warpgroups(c) == 1) taken_in *= 1 + 0.55 * fresh / (c->tile_m + c->tile_n);
    double step = at_least(at_least(multiply, shared), at_least(taken_in, asked));
    step = at_least(at_least(step, from_l2), least_step + fresh * fresh_cycles);
    if (warpgroups(c) == 3) step *= 1.03;
    else if (cluster > 1) step *= 0.98;

    double out = (double)c->tile_m * c->tile_n * s->out_bytes / out_bytes_a_cycle * (s->plain ? 1 : 2);
    if (c->split > 1) out *= 2.0 / c->split;
    double unique = ((double)s->m + (double)s->n) * (double)s->batch * s->k_steps * STAGE_ROW +
                    (double)s->m * (double)s->n * (double)s->batch * s->out_bytes;
    double work = waves * (steps * step + out), memory = unique / memory_bytes_a_cycle;
    if (s->grouped) memory *= waves * (double)slots / (double)blocks; // blocks that have no more to do load nothing
    double least = work < memory ? work : memory;
    double start = fill + (cluster > 4 ? 2 * meeting : cluster > 1 ? meeting : 0);
    if (c->split > 1) start += exchange * waves;
    return start + at_least(work, memory) + 0.04 * least; // neither hides all of the other
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

// Configuration `index` of a shape; false past the last. `*legal`: whether it can run.
static bool config_at(const lls__sm90_shape *s, int32_t index, lls__gemm_config *c, bool *legal) {
    static const int32_t clusters[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {2, 2, 1}, {4, 1, 1}, {1, 4, 1},
                                          {4, 2, 1}, {2, 4, 1}, {1, 1, 2}, {1, 1, 4}, {1, 1, 8}};
    const int32_t num_clusters = sizeof clusters / sizeof *clusters, tile = index / num_clusters;
    if (tile >= s->num_tiles) return false;
    const int32_t *cluster = clusters[index % num_clusters];
    *c = (lls__gemm_config){.tile_m = s->tiles[tile][0],
                            .tile_n = s->tiles[tile][1],
                            .cluster_m = cluster[0],
                            .cluster_n = cluster[1],
                            .split = cluster[2],
                            .swap = s->swap};
    c->stages = most_stages(s, c), c->raster = raster_of(s, c);
    *legal = !lls__sm90_config_fault(s, c);
    return true;
}

typedef struct ranked {
    lls__gemm_config config;
    double cycles;
    int32_t index; // orders those that take as long, so that lls__sm90_best finds the same
} ranked;

static int by_cycles(const void *x, const void *y) {
    const ranked *a = x, *b = y;
    if (a->cycles != b->cycles) return a->cycles > b->cycles ? 1 : -1;
    return a->index - b->index;
}

int32_t lls__sm90_configs(const lls__sm90_shape *ways, int32_t num_ways, lls__gemm_config out[LLS__SM90_MAX_CONFIGS]) {
    ranked all[LLS__SM90_MAX_CONFIGS];
    int32_t count = 0;
    for (int32_t w = 0; w < num_ways; w++) {
        bool legal;
        lls__gemm_config c;
        for (int32_t i = 0; count < LLS__SM90_MAX_CONFIGS && config_at(&ways[w], i, &c, &legal); i++) {
            if (!legal) continue;
            all[count] = (ranked){c, lls__sm90_cycles(&ways[w], &c), count};
            count++;
        }
    }
    qsort(all, (size_t)count, sizeof *all, by_cycles);
    for (int32_t i = 0; i < count; i++) out[i] = all[i].config;
    return count;
}

bool lls__sm90_best(const lls__sm90_shape *ways, int32_t num_ways, lls__gemm_config *out) {
    double least = INFINITY;
    for (int32_t w = 0; w < num_ways; w++) {
        bool legal;
        lls__gemm_config c;
        for (int32_t i = 0; config_at(&ways[w], i, &c, &legal); i++) {
            double cycles = legal ? lls__sm90_cycles(&ways[w], &c) : INFINITY;
            if (cycles < least) least = cycles, *out = c;
        }
    }
    return least < INFINITY;
}
