/* embed: rows of the bench models' hidden sizes, from floats and from GGUF blocks. */
#include "bench/bench.h"
#include "bench/shapes.h"

BENCH_CALL(embed)

typedef struct params {
    int64_t tokens, hidden;
    lls_dtype dtype;
} params;

// Ids spread over the vocabulary; the oracle's table is cut, so they stay below its size.
enum { ROWS = 32768, ID_LIMIT = 4096 };

static int64_t id_at(int64_t i, const void *user) {
    (void)user;
    return i * 2654435761 % ID_LIMIT;
}

static void make(bench *b, const void *param) {
    const params *p = param;
    int64_t table_shape[] = {bench_cut(b, ROWS, ID_LIMIT), p->hidden}, out_shape[] = {p->tokens, p->hidden};
    lls_embed_args args = LLS_EMBED_ARGS_INIT;
    args.table = bench_normal(b, p->dtype, 2, table_shape, 1);
    args.ids = bench_integers(b, LLS_I32, 1, &p->tokens, id_at, NULL);
    args.out = bench_output(b, LLS_F32, 2, out_shape, 1e-6);
    bench_args(b, &args, sizeof args);
    bench_param(b, "tokens", p->tokens);
    bench_param(b, "hidden", p->hidden);
}

static void cases(bench *b) {
    for (int m = 0; m < BENCH_NUM_MODELS; m++) {
        for (int t = 0; t < BENCH_NUM_PHASES; t++) {
            params p = {bench_phases[t].tokens, bench_models[m].hidden, LLS_BF16};
            bench_case(b, bench_models[m].name, bench_phases[t].name, p.dtype, make, &p);
            p.dtype = LLS_Q4_1;
            bench_case(b, bench_models[m].name, bench_phases[t].name, p.dtype, make, &p);
        }
    }
}

const bench_suite bench_suite_embed = {"embed", call, cases, .ladder_cpu = {"Llama-3-8B, prompt", LLS_BF16},
                                       .ladder_cuda = {"Llama-3-8B, prompt", LLS_BF16}};
