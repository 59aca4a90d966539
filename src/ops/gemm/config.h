/* How a tiled rung cuts a product: printable data, chosen by pure functions of the shape and the device. */
#ifndef LLS_OPS_GEMM_CONFIG_H
#define LLS_OPS_GEMM_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lls__gemm_config {
    int32_t tile_m, tile_n;       /* of out, a block's */
    int32_t stages;               /* of the ring in shared memory */
    int32_t cluster_m, cluster_n; /* blocks that share what they load: b along m, a along n */
    int32_t split;                /* blocks that share a tile, each a part of k: a cluster too */
    int32_t raster;               /* tiles along m that are walked together before the next column of tiles */
    int32_t swap;                 /* 1: computes out^T = b^T a^T; tile, cluster and raster are of out^T */
} lls__gemm_config;

/* "tile=128x256 stages=4 cluster=1x1 split=1 raster=8", then " swap=1" if so */
void lls__gemm_config_print(const lls__gemm_config *c, char *text, size_t size);
/* False when the text is anything else. */
bool lls__gemm_config_parse(const char *text, lls__gemm_config *out);

#endif
