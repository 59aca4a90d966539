/* What a run cost: the figures behind `generate`'s last lines and its JSON. */
#ifndef CLI_SPEED_H
#define CLI_SPEED_H

#include "common.h"

typedef struct cli_speed {
    lls_engine_stats stats;
    lls_device device;
    int32_t threads;          /* CPU */
    double load_seconds;
    int64_t peak_memory;      /* of the process; taken before the bandwidth is measured */
    int64_t gpu_memory;       /* weights and cache on a GPU */
    double bandwidth;         /* measured bytes a second; 0: unknown */
    double decode_bandwidth;  /* weight bytes a second that decoding read; 0: nothing was decoded */
} cli_speed;

/* Measures the machine's bandwidth too, which takes a fraction of a second. */
cli_speed cli_speed_of(const lls_engine *engine, const cli_engine_flags *flags, double load_seconds);
void cli_speed_print(const cli_speed *speed);
/* "timings", "memory", "bandwidth", "device", "threads" and "variants", to be merged into a result. */
json_t *cli_speed_json(const cli_speed *speed);
/* {op: the row that comes first on this device}. */
json_t *cli_variants_json(lls_device device);

#endif
