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

    // The job. Written by the caller before the gate opens, read by the workers inside it.
    lls__pool_fn fn;
    void *arg;
    int64_t n, chunk;
    bool stop;

    // The job's number in the upper half; below it CLOSED, and how many workers are inside. The caller closes the gate
    // when all is handed out and waits for those inside alone: a worker whose core another program's threads hold (a
    // framework's, that spin) is not waited for.
    _Alignas(64) _Atomic uint64_t gate;
    _Alignas(64) atomic_int parked;
    _Alignas(64) _Atomic int64_t cursor; // next iteration to hand out
};

#define CLOSED ((uint64_t)1 << 31)

static uint64_t job_of(uint64_t gate) {
    return gate >> 32;
}

static uint64_t inside(uint64_t gate) {
    return gate & (CLOSED - 1);
}

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

static void wait_for_job(lls__pool *pool, uint64_t seen) {
    for (int i = 0; i < SPINS_BEFORE_PARK; i++) {
        if (job_of(atomic_load_explicit(&pool->gate, memory_order_acquire)) != seen) return;
        relax();
    }
    // Sequentially consistent on both sides (see publish): either the caller sees us parked, or we see its new job.
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->parked, 1);
    while (job_of(atomic_load(&pool->gate)) == seen) pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->parked, 1);
    pthread_mutex_unlock(&pool->lock);
}

// Goes in unless the gate is closed; the number of the job either way.
static bool enter(lls__pool *pool, uint64_t *job) {
    uint64_t gate = atomic_load_explicit(&pool->gate, memory_order_acquire);
    do {
        *job = job_of(gate);
        if (gate & CLOSED) return false;
    } while (!atomic_compare_exchange_weak_explicit(&pool->gate, &gate, gate + 1, memory_order_acquire,
                                                    memory_order_acquire));
    return true;
}

static void *worker_main(void *start_arg) {
    worker_start start = *(worker_start *)start_arg;
    free(start_arg);
    lls__pool *pool = start.pool;
    uint64_t seen = 0;
    for (;;) {
        wait_for_job(pool, seen);
        if (!enter(pool, &seen)) continue;
        bool stop = pool->stop;
        if (!stop) drain(pool, start.index);
        atomic_fetch_sub_explicit(&pool->gate, 1, memory_order_release);
        if (stop) return NULL;
    }
}

// Opens the gate for the next job. Nobody is inside.
static void publish(lls__pool *pool) {
    uint64_t next = job_of(atomic_load_explicit(&pool->gate, memory_order_relaxed)) + 1;
    atomic_store(&pool->gate, next << 32);
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
    publish(pool);
    drain(pool, 0);
    atomic_fetch_or_explicit(&pool->gate, CLOSED, memory_order_relaxed);
    for (int spins = 0; inside(atomic_load_explicit(&pool->gate, memory_order_acquire)) > 0; spins++) {
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
