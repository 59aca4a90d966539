#include "bandwidth.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "timer.h"

enum { PASSES = 6, MAX_THREADS = 1024, MB = 1 << 20, PREFETCH_LANES = 64 };

// 32 bytes a step; the compiler makes of it what the machine has. Eight sums hide the latency of the operations.
typedef uint64_t lane __attribute__((vector_size(32)));

typedef struct share {
    const lane *data;
    size_t lanes;
    uint64_t sum; // kept, so that the reads cannot be left out
    pthread_t thread;
    bool started;
} share;

static void *read_share(void *arg) {
    share *s = arg;
    lane sum[8] = {{0}};
    for (size_t i = 0; i + 8 <= s->lanes; i += 8) {
        for (int j = 0; j < 8; j += 2) __builtin_prefetch(&s->data[i + PREFETCH_LANES + j]); // as the kernels do
        for (int j = 0; j < 8; j++) sum[j] ^= s->data[i + j];
    }
    for (int j = 1; j < 8; j++) sum[0] ^= sum[j];
    s->sum = sum[0][0] ^ sum[0][1] ^ sum[0][2] ^ sum[0][3];
    return NULL;
}

// One pass over everything. Starting the threads takes microseconds of its many milliseconds.
static double read_pass(share *shares, int32_t threads) {
    double start = bench_now();
    for (int32_t i = 1; i < threads; i++) {
        shares[i].started = pthread_create(&shares[i].thread, NULL, read_share, &shares[i]) == 0;
    }
    read_share(&shares[0]);
    for (int32_t i = 1; i < threads; i++) {
        if (shares[i].started) pthread_join(shares[i].thread, NULL);
        else read_share(&shares[i]);
    }
    return bench_now() - start;
}

static double cpu_bandwidth(int32_t threads) {
    size_t bytes = 2 * bench_cache_bytes((lls_device){LLS_CPU, 0});
    threads = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
    share *shares = calloc((size_t)threads, sizeof *shares);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double best = 0;
    if (shares && memory != MAP_FAILED) {
        madvise(memory, bytes, MADV_HUGEPAGE);
        memset(memory, 1, bytes); // pages that were never written all map to one page of zeros
        size_t lanes = bytes / sizeof(lane) / (size_t)threads;
        for (int32_t i = 0; i < threads; i++) shares[i] = (share){.data = (lane *)memory + lanes * i, .lanes = lanes};
        for (int pass = 0; pass < PASSES; pass++) {
            double rate = (double)(lanes * sizeof(lane) * (size_t)threads) / read_pass(shares, threads);
            if (rate > best) best = rate;
        }
    }
    if (memory != MAP_FAILED) munmap(memory, bytes);
    free(shares);
    return best;
}

double bench_bandwidth(lls_device device, int32_t threads) {
    return device.type == LLS_CUDA ? bench_cuda_bandwidth(device.index) : cpu_bandwidth(threads);
}

size_t bench_cache_bytes(lls_device device) {
    lls_cuda_info gpu;
    if (device.type == LLS_CUDA) return lls_cuda_device_info(device.index, &gpu) ? 128 * (size_t)MB : 2 * gpu.l2_bytes;
    // A virtual machine may show a cache that it shares with others, so there is an upper bound too.
    long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t bytes = l3 > 0 ? (size_t)l3 : 0;
    return bytes < 128 * (size_t)MB ? 128 * (size_t)MB : bytes > 512 * (size_t)MB ? 512 * (size_t)MB : bytes;
}
