/* lls_measure_ceilings, and its measurements on the CPU. */
#include "profile/ceilings.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/device.h"
#include "core/error.h"

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

enum { MB = 1 << 20 };

size_t lls__cache_bytes(lls_device device) {
    lls_cuda_info gpu;
    if (device.type == LLS_CUDA) return lls_cuda_device_info(device.index, &gpu) ? 128 * (size_t)MB : 2 * gpu.l2_bytes;
    // A virtual machine may show a cache that it shares with others, so there is an upper bound too.
    long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t bytes = l3 > 0 ? (size_t)l3 : 0;
    return bytes < 128 * (size_t)MB ? 128 * (size_t)MB : bytes > 512 * (size_t)MB ? 512 * (size_t)MB : bytes;
}

// Iterations [0, n) on all threads, `units` of work altogether: the best rate of some passes, in units a second. The
// passes go on for a while, so that the clock settles and neighbours on the machine are quiet for one of them.
static double best_rate(lls_ctx *ctx, int64_t n, lls__pool_fn fn, void *arg, double units) {
    enum { MIN_PASSES = 6 };
    const double min_seconds = 0.02;
    double best = 0, begin = seconds_now();
    for (int pass = 0; pass < MIN_PASSES || seconds_now() - begin < min_seconds; pass++) {
        double start = seconds_now();
        lls__parallel(ctx, n, 1, fn, arg);
        double rate = units / (seconds_now() - start);
        if (rate > best) best = rate;
    }
    return best;
}

// ---- Memory -----------------------------------------------------------------------------------------

// 32 bytes a step; the compiler makes of it what the machine has. Eight sums hide the latency of the operations.
typedef uint64_t lane __attribute__((vector_size(32)));
enum { SUMS = 8, PREFETCH_LANES = 64, BLOCK_LANES = 2048 };

typedef struct reading {
    const lane *data;
    _Atomic uint64_t sum; // kept, so that the reads cannot be left out
} reading;

LLS__UNCHECKED static void read_blocks(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    reading *r = arg;
    lane sum[SUMS] = {{0}};
    for (int64_t i = begin * BLOCK_LANES; i < end * BLOCK_LANES; i += SUMS) {
        for (int j = 0; j < SUMS; j += 2) __builtin_prefetch(&r->data[i + PREFETCH_LANES + j]); // as the kernels do
        for (int j = 0; j < SUMS; j++) sum[j] ^= r->data[i + j];
    }
    for (int j = 1; j < SUMS; j++) sum[0] ^= sum[j];
    atomic_fetch_xor_explicit(&r->sum, sum[0][0] ^ sum[0][1] ^ sum[0][2] ^ sum[0][3], memory_order_relaxed);
}

static lls_status measure_memory(lls_ctx *ctx, double *bytes_per_s) {
    size_t bytes = 2 * lls__cache_bytes(ctx->device);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return lls__fail(LLS_ERR_MEMORY, "measure_ceilings: no memory for %zu bytes", bytes);
    madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 1, bytes); // pages that were never written all map to one page of zeros
    reading r = {.data = memory};
    int64_t blocks = (int64_t)(bytes / sizeof(lane) / BLOCK_LANES);
    *bytes_per_s = best_rate(ctx, blocks, read_blocks, &r, (double)(blocks * BLOCK_LANES) * sizeof(lane));
    munmap(memory, bytes);
    return LLS_OK;
}

// ---- Arithmetic -------------------------------------------------------------------------------------

enum { ROUNDS = 20000 }; // of an iteration: about 50 microseconds

typedef struct computing {
    lls__chains chains;
    _Atomic int32_t result;
} computing;

static void compute(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    computing *c = arg;
    atomic_fetch_xor_explicit(&c->result, c->chains.run((end - begin) * ROUNDS), memory_order_relaxed);
}

static double measure_chains(lls_ctx *ctx, lls__chains chains) {
    computing c = {.chains = chains};
    int64_t iterations = 16 * (int64_t)lls_ctx_num_threads(ctx);
    return best_rate(ctx, iterations, compute, &c, (double)(iterations * ROUNDS) * chains.ops);
}

static lls_status cpu_ceilings(lls_ctx *ctx, lls_ceilings *out) {
    lls__chains (*const f32[])(void) = {lls__f32_chains_portable, lls__f32_chains_avx2, lls__f32_chains_avx512};
    lls__chains (*const i8[])(void) = {lls__i8_chains_portable, lls__i8_chains_avx2, lls__i8_chains_avx512};
    LLS_TRY(measure_memory(ctx, &out->read_bytes_per_s));
    out->f32_flops = measure_chains(ctx, f32[ctx->level]());
    out->f16_flops = out->tf32_flops = out->f8_flops = out->f32_flops; // converted first
    out->i8_ops = measure_chains(ctx, i8[ctx->level]());
    return LLS_OK;
}

lls_status lls_measure_ceilings(lls_ctx *ctx, lls_ceilings *out) {
    if (!ctx || !out) return lls__fail(LLS_ERR_ARGUMENT, "measure_ceilings: %s is NULL", ctx ? "out" : "ctx");
    lls_ceilings measured = {0};
    LLS_TRY(ctx->device.type == LLS_CUDA ? lls__cuda_ceilings(ctx, &measured) : cpu_ceilings(ctx, &measured));
    *out = measured;
    return LLS_OK;
}
