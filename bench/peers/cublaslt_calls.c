#include <stdlib.h>

#include "bench/peers/cublaslt.h"
#include "core/error.h"

lls_status bench_lt_calls_new(int32_t num_products, int32_t copies, bench_lt_calls **out) {
    bench_lt_calls *c = *out = calloc(1, sizeof *c);
    if (!c) return lls__fail(LLS_ERR_MEMORY, "cublaslt: no memory for calls");
    size_t products = (size_t)num_products, all = products * (size_t)copies;
    c->num_products = num_products, c->copies = copies;
    c->plans = calloc(products, sizeof *c->plans);
    c->products = calloc(all, sizeof *c->products);
    c->views = calloc(3 * all, sizeof *c->views);
    if (c->plans && c->products && c->views) return LLS_OK;
    return lls__fail(LLS_ERR_MEMORY, "cublaslt: no memory for %d x %d products", num_products, copies);
}

static bool is_empty(const bench_lt_product *p) {
    return lls_tensor_numel(p->out) == 0;
}

lls_status bench_lt_calls_open(lls_ctx *ctx, bench_lt_calls *c) {
    LLS_TRY(bench_lt_open(ctx, &c->lt));
    for (int32_t i = 0; i < c->num_products; i++) {
        const bench_lt_product *products = &c->products[(int64_t)i * c->copies];
        if (!is_empty(products)) LLS_TRY(bench_lt_plan_open(&c->lt, products, c->copies, &c->plans[i]));
    }
    return LLS_OK;
}

lls_status bench_lt_calls_run(int32_t copy, lls_stream stream, void *calls) {
    const bench_lt_calls *c = calls;
    for (int32_t i = 0; i < c->num_products; i++) {
        const bench_lt_product *product = &c->products[(int64_t)i * c->copies + copy];
        if (!is_empty(product)) LLS_TRY(bench_lt_run(&c->lt, &c->plans[i], product, stream));
    }
    return LLS_OK;
}

void bench_lt_calls_close(void *calls) {
    bench_lt_calls *c = calls;
    for (int32_t i = 0; c->plans && i < c->num_products; i++) bench_lt_plan_close(&c->plans[i]);
    bench_lt_close(&c->lt);
    free(c->plans);
    free(c->products);
    free(c->views);
    free(c);
}
