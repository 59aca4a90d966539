#include "bench/peers/cublaslt.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/timer.h"
#include "core/error.h"

enum { WORKSPACE_BYTES = 128 << 20, MAX_ALGOS = 8 };

// ---- The library ------------------------------------------------------------------------------------

#define LT_FUNCTIONS(X)                     \
    X(cublasLtCreate)                       \
    X(cublasLtDestroy)                      \
    X(cublasLtGetStatusString)              \
    X(cublasLtGetVersion)                   \
    X(cublasLtMatmul)                       \
    X(cublasLtMatmulAlgoGetHeuristic)       \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutDestroy)          \
    X(cublasLtMatrixLayoutSetAttribute)

#define LT_FIELD(name) __typeof__(name) *name;
static struct { LT_FUNCTIONS(LT_FIELD) } lib;

static void *open_library(void) {
    const char *given = getenv("LLS_CUBLASLT");
    if (given) return dlopen(given, RTLD_LAZY | RTLD_LOCAL);
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                                        "/usr/local/cuda/lib64/libcublasLt.so"};
    void *found = NULL;
    for (size_t i = 0; !found && i < sizeof names / sizeof *names; i++)
        found = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
    return found;
}

static bool find_functions(void *library) {
#define LT_FIND(name) \
    if (!(*(void **)&lib.name = dlsym(library, #name))) return false;
    LT_FUNCTIONS(LT_FIND)
#undef LT_FIND
    return true;
}

const char *bench_lt_version(void) {
    static char version[32];
    static bool tried;
    if (!tried) {
        tried = true;
        void *library = open_library();
        if (library && find_functions(library)) {
            size_t v = lib.cublasLtGetVersion(); // 130002 is 13.0.2
            snprintf(version, sizeof version, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
        }
    }
    if (version[0]) return version;
    (void)lls__fail(LLS_ERR_NO_DEVICE, "cublaslt: no libcublasLt.so.13 or .12 found here; LLS_CUBLASLT=FILE names one");
    return NULL;
}

static lls_status check(cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return LLS_OK;
    return lls__fail(LLS_ERR_CUDA, "cublaslt: %s: %s", what, lib.cublasLtGetStatusString(status));
}

lls_status bench_lt_open(lls_ctx *ctx, bench_lt *out) {
    *out = (bench_lt){.ctx = ctx};
    if (cudaSetDevice(lls_ctx_device(ctx).index) != cudaSuccess)
        return lls__fail(LLS_ERR_CUDA, "cublaslt: device %d does not answer", lls_ctx_device(ctx).index);
    LLS_TRY(lls_malloc(ctx, WORKSPACE_BYTES, &out->workspace));
    return check(lib.cublasLtCreate(&out->handle), "create");
}

void bench_lt_close(bench_lt *lt) {
    if (lt->handle) lib.cublasLtDestroy(lt->handle);
    if (lt->workspace) lls_free(lt->ctx, lt->workspace);
    *lt = (bench_lt){0};
}

// ---- From our matrices to its -----------------------------------------------------------------------

/* cuBLASLt stores matrices by columns. Read so, our rows are columns and each matrix is its transpose; hence it is asked
 * for out^T = b^T a^T: its first operand is our b, its second our a. A weight [n, k] seen as b [k, n] becomes a stored
 * [k, n] that is transposed back, beside an a that is stored as it is needed: the pair "TN", the only one for 8 bits. */
typedef struct operand {
    cublasOperation_t op;
    int64_t rows, cols, ld; // as stored
} operand;

// t^T for our matrix t.
static bool operand_of(const lls_tensor *t, operand *out) {
    int64_t rows = t->shape[t->ndim - 2], cols = t->shape[t->ndim - 1];
    int64_t row = t->stride[t->ndim - 2], col = t->stride[t->ndim - 1];
    if (col == 1 && row >= cols) *out = (operand){CUBLAS_OP_N, cols, rows, row};
    else if (row == 1 && col >= rows) *out = (operand){CUBLAS_OP_T, rows, cols, col};
    else return false;
    return true;
}

static bool type_of(lls_dtype dtype, cudaDataType_t *out) {
    switch (dtype) {
    case LLS_F32: *out = CUDA_R_32F; return true;
    case LLS_F16: *out = CUDA_R_16F; return true;
    case LLS_BF16: *out = CUDA_R_16BF; return true;
    case LLS_F8_E4M3: *out = CUDA_R_8F_E4M3; return true;
    case LLS_F8_E5M2: *out = CUDA_R_8F_E5M2; return true;
    case LLS_I8: *out = CUDA_R_8I; return true;
    case LLS_I32: *out = CUDA_R_32I; return true;
    default: return false;
    }
}

static lls_status make_layout(const lls_tensor *t, cublasOperation_t *op, cublasLtMatrixLayout_t *out) {
    operand o;
    cudaDataType_t type;
    if (!operand_of(t, &o) || !type_of(t->dtype, &type))
        return lls__fail(LLS_ERR_STRIDE, "cublaslt: no layout for %s with these strides", lls_dtype_name(t->dtype));
    *op = o.op;
    LLS_TRY(check(lib.cublasLtMatrixLayoutCreate(out, type, (uint64_t)o.rows, (uint64_t)o.cols, o.ld), "layout"));
    if (t->ndim < 3) return LLS_OK;
    int32_t batch = (int32_t)t->shape[0];
    int64_t stride = t->stride[0];
    LLS_TRY(check(lib.cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch),
                  "batch"));
    return check(
        lib.cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
        "batch stride");
}

static lls_status set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void *value,
                      size_t bytes) {
    return check(lib.cublasLtMatmulDescSetAttribute(desc, attribute, value, bytes), "description");
}

static lls_status set_scales(cublasLtMatmulDesc_t desc, const bench_lt_product *p) {
    if (p->scale_b) LLS_TRY(set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &p->scale_b, sizeof p->scale_b));
    if (p->scale_a) LLS_TRY(set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &p->scale_a, sizeof p->scale_a));
    return LLS_OK;
}

