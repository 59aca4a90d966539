/* The thread pool: every iteration once, whatever the sizes and threads; reuse, parking, workers' numbers, the end. */
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "cpu/pool.h"
#include "unit/unit.h"

enum { MAX_N = 5000, MAX_THREADS = 9 };

typedef struct record {
    int64_t n, grain;
    int threads;
    _Atomic int visits[MAX_N];
    _Atomic int inside[MAX_THREADS]; // calls that run now, by worker
    _Atomic int bad;
} record;

static void visit(void *arg, int64_t begin, int64_t end, int worker) {
    record *r = arg;
    bool whole = begin % r->grain == 0 && (end % r->grain == 0 || end == r->n);
    if (worker < 0 || worker >= r->threads || begin < 0 || begin >= end || end > r->n || !whole) {
        atomic_fetch_add(&r->bad, 1);
        return;
    }
    if (atomic_fetch_add(&r->inside[worker], 1) != 0)
        atomic_fetch_add(&r->bad, 1); // two at once with one number would share scratch
    for (int64_t i = begin; i < end; i++) atomic_fetch_add(&r->visits[i], 1);
    atomic_fetch_sub(&r->inside[worker], 1);
}

static void expect_each_once(lls__pool *pool, int64_t n, int64_t grain) {
    static record r;
    memset(&r, 0, sizeof r);
    r.n = n, r.grain = grain < 1 ? 1 : grain, r.threads = lls__pool_threads(pool);
    lls__pool_run(pool, n, grain, visit, &r);
    assert_int_equal(atomic_load(&r.bad), 0);
    for (int64_t i = 0; i < MAX_N; i++) {
        if (r.visits[i] != (i < n))
            fail_msg("n %lld grain %lld: iteration %lld ran %d times", (long long)n, (long long)grain, (long long)i,
                     r.visits[i]);
    }
}

static lls__pool *make_pool(int threads) {
    lls__pool *pool;
    assert_int_equal(lls__pool_create(threads, &pool), LLS_OK);
    assert_int_equal(lls__pool_threads(pool), threads);
    return pool;
}

static void every_iteration_once(void **state) {
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 3, 7, 8, 9, 31, 64, 100, 1023, MAX_N},
                         grains[] = {-1, 0, 1, 2, 3, 8, 64, 10000};
    for (int threads = 1; threads <= MAX_THREADS; threads++) {
        lls__pool *pool = make_pool(threads);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (size_t g = 0; g < sizeof grains / sizeof *grains; g++) expect_each_once(pool, sizes[s], grains[g]);
        }
        lls__pool_destroy(pool);
    }
}

static void add(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    atomic_fetch_add((_Atomic int64_t *)arg, end - begin);
}

static void ten_thousand_jobs(void **state) {
    (void)state;
    lls__pool *pool = make_pool(3);
    _Atomic int64_t sum = 0;
    for (int i = 0; i < 10000; i++) lls__pool_run(pool, 12, 1, add, &sum);
    assert_int_equal(atomic_load(&sum), 120000);
    lls__pool_destroy(pool);
}

// What a job wrote is visible to the caller, and what the caller writes is visible to the next job: plain memory, no
// atomics.
static void copy_next(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    int *cells = arg;
    for (int64_t i = begin; i < end; i++) cells[64 + i] = cells[63 - i] + 1;
}

static void memory_is_ordered(void **state) {
    (void)state;
    lls__pool *pool = make_pool(4);
    int cells[128] = {0};
    for (int turn = 1; turn <= 2000; turn++) {
        lls__pool_run(pool, 64, 1, copy_next, cells);
        for (int i = 0; i < 64; i++) {
            assert_int_equal(cells[64 + i], turn);
            cells[i] = cells[64 + i];
        }
    }
    lls__pool_destroy(pool);
}

// Workers park after a moment without work; 5 ms is far more than that.
static void wakes_from_parking(void **state) {
    (void)state;
    lls__pool *pool = make_pool(4);
    for (int i = 0; i < 30; i++) {
        usleep(i % 3 ? 5000 : 50); // and some jobs come just as they go to sleep
        expect_each_once(pool, 100, 1);
    }
    lls__pool_destroy(pool);
}

static void ends_parked_or_awake(void **state) {
    (void)state;
    lls__pool_destroy(NULL);
    for (int i = 0; i < 20; i++) {
        lls__pool *idle = make_pool(3); // never given work
        if (i % 2) usleep(3000);
        lls__pool_destroy(idle);
        lls__pool *busy = make_pool(3);
        expect_each_once(busy, 50, 1);
        if (i % 2) usleep(3000);
        lls__pool_destroy(busy);
    }
}

static void several_pools_at_once(void **state) {
    (void)state;
    lls__pool *a = make_pool(2), *b = make_pool(3);
    for (int i = 0; i < 100; i++) expect_each_once(a, 77, 2), expect_each_once(b, 78, 3);
    lls__pool_destroy(a);
    expect_each_once(b, 79, 1);
    lls__pool_destroy(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_iteration_once), cmocka_unit_test(ten_thousand_jobs),
        cmocka_unit_test(memory_is_ordered),    cmocka_unit_test(wakes_from_parking),
        cmocka_unit_test(ends_parked_or_awake), cmocka_unit_test(several_pools_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
