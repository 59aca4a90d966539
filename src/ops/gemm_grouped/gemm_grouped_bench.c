/* gemm_grouped: the layers of mixtures of 8 large and of 64 small experts; tokens are spread unevenly. The weight of an
 * expert is [n, k] seen as [k, n]. */
#include <stdio.h>

#include "bench/bench.h"
#include "bench/peers/peers.h"

BENCH_CALL(gemm_grouped)

typedef struct params {
    int64_t groups, tokens, n, k;
} params;

// The share of the tokens that goes to the experts before i, about as uneven as routers are: the busiest gets some four
// times as many as the idlest, in an order without order.
static double weight_of(int64_t expert) {
    uint32_t hash = ((uint32_t)expert + 1) * 2654435761u;
    return 0.4 + 1.2 * (double)(hash >> 8 & 0xffff) / 65536;
}

static int64_t offset_at(int64_t i, const void *user) {
    const params *p = user;
    double before = 0, all = 0;
    for (int64_t g = 0; g < p->groups; g++) {
        if (g < i) before += weight_of(g);
        all += weight_of(g);
    }
    return i == p->groups ? p->tokens : (int64_t)((double)p->tokens * before / all);
}

static void make(bench *b, const void *param) {
    const params *p = param;
    bench_spread(b);
    int64_t n = bench_cut(b, p->n, 16), bounds = p->groups + 1;
    int64_t a_shape[] = {p->tokens, p->k}, weight_shape[] = {p->groups, n, p->k}, out_shape[] = {p->tokens, n};
    lls_gemm_grouped_args args = LLS_GEMM_GROUPED_ARGS_INIT;
    args.a = bench_normal(b, LLS_BF16, 2, a_shape, 1);
    args.b = bench_transposed(b, bench_normal(b, LLS_BF16, 3, weight_shape, 1));
    args.offsets = bench_integers(b, LLS_I32, 1, &bounds, offset_at, p);
    args.out = bench_output(b, LLS_BF16, 2, out_shape, bench_tol(LLS_BF16));
    bench_args(b, &args, sizeof args);
    bench_param(b, "groups", p->groups);
    bench_param(b, "tokens", p->tokens);
    bench_param(b, "n", p->n);
    bench_param(b, "k", p->k);
}

static void one(bench *b, const char *name, params p) {
    char phase[32];
    snprintf(phase, sizeof phase, "%lld tokens", (long long)p.tokens);
    bench_case(b, name, phase, LLS_BF16, make, &p);
}

static void cases(bench *b) {
    one(b, "8 experts of 512x256", (params){8, 256, 512, 256}); // what a laptop finishes too
    if (!bench_is_cuda(b)) return;
    static const struct {
        const char *name;
        int64_t groups, n, k;
    } layers[] = {{"8 experts, square", 8, 4096, 4096},
                  {"8 experts, up", 8, 14336, 4096},
                  {"64 experts, up", 64, 2048, 4096},
                  {"64 experts, down", 64, 4096, 2048}};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        for (int64_t tokens = 512; tokens <= 8192; tokens *= 2)
            one(b, layers[i].name, (params){layers[i].groups, tokens, layers[i].n, layers[i].k});
    }
}

const bench_suite bench_suite_gemm_grouped = {"gemm_grouped",
                                              call,
                                              cases,
                                              bench_gemm_grouped_peers,
                                              {"512x256", LLS_BF16},
                                              {"8 experts, square, 4096", LLS_BF16}};
