/* How fast this machine reads memory: the floor under every decode step. */
#ifndef BENCH_BANDWIDTH_H
#define BENCH_BANDWIDTH_H

#include "llmspeed/core.h"

/* Bytes a second, the best of a few passes over memory that no cache holds; a fraction of a second's work.
 * CPU: `threads` threads read. CUDA: a copy within the device, reads and writes counted (there is no way to read
 * alone without a kernel). 0 when it cannot be measured. */
double bench_bandwidth(lls_device device, int32_t threads);

/* Bytes that a rotation of buffers must exceed so that the last-level cache does not serve them. */
size_t bench_cache_bytes(lls_device device);

/* The CUDA half: cuda_timer.c, or no_cuda_timer.c in builds without CUDA. */
double bench_cuda_bandwidth(int32_t index);

#endif