static lls_status describe(const bench_lt_product *p, bench_lt_plan *plan) {
    bool integers = p->a->dtype == LLS_I8;
    cublasComputeType_t compute = integers  ? CUBLAS_COMPUTE_32I
                                  : p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
    LLS_TRY(
        check(lib.cublasLtMatmulDescCreate(&plan->desc, compute, integers ? CUDA_R_32I : CUDA_R_32F), "description"));
    cublasOperation_t op_a, op_b, op_out;
    LLS_TRY(make_layout(p->b, &op_a, &plan->a));
    LLS_TRY(make_layout(p->a, &op_b, &plan->b));
    LLS_TRY(make_layout(p->out, &op_out, &plan->out));
    if (op_out != CUBLAS_OP_N) return lls__fail(LLS_ERR_STRIDE, "cublaslt: out must have unit inner stride");
    LLS_TRY(set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a));
    LLS_TRY(set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b));
    int8_t fast = p->fast_accum;
    if (fast) LLS_TRY(set(plan->desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast));
    return set_scales(plan->desc, p);
}

lls_status bench_lt_run(const bench_lt *lt, const bench_lt_plan *plan, const bench_lt_product *p, lls_stream stream) {
    int32_t int_alpha = (int32_t)p->alpha, int_beta = (int32_t)p->beta;
    bool integers = p->a->dtype == LLS_I8;
    const void *alpha = integers ? (const void *)&int_alpha : &p->alpha;
    const void *beta = integers ? (const void *)&int_beta : &p->beta;
    const void *c = p->beta == 0 ? p->out->data : p->c->data; // c has out's layout
    LLS_TRY(set_scales(plan->desc, p));
    return check(lib.cublasLtMatmul(lt->handle, plan->desc, alpha, p->b->data, plan->a, p->a->data, plan->b, beta, c,
                                    plan->out, p->out->data, plan->out, &plan->algo, lt->workspace, WORKSPACE_BYTES,
                                    stream),
                 "matmul");
}

// ---- The choice of a kernel -------------------------------------------------------------------------

