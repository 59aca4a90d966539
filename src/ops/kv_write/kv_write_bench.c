/* kv_write: new keys and values of the bench models into pages of an f16 or bf16 cache. */
#include "bench/bench.h"
#include "bench/shapes.h"

BENCH_CALL(kv_write)

typedef struct params {
    int64_t tokens;
    const bench_model *model;
    lls_dtype dtype;
} params;

enum { PAGE_SIZE = 32 };

// Slot i is token i: every row of the pages is written, so the whole cache is an output to compare.
static int64_t slot_at(int64_t i, const void *user) {
    (void)user;
    return i;
}

static void make(bench *b, const void *param) {
    const params *p = param;
    int64_t shape[] = {p->tokens, p->model->num_kv_heads, p->model->head_dim};
    int64_t page = p->tokens < PAGE_SIZE ? p->tokens : PAGE_SIZE;
    int64_t cache_shape[] = {p->tokens / page, page, p->model->num_kv_heads, p->model->head_dim};
    lls_kv_write_args args = LLS_KV_WRITE_ARGS_INIT;
    args.k = bench_normal(b, LLS_F32, 3, shape, 1);
    args.v = bench_normal(b, LLS_F32, 3, shape, 1);
    args.k_cache = bench_output(b, p->dtype, 4, cache_shape, bench_tol(p->dtype));
    args.v_cache = bench_output(b, p->dtype, 4, cache_shape, bench_tol(p->dtype));
    args.slots = bench_integers(b, LLS_I64, 1, &p->tokens, slot_at, NULL);
    bench_args(b, &args, sizeof args);
    bench_param(b, "tokens", p->tokens);
    bench_param(b, "num_kv_heads", p->model->num_kv_heads);
    bench_param(b, "head_dim", p->model->head_dim);
    bench_param(b, "page_size", page);
}

static void cases(bench *b) {
    for (int m = 0; m < BENCH_NUM_MODELS; m++) {
        for (int t = 0; t < BENCH_NUM_PHASES; t++) {
            params p = {bench_phases[t].tokens, &bench_models[m], LLS_F16};
            bench_case(b, bench_models[m].name, bench_phases[t].name, p.dtype, make, &p);
        }
    }
}

const bench_suite bench_suite_kv_write = {"kv_write", call, cases, .ladder_cpu = {"Llama-3-8B, prompt", LLS_F16},
                                          .ladder_cuda = {"Llama-3-8B, prompt", LLS_F16}};
