/* attn_decode: one new token a sequence over a paged f16 cache, one sequence and a batch, short and long. */
#include "bench/bench.h"
#include "bench/shapes.h"

BENCH_CALL(attn_decode)

typedef struct params {
    int64_t batch, kv_len;
    const bench_model *model;
} params;

enum { PAGE_SIZE = 32 };

static int64_t length(int64_t i, const void *user) {
    (void)i;
    return *(const int64_t *)user;
}

// Sequence s owns pages s * pages .. (s + 1) * pages - 1, in reverse order.
static int64_t page_at(int64_t i, const void *user) {
    int64_t pages = *(const int64_t *)user;
    return i / pages * pages + pages - 1 - i % pages;
}

static void make(bench *b, const void *param) {
    const params *p = param;
    int64_t batch = bench_cut(b, p->batch, 1), d = p->model->head_dim;
    int64_t group = p->model->num_heads / p->model->num_kv_heads, kv_heads = bench_cut(b, p->model->num_kv_heads, 1);
    int64_t pages = (p->kv_len + PAGE_SIZE - 1) / PAGE_SIZE;
    int64_t q_shape[] = {batch, 1, kv_heads * group, d}, cache_shape[] = {batch * pages, PAGE_SIZE, kv_heads, d};
    int64_t table_shape[] = {batch, pages};
    lls_attn_decode_args args = LLS_ATTN_DECODE_ARGS_INIT;
    args.q = bench_normal(b, LLS_F32, 4, q_shape, 1);
    args.k_cache = bench_normal(b, LLS_F16, 4, cache_shape, 1);
    args.v_cache = bench_normal(b, LLS_F16, 4, cache_shape, 1);
    args.page_table = bench_integers(b, LLS_I32, 2, table_shape, page_at, &pages);
    args.kv_lens = bench_integers(b, LLS_I32, 1, &batch, length, &p->kv_len);
    args.out = bench_output(b, LLS_F32, 4, q_shape, 2e-3);
    bench_args(b, &args, sizeof args);
    bench_param(b, "batch", p->batch);
    bench_param(b, "kv_len", p->kv_len);
    bench_param(b, "num_heads", p->model->num_heads);
    bench_param(b, "num_kv_heads", p->model->num_kv_heads);
    bench_param(b, "head_dim", d);
    bench_param(b, "page_size", PAGE_SIZE);
}

static void cases(bench *b) {
    static const int64_t lengths[] = {512, 4096}, batches[] = {1, 16};
    for (int m = 0; m < BENCH_NUM_MODELS; m++) {
        for (int i = 0; i < 4; i++) {
            params p = {batches[i / 2], lengths[i % 2], &bench_models[m]};
            bench_case(b, bench_models[m].name, i / 2 ? "batch" : "decode", LLS_F16, make, &p);
        }
    }
}

const bench_suite bench_suite_attn_decode = {"attn_decode", call, cases, .ladder_cpu = {"Llama-3-8B, batch", LLS_F16},
                                             .ladder_cuda = {"Llama-3-8B, batch", LLS_F16}};