static lls_status ask_heuristic(const bench_lt *lt, const bench_lt_plan *plan, cublasLtMatmulHeuristicResult_t *found,
                                int *count) {
    cublasLtMatmulPreference_t preference = NULL;
    const uint64_t bytes = WORKSPACE_BYTES;
    *count = 0;
    lls_status status = check(lib.cublasLtMatmulPreferenceCreate(&preference), "preference");
    if (!status)
        status = check(lib.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                &bytes, sizeof bytes),
                       "workspace size");
    if (!status)
        status = check(lib.cublasLtMatmulAlgoGetHeuristic(lt->handle, plan->desc, plan->a, plan->b, plan->out,
                                                          plan->out, preference, MAX_ALGOS, found, count),
                       "heuristic");
    if (preference) lib.cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

// One kernel that might be the fastest.
typedef struct candidate {
    const bench_lt *lt;
    const bench_lt_product *products;
    bench_lt_plan plan; // shares all but the algorithm
    bench_loop loop;
    bool runs;
    double seconds; // the best loop
} candidate;

static lls_status launch(int32_t index, lls_stream stream, void *user) {
    candidate *c = user;
    return bench_lt_run(c->lt, &c->plan, &c->products[index], stream);
}

// The first call, which may load code, and then one whose time says how many make a loop.
static void try_once(candidate *c, lls_device device) {
    bench_loop_close(&c->loop);
    c->runs = !launch(0, NULL, c) && !lls_synchronize(c->lt->ctx, NULL) &&
              !bench_loop_open(&c->loop, device, 1, 1, launch, c) && !bench_loop_run(&c->loop, 0, 1, &c->seconds);
}

static void race(candidate *all, int32_t count, lls_device device, int32_t rotation) {
    enum { ROUNDS = 3, MAX_CALLS = 64 };
    const double loop = 5e-4; // seconds
    double fastest = INFINITY;
    for (int32_t i = 0; i < count; i++) {
        try_once(&all[i], device);
        if (all[i].runs) fastest = fmin(fastest, all[i].seconds);
    }
    int32_t calls = (int32_t)fmin(MAX_CALLS, ceil(loop / fastest));
    for (int32_t i = 0; i < count; i++) {
        candidate *c = &all[i];
        bench_loop_close(&c->loop);
        c->runs = c->runs && !bench_loop_open(&c->loop, device, calls, rotation, launch, c);
        c->seconds = INFINITY;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int32_t i = 0; i < count; i++) {
            double seconds;
            all[i].runs = all[i].runs && !bench_loop_run(&all[i].loop, calls > 1, 1, &seconds);
            if (all[i].runs) all[i].seconds = fmin(all[i].seconds, seconds);
        }
    }
}

lls_status bench_lt_plan_open(bench_lt *lt, const bench_lt_product *products, int32_t count, bench_lt_plan *out) {
    cublasLtMatmulHeuristicResult_t found[MAX_ALGOS];
    candidate all[MAX_ALGOS] = {0};
    int num_found;
    *out = (bench_lt_plan){0};
    LLS_TRY(describe(products, out));
    LLS_TRY(ask_heuristic(lt, out, found, &num_found));
    int32_t n = 0;
    for (int i = 0; i < num_found; i++) {
        if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
        all[n] = (candidate){.lt = lt, .products = products, .plan = *out};
        all[n++].plan.algo = found[i].algo;
    }
    race(all, n, lls_ctx_device(lt->ctx), count);
    const candidate *best = NULL;
    for (int32_t i = 0; i < n; i++) {
        bench_loop_close(&all[i].loop);
        if (all[i].runs && (!best || all[i].seconds < best->seconds)) best = &all[i];
    }
    if (!best) return lls__fail(LLS_ERR_CUDA, "cublaslt: none of %d kernels runs", n);
    out->algo = best->plan.algo;
    return LLS_OK;
}

void bench_lt_plan_close(bench_lt_plan *plan) {
    if (plan->desc) lib.cublasLtMatmulDescDestroy(plan->desc);
    if (plan->a) lib.cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b) lib.cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->out) lib.cublasLtMatrixLayoutDestroy(plan->out);
    *plan = (bench_lt_plan){0};
}
