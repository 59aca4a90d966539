/* OpenBLAS, loaded at run time: f32 products on the CPU. Debian's library, or the one within a NumPy wheel
 * (numpy.libs/libscipy_openblas64_*.so), which is newer. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/peers/peers.h"
#include "core/error.h"

// ---- The library ------------------------------------------------------------------------------------

// cblas.h, with the integers of either build.
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
typedef void sgemm_32(int order, int trans_a, int trans_b, int32_t m, int32_t n, int32_t k, float alpha, const float *a,
                      int32_t lda, const float *b, int32_t ldb, float beta, float *c, int32_t ldc);
typedef void sgemm_64(int order, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                      int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

static struct {
    sgemm_32 *sgemm_32; // one of the two
    sgemm_64 *sgemm_64;
    void (*set_num_threads)(int threads);
    char *(*get_config)(void);
    char *(*get_corename)(void);
} lib;

static void *open_library(void) {
    // Its threads spin after a call, for 2^28 cycles by default: 0.1 s, on the cores that our turn needs. 2^20 finds them
    // awake for the next call and ends within the rest between turns. The library reads it as it loads.
    setenv("OPENBLAS_THREAD_TIMEOUT", "20", 0);
    const char *given = getenv("LLS_OPENBLAS");
    if (given) return dlopen(given, RTLD_LAZY | RTLD_LOCAL);
    void *found = dlopen("libopenblas.so.0", RTLD_LAZY | RTLD_LOCAL);
    return found ? found : dlopen("libopenblas.so", RTLD_LAZY | RTLD_LOCAL);
}

static void *find(void *library, const char *prefix, const char *name, const char *suffix) {
    char symbol[64];
    snprintf(symbol, sizeof symbol, "%s%s%s", prefix, name, suffix);
    return dlsym(library, symbol);
}

// Builds with 64-bit integers have the suffix, NumPy's the prefix.
static bool find_functions(void *library) {
    static const char *const spellings[][2] = {{"", ""}, {"", "64_"}, {"scipy_", ""}, {"scipy_", "64_"}};
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        const char *prefix = spellings[i][0], *suffix = spellings[i][1];
        void *sgemm = find(library, prefix, "cblas_sgemm", suffix);
        *(void **)&lib.sgemm_32 = *suffix ? NULL : sgemm;
        *(void **)&lib.sgemm_64 = *suffix ? sgemm : NULL;
        *(void **)&lib.set_num_threads = find(library, prefix, "openblas_set_num_threads", suffix);
        *(void **)&lib.get_config = find(library, prefix, "openblas_get_config", suffix);
        *(void **)&lib.get_corename = find(library, prefix, "openblas_get_corename", suffix);
        if (sgemm && lib.set_num_threads && lib.get_config && lib.get_corename) return true;
    }
    return false;
}

// "0.3.31 (SkylakeX)": the kernels that it chose are half of what its speed depends on.
static const char *version(void) {
    static char text[64];
    static bool tried;
    if (!tried) {
        tried = true;
        void *library = open_library();
        char number[24];
        if (library && find_functions(library) && sscanf(lib.get_config(), "OpenBLAS %23s", number) == 1)
            snprintf(text, sizeof text, "%s (%s)", number, lib.get_corename());
    }
    if (text[0]) return text;
    (void)lls__fail(LLS_ERR_NO_DEVICE, "openblas: no libopenblas.so.0 found here; LLS_OPENBLAS=FILE names one");
    return NULL;
}

// ---- Products ---------------------------------------------------------------------------------------

typedef struct product {
    int trans_a, trans_b;
    int64_t m, n, k, lda, ldb, ldc;
    float alpha;
    const float *a, *b;
    float *out;
} product;

// A matrix in rows, or the transpose of one.
static bool operand_of(const lls_tensor *t, int *trans, int64_t *ld) {
    bool rows = t->stride[1] == 1 && t->stride[0] >= t->shape[1];
    *trans = rows ? NO_TRANS : TRANS;
    *ld = rows ? t->stride[0] : t->stride[1];
    return rows || (t->stride[0] == 1 && t->stride[1] >= t->shape[0]);
}

static bool product_of(const lls_gemm_args *g, product *p) {
    int trans_out;
    bool extras = g->beta != 0 || g->bias || g->act || g->gated || g->residual || g->scale_a || g->scale_b;
    *p = (product){.alpha = g->alpha, .a = g->a->data, .b = g->b->data, .out = g->out->data};
    if (extras || g->a->dtype != LLS_F32 || g->out->dtype != LLS_F32 || g->a->ndim != 2) return false;
    p->m = g->out->shape[0], p->n = g->out->shape[1], p->k = g->a->shape[1];
    return operand_of(g->a, &p->trans_a, &p->lda) && operand_of(g->b, &p->trans_b, &p->ldb) &&
           operand_of(g->out, &trans_out, &p->ldc) && trans_out == NO_TRANS;
}

static lls_status open_products(lls_ctx *ctx, const void *const *args, int32_t copies, void **out) {
    product *products = *out = calloc((size_t)copies, sizeof *products);
    if (!products) return lls__fail(LLS_ERR_MEMORY, "openblas: no memory for %d products", copies);
    for (int32_t i = 0; i < copies; i++) {
        if (!product_of(args[i], &products[i]))
            return lls__fail(LLS_ERR_UNSUPPORTED, "openblas: computes plain products of f32 alone");
    }
    lib.set_num_threads(lls_ctx_num_threads(ctx));
    return LLS_OK;
}

static lls_status call(int32_t copy, lls_stream stream, void *user) {
    (void)stream;
    const product *p = (const product *)user + copy;
    if (lib.sgemm_64)
        lib.sgemm_64(ROW_MAJOR, p->trans_a, p->trans_b, p->m, p->n, p->k, p->alpha, p->a, p->lda, p->b, p->ldb, 0,
                     p->out, p->ldc);
    else
        lib.sgemm_32(ROW_MAJOR, p->trans_a, p->trans_b, (int32_t)p->m, (int32_t)p->n, (int32_t)p->k, p->alpha, p->a,
                     (int32_t)p->lda, p->b, (int32_t)p->ldb, 0, p->out, (int32_t)p->ldc);
    return LLS_OK;
}

const bench_peer bench_gemm_openblas = {"openblas", LLS_CPU, version, open_products, call, free};
