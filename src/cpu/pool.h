/* A persistent thread pool for loops whose iterations write disjoint outputs. */
#ifndef LLS_CPU_POOL_H
#define LLS_CPU_POOL_H

#include <stdint.h>

#include "llmspeed/core.h"

typedef struct lls__pool lls__pool;

/* Computes iterations [begin, end). `worker` in [0, threads) is unique among those that run at the same time: it may
 * index scratch. */
typedef void (*lls__pool_fn)(void *arg, int64_t begin, int64_t end, int worker);

/* threads counts the caller; 1 starts none. */
lls_status lls__pool_create(int threads, lls__pool **out);
void lls__pool_destroy(lls__pool *pool);
int lls__pool_threads(const lls__pool *pool);

/* Calls fn over [0, n) in chunks of at least `grain` iterations, on all threads, the caller among them, and returns
 * when all are done.
 * Chunk borders are multiples of grain, so that a kernel that works on tiles of `grain` rows sees whole tiles. How
 * chunks fall to threads differs from run to run: fn's results must not depend on it. */
void lls__pool_run(lls__pool *pool, int64_t n, int64_t grain, lls__pool_fn fn, void *arg);

#endif
