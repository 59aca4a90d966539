/* The op harness: walks op x variant x case against the fp64 oracle, the same on a CPU and on a GPU.
 *
 * A case is one function, written once. The harness runs it with h->variant = "ref" on a CPU context, keeps the
 * outputs, and then runs it again for every variant of the op that this device offers, comparing the outputs that the
 * case registered. Tensors are made by name and seed, so both runs see the same inputs; outputs start as NaN bytes;
 * every buffer lies between guard bytes that are checked afterwards; the gaps of strided tensors hold NaN and must stay
 * so.
 * On the CPU each variant runs with 1 and with 3 threads, on CUDA twice: the bits must agree. A variant that refuses a
 * case (LLS_ERR_VARIANT) is counted as skipped; one that no variant takes is a failure.
 *
 * Expectations on literal values (th_expect_near, th_expect_error, ...) hold on both runs, so they also test the
 * oracle. */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include "llmspeed/llmspeed.h"

typedef struct th th;

typedef struct th_case {
    const char *name; /* "N01 hidden 5120 f16": known-fault rows carry their id */
    void (*run)(th *h, const void *param);
    const void *param;
    bool large; /* needs gigabytes or minutes: only with --large */
} th_case;

typedef struct th_suite {
    const char *op;
    const th_case *cases;
    int32_t num_cases;
    /* Adds generated cases (products of shapes and dtypes): calls th_run_case for each. May be NULL. */
    void (*generate)(th *h);
} th_suite;

/* For generate(): runs one more case under this name. */
void th_run_case(th *h, const char *name, void (*run)(th *h, const void *param), const void *param);

struct th {
    lls_ctx *ctx; /* context of the side that runs now */
    lls_device device;
    lls_stream stream;
    const char *variant; /* put it into args.variant */
    struct th_state *state;
};

/* ---- Tensors: NULL strides are contiguous. Freed at the end of the case. ---------------------- */

/* Normal numbers of standard deviation `scale`, from the case's name and the order of calls: fresh for each case, equal
 * on both sides. */
lls_tensor th_normal(th *h, lls_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *stride, float scale);
/* Element i (row-major over the logical shape) is fn(i, user), converted to the dtype. */
lls_tensor th_filled(th *h, lls_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *stride,
                     double (*fn)(int64_t i, const void *user), const void *user);
lls_tensor th_constant(th *h, lls_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *stride, double value);
/* Given bytes, copied as they are (ids, GGUF blocks). `data` is row-major. */
lls_tensor th_data(th *h, lls_dtype dtype, int32_t ndim, const int64_t *shape, const void *data);
/* An output: NaN bytes before the call, compared afterwards with tolerance `tol` (0: exactly; negative: not compared
 * with the oracle).
 * Float dtypes: |got - want| <= tol * (|want| + rms(want)); use th_tol(dtype) unless the op has reason for another.
 * f8 and i8: the same, where a tol above 0 also forgives one step of the format: sums that differ in their last bits may
 * round to either neighbour. */
lls_tensor th_output(th *h, const char *name, lls_dtype dtype, int32_t ndim, const int64_t *shape,
                     const int64_t *stride, double tol);
/* Registers a tensor made above as an output too: in-place calls, caches. */
void th_also_output(th *h, const char *name, const lls_tensor *t, double tol);
/* NaN is the stated answer somewhere in this output: NaN must then meet NaN. */
void th_allow_nan(th *h, const lls_tensor *t);
/* fp32, f8 and i8 1e-5, f16 2e-3, bf16 1e-2. */
double th_tol(lls_dtype dtype);

/* Poisons the context's workspace with NaN bytes. */
void th_poison_workspace(th *h, size_t bytes);

/* ---- Expectations ---------------------------------------------------------------------------- */

/* The call under test succeeded. A refusal by a pinned variant skips the case for it: return right after a false. */
bool th_ok(th *h, lls_status status);
/* The call failed with this status, its message holds `part`, and nothing was written to any registered output. On the
 * reference side the call must be made through the public function too, so validators are tested once for each variant.
 * */
void th_expect_error(th *h, lls_status got, lls_status want, const char *part);
/* Element at a row-major logical index. */
double th_value(th *h, const lls_tensor *t, int64_t index);
void th_expect_near(th *h, const lls_tensor *t, int64_t index, double want, double relative_tol);
void th_expect_bits_equal(th *h, const lls_tensor *a, const lls_tensor *b);
/* A free-form failure. */
void th_fail(th *h, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool th_is_reference(const th *h);

/* ---- Exact data of the known-fault rows ------------------------------------------------------- */
double th_hash(int64_t i, const void *user);  /* H(i): ((u >> 8 & 255) - 128) / 64 */
double th_hash9(int64_t i, const void *user); /* H9(i): integers -4..4 */

#endif
