/* Workers spin for a moment after a job, since the next op of a model step follows within microseconds, and park on a
 * condition variable after that, so that an idle context costs nothing. */
#include "cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/error.h"

enum { SPINS_BEFORE_PARK = 4000, CHUNKS_PER_THREAD = 4 };

struct lls__pool {
    int threads;
    pthread_t *workers; // [threads - 1]
    pthread_mutex_t lock;
    pthread_cond_t wake;

    // The job. Written by the caller before `generation` moves, read by workers after.
    lls__pool_fn fn;
    void *arg;
    int64_t n, chunk;
    bool stop;

    _Alignas(64) atomic_uint generation;
    _Alignas(64) atomic_int parked;
    _Alignas(64) _Atomic int64_t cursor; // next iteration to hand out
    _Alignas(64) atomic_int busy;        // workers that have not finished the job
};

typedef struct worker_start {
    lls__pool *pool;
    int index;
} worker_start;

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void drain(lls__pool *pool, int worker) {
    for (;;) {
        int64_t begin = atomic_fetch_add_explicit(&pool->cursor, pool->chunk, memory_order_relaxed);
        if (begin >= pool->n) return;
        int64_t end = begin + pool->chunk < pool->n ? begin + pool->chunk : pool->n;
        pool->fn(pool->arg, begin, end, worker);
    }
}

static void wait_for_job(lls__pool *pool, unsigned seen) {
    for (int i = 0; i < SPINS_BEFORE_PARK; i++) {
        if (atomic_load_explicit(&pool->generation, memory_order_acquire) != seen) return;
        relax();
    }
    // Sequentially consistent on both sides (see lls__pool_run): either the caller sees us parked, or we see its new
    // generation.
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->parked, 1);
    while (atomic_load(&pool->generation) == seen) pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->parked, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void *worker_main(void *start_arg) {
    worker_start start = *(worker_start *)start_arg;
    free(start_arg);
    lls__pool *pool = start.pool;
    unsigned seen = 0;
    for (;;) {
        wait_for_job(pool, seen);
        seen++;
        if (pool->stop) return NULL;
        drain(pool, start.index);
        atomic_fetch_sub_explicit(&pool->busy, 1, memory_order_release);
    }
}

static void publish(lls__pool *pool) {
    atomic_fetch_add(&pool->generation, 1);
    if (atomic_load(&pool->parked) > 0) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
}

void lls__pool_run(lls__pool *pool, int64_t n, int64_t grain, lls__pool_fn fn, void *arg) {
    if (n <= 0) return;
    if (grain < 1) grain = 1;
    if (pool->threads == 1 || n <= grain) {
        fn(arg, 0, n, 0);
        return;
    }
    int64_t parts = (int64_t)pool->threads * CHUNKS_PER_THREAD;
    int64_t grains = (n + grain - 1) / grain;
    pool->chunk = (grains < parts ? 1 : (grains + parts - 1) / parts) * grain;
    pool->fn = fn, pool->arg = arg, pool->n = n;
    atomic_store_explicit(&pool->cursor, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->busy, pool->threads - 1, memory_order_relaxed);
    publish(pool);
    drain(pool, 0);
    for (int spins = 0; atomic_load_explicit(&pool->busy, memory_order_acquire) > 0; spins++) {
        if (spins < SPINS_BEFORE_PARK) relax();
        else sched_yield(); // a worker lost its core: give it ours
    }
}

int lls__pool_threads(const lls__pool *pool) {
    return pool->threads;
}

void lls__pool_destroy(lls__pool *pool) {
    if (!pool) return;
    pool->stop = true;
    publish(pool);
    for (int i = 0; i < pool->threads - 1; i++) pthread_join(pool->workers[i], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool->workers);
    free(pool);
}

lls_status lls__pool_create(int threads, lls__pool **out) {
    *out = NULL;
    lls__pool *pool = aligned_alloc(64, sizeof *pool);
    pthread_t *workers = calloc((size_t)threads, sizeof *workers);
    if (!pool || !workers) {
        free(pool), free(workers);
        return lls__fail(LLS_ERR_MEMORY, "thread pool: no memory for %d threads", threads);
    }
    *pool = (lls__pool){.threads = 1, .workers = workers};
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    for (int i = 1; i < threads; i++) {
        worker_start *start = malloc(sizeof *start);
        if (start) *start = (worker_start){pool, i};
        if (!start || pthread_create(&pool->workers[i - 1], NULL, worker_main, start)) {
            free(start);
            lls__pool_destroy(pool);
            return lls__fail(LLS_ERR_MEMORY, "thread pool: cannot start thread %d of %d", i, threads);
        }
        pool->threads++;
    }
    *out = pool;
    return LLS_OK;
}
