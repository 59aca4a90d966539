/* The variant table: every implementation of an op is a row; the documentation, tests, benches and `llmspeed info`
 * iterate it. */
#ifndef LLS_DISPATCH_VARIANT_H
#define LLS_DISPATCH_VARIANT_H

#include "core/ctx.h"
#include "llmspeed/core.h"

typedef struct lls__variant {
    const char *name; /* "01_naive", "cpu_avx2", "ref" */
    lls_device_type device;
    const char *dtypes;                      /* for people: "f32 f16 bf16" */
    int32_t min_sm;                          /* CUDA rows */
    lls__cpu_level level;                    /* CPU rows */
    const char *(*reject)(const void *args); /* NULL, or returns NULL: takes these arguments; else a sentence */
    lls_status (*launch)(lls_ctx *ctx, const void *args, lls_stream stream); /* args are validated */
    const char *idea;                                                        /* in a few words, for people */
    int32_t max_sm; /* CUDA rows made of one architecture's own instructions; 0: none */
} lls__variant;

/* A kernel by name and address: for launches, and to load all of them at context creation. */
typedef struct lls__kernel {
    const char *name;
    const void *func;
} lls__kernel;
#define LLS_KERNEL(symbol) \
    { #symbol, (const void *)symbol }

/* What a call asks for by the op's definition: see lls_record. */
typedef struct lls__cost {
    double bytes, flops;
    lls_math math;
} lls__cost;

typedef struct lls__op {
    const char *name;
    const lls__variant *variants; /* in order of preference; the fp64 oracle "ref" last */
    int32_t num_variants;
    const lls__kernel *kernels;
    int32_t num_kernels;
    const lls__kernel *const
        *more_kernels; /* of the op's other files, or NULL: lists, ended by NULL, of kernels, ended by
                                             * a NULL name */
    /* For recordings, after a launch; args as in launch. Device data is read through lls__host_values alone. */
    void (*cost)(lls_ctx *ctx, const void *args, lls_stream stream, lls__cost *cost);
} lls__op;

#define LLS_COUNT(array) ((int32_t)(sizeof(array) / sizeof *(array)))

/* All ops, in layer order (ops.c). */
extern const lls__op *const lls__ops[];
extern const int32_t lls__num_ops;

/* Launches the pinned variant, or the one LLS_FORCE names, or the first row that runs here and does not refuse. */
lls_status lls__dispatch(lls_ctx *ctx, const lls__op *op, const char *pinned, const void *args, lls_stream stream);

#endif
