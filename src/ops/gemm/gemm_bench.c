/* gemm: squares, the layers of Llama 3 for batches and prompts, shapes that fit no tile, 8-bit and fp32 products. Unless
 * said otherwise b is a weight [n, k] seen as [k, n]. */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/gemm_product.h"
#include "bench/peers/peers.h"
#include "bench/shapes.h"

BENCH_CALL(gemm)

typedef bench_gemm_product params;

static double tolerance(const params *p) {
    if (p->dtype == LLS_I8) return 0; // exact
    if (p->flags & LLS_GEMM_TF32) return 4e-3;
    if (p->flags & LLS_GEMM_FAST_ACCUM) return 5e-2; // some 14 bits are kept of the sums
    return p->dtype == LLS_F32 ? 1e-4 : bench_tol(p->out_dtype);
}

static void make(bench *b, const void *param) {
    const params *p = param;
    bench_spread(b);
    int64_t m = bench_cut(b, p->m, 32), n = bench_cut(b, p->n, 32);
    int64_t a_shape[] = {m, p->k}, weight_shape[] = {n, p->k}, plain_shape[] = {p->k, n}, out_shape[] = {m, n};
    lls_gemm_args args = LLS_GEMM_ARGS_INIT;
    args.a = bench_normal(b, p->dtype, 2, a_shape, 1);
    if (p->plain_b) args.b = bench_normal(b, p->dtype, 2, plain_shape, 1);
    else args.b = bench_transposed(b, bench_normal(b, p->dtype, 2, weight_shape, 1));
    args.out = bench_output(b, p->out_dtype, 2, out_shape, tolerance(p));
    args.flags = p->flags;
    if (p->dtype == LLS_F8_E4M3) {
        const int64_t one = 1;
        args.scale_a = bench_constant(b, 1, &one, 0.5);
        args.scale_b = bench_constant(b, 1, &one, 0.25);
    }
    bench_args(b, &args, sizeof args);
    bench_param(b, "m", p->m);
    bench_param(b, "n", p->n);
    bench_param(b, "k", p->k);
}

void bench_gemm_case(bench *b, const char *name, const char *phase, params p) {
    if (!p.out_dtype) p.out_dtype = p.dtype == LLS_I8 ? LLS_I32 : p.dtype;
    bench_case(b, name, phase, p.dtype, make, &p);
}

static void square(bench *b, const char *name, int64_t size, lls_dtype dtype, uint32_t flags) {
    char phase[24];
    snprintf(phase, sizeof phase, "%lld", (long long)size);
    bench_gemm_case(b, name, phase, (params){size, size, size, dtype, dtype == LLS_F8_E4M3 ? LLS_BF16 : 0, flags});
}

static void rows(bench *b, const char *name, int64_t m, int64_t n, int64_t k, lls_dtype dtype) {
    char phase[24];
    snprintf(phase, sizeof phase, m == 1 ? "%lld row" : "%lld rows", (long long)m);
    bench_gemm_case(b, name, phase, (params){m, n, k, dtype});
}

// What a laptop finishes too.
static void small_cases(bench *b) {
    static const lls_dtype dtypes[] = {LLS_F32, LLS_F16, LLS_BF16, LLS_I8};
    for (int d = 0; d < 4; d++) square(b, "square", 1024, dtypes[d], 0);
    for (int d = 0; d < 4; d += 2) {
        const bench_model *model = &bench_models[0];
        rows(b, "SmolLM2-135M up", 512, model->ffn, model->hidden, dtypes[d]);
    }
    if (!bench_is_cuda(b)) rows(b, "Llama-3-8B up", 512, 14336, 4096, LLS_F32);
}

static void squares(bench *b) {
    for (int64_t size = 2048; size <= 16384; size *= 2) {
        square(b, "square", size, LLS_BF16, 0);
        square(b, "square", size, LLS_F16, 0);
    }
    for (int64_t size = 4096; size <= 8192; size *= 2) {
        square(b, "square", size, LLS_F8_E4M3, 0);
        square(b, "square, fast accumulation", size, LLS_F8_E4M3, LLS_GEMM_FAST_ACCUM);
        square(b, "square", size, LLS_I8, 0);
    }
    square(b, "square", 4096, LLS_F32, 0);
    square(b, "square, tf32", 4096, LLS_F32, LLS_GEMM_TF32);
}

static void layers(bench *b) {
    static const struct layer {
        const char *name;
        int64_t n, k;
    } all[] = {
        {"Llama-3-8B qkv", 6144, 4096},       {"Llama-3-8B o", 4096, 4096},      {"Llama-3-8B gate_up", 28672, 4096},
        {"Llama-3-8B down", 4096, 14336},     {"Llama-3-70B qkv", 10240, 8192},  {"Llama-3-70B o", 8192, 8192},
        {"Llama-3-70B gate_up", 57344, 8192}, {"Llama-3-70B down", 8192, 28672},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        for (int64_t m = 128; m <= 8192; m *= 2) rows(b, all[i].name, m, all[i].n, all[i].k, LLS_BF16);
    }
}

// Multiples of 8 and of nothing more.
static void ragged(bench *b) {
    static const int64_t rows_of[] = {129, 272, 1000, 4097};
    static const int64_t sizes[][2] = {{4104, 4104}, {1000, 2056}, {6152, 1032}, {11016, 4104}, {3000, 3016}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t m = 0; m < sizeof rows_of / sizeof *rows_of; m++) {
            rows(b, "ragged", rows_of[m], sizes[i][0], sizes[i][1], LLS_BF16);
        }
    }
}

static void others(bench *b) {
    static const int64_t few[] = {1, 16, 64};
    for (int i = 0; i < 3; i++) rows(b, "decode 8B qkv", few[i], 6144, 4096, LLS_BF16);
    for (int64_t m = 512; m <= 4096; m *= 8) {
        bench_gemm_case(b, "plain b", m == 512 ? "512 rows" : "4096 rows",
                        (params){m, 4096, 4096, LLS_BF16, .plain_b = true});
    }
    bench_gemm_case(b, "f32 out", "4096", (params){4096, 4096, 4096, LLS_BF16, LLS_F32});
}

static void cases(bench *b) {
    small_cases(b);
    if (!bench_is_cuda(b)) return;
    squares(b);
    layers(b);
    ragged(b);
    others(b);
}

static bool pin(lls_ctx *ctx, void *args, int32_t index, char config[LLS_GEMM_CONFIG_CHARS]) {
    static char pinned[LLS_GEMM_CONFIG_CHARS]; // what all copies point to until the next configuration
    lls_gemm_args *a = args;
    a->config = NULL;
    if (!lls_gemm_config_at(ctx, a, index, config)) return false;
    a->config = memcpy(pinned, config, sizeof pinned);
    return true;
}

const bench_suite bench_suite_gemm = {
    "gemm", call, cases, bench_gemm_peers, {"square, 1024", LLS_F32}, {"square, 4096", LLS_BF16}, pin};

const bench_suite *bench_gemm_suite(void) {
    return &bench_suite_gemm;
}
