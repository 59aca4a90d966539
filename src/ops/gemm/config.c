#include "ops/gemm/config.h"

#include <stdio.h>
#include <string.h>

void lls__gemm_config_print(const lls__gemm_config *c, char *text, size_t size) {
    snprintf(text, size, "tile=%dx%d stages=%d cluster=%dx%d split=%d raster=%d%s", c->tile_m, c->tile_n, c->stages,
             c->cluster_m, c->cluster_n, c->split, c->raster, c->swap ? " swap=1" : "");
}

bool lls__gemm_config_parse(const char *text, lls__gemm_config *out) {
    lls__gemm_config c;
    int used = 0;
    int fields = sscanf(text, "tile=%dx%d stages=%d cluster=%dx%d split=%d raster=%d%n", &c.tile_m, &c.tile_n,
                        &c.stages, &c.cluster_m, &c.cluster_n, &c.split, &c.raster, &used);
    if (fields != 7) return false;
    c.swap = !strcmp(text + used, " swap=1");
    if (!c.swap && text[used] != 0) return false;
    *out = c;
    return true;
}
