/* llmspeed/core.h: what every call needs. Read top to bottom:
 *   1. status codes and the message of the last error
 *   2. dtypes, devices, tensor views
 *   3. context (a device, a thread pool, a workspace) and stream
 *   4. device memory, for callers that do not have an allocator of their own
 *   5. logging
 *   6. introspection: which implementations exist, and which can run here
 *   7. recording: what each call did, and how far its time is from what the machine can do
 */
#ifndef LLMSPEED_CORE_H
#define LLMSPEED_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llmspeed/version.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define LLS_API
#else
#define LLS_API __attribute__((visibility("default")))
#endif

/* Initialiser of an argument struct: struct_size set, everything else zero, which means "default". */
#ifdef __cplusplus
#define LLS_ARGS_INIT(type) \
    { sizeof(type) }
#else
#define LLS_ARGS_INIT(type) \
    { .struct_size = sizeof(type) }
#endif

/* ---- 1. Status ------------------------------------------------------------------------------ */

/* Hundreds are categories: 1xx the caller's arguments, 2xx not supported, 3xx device, 4xx resources,
 * 5xx files, 6xx internal. A call that returns anything but LLS_OK has written nothing to its outputs
 * and leaves the context usable. */
typedef enum lls_status {
    LLS_OK = 0,
    LLS_ERR_ARGUMENT = 100,     /* a scalar argument or a pointer is out of range */
    LLS_ERR_SHAPE = 101,        /* a tensor's shape or rank does not fit */
    LLS_ERR_DTYPE = 102,        /* a tensor's dtype does not fit */
    LLS_ERR_STRIDE = 103,       /* strides, layout or alignment do not fit */
    LLS_ERR_DEVICE = 104,       /* a tensor lives on another device than the context */
    LLS_ERR_ALIAS = 105,        /* an output overlaps an input in a way the op does not allow */
    LLS_ERR_UNSUPPORTED = 200,  /* valid, but no implementation takes it */
    LLS_ERR_VARIANT = 201,      /* the pinned variant does not exist or refuses these arguments */
    LLS_ERR_NO_DEVICE = 300,    /* no such device, or no driver */
    LLS_ERR_CUDA = 301,         /* a CUDA call failed; the message names the kernel and its launch shape */
    LLS_ERR_MEMORY = 400,       /* out of host or device memory */
    LLS_ERR_WORKSPACE = 401,    /* the context's workspace is too small: lls_ctx_reserve */
    LLS_ERR_CONTEXT_FULL = 402, /* a sequence does not fit the model's context or the KV pool */
    LLS_ERR_IO = 500,           /* a file cannot be opened or read */
    LLS_ERR_FORMAT = 501,       /* a file's content is malformed */
    LLS_ERR_MODEL = 502,        /* a well-formed file holds a model this library does not know */
    LLS_ERR_ENCODING = 503,     /* text is not valid UTF-8 */
    LLS_ERR_INTERNAL = 600,
    LLS_ERR_CANCELLED = 700 /* a callback asked to stop */
} lls_status;

/* "LLS_ERR_SHAPE" etc. Never NULL. */
LLS_API const char *lls_status_name(lls_status status);

/* Message of this thread's most recent failed call: the argument, the value got, the value wanted, e.g.
 * "rmsnorm: weight.shape[0] is 4095, must equal x.shape[1] = 4096". Valid until this thread's next failed
 * call. "" when nothing has failed yet. */
LLS_API const char *lls_last_error(void);

/* ---- 2. Tensors ------------------------------------------------------------------------------ */

/* Element types. The block types are GGUF's: rows of 32 (or, for K-quants, 256) weights a block. */
typedef enum lls_dtype {
    LLS_F32 = 1,
    LLS_F16 = 2,
    LLS_BF16 = 3,
    LLS_I8 = 10,
    LLS_U8 = 11,
    LLS_I32 = 12,
    LLS_I64 = 13,
    LLS_F8_E4M3 = 20, /* "fn": no infinities, largest 448 */
    LLS_F8_E5M2 = 21,
    LLS_Q4_0 = 40,
    LLS_Q4_1 = 41,
    LLS_Q5_0 = 42,
    LLS_Q5_1 = 43,
    LLS_Q8_0 = 44,
    LLS_Q4_K = 50,
    LLS_Q5_K = 51,
    LLS_Q6_K = 52
} lls_dtype;

LLS_API const char *lls_dtype_name(lls_dtype dtype);
/* Elements a block (1 for plain types), and bytes a block. 0 for an unknown dtype. */
LLS_API int64_t lls_dtype_block_elems(lls_dtype dtype);
LLS_API int64_t lls_dtype_block_bytes(lls_dtype dtype);

typedef enum lls_device_type { LLS_CPU = 1, LLS_CUDA = 2 } lls_device_type;

typedef struct lls_device {
    lls_device_type type;
    int32_t index; /* CUDA ordinal; 0 on the CPU */
} lls_device;

/* How the elements lie in memory. LLS_PACKED is an opaque order that lls_linear_pack makes for the machine's
 * vector units; only lls_linear reads it. */
typedef enum lls_layout { LLS_STRIDED = 0, LLS_PACKED = 1 } lls_layout;

#define LLS_MAX_DIMS 5

/* A view of memory that somebody else owns. Strides count elements, may be anything the op allows (0 for an
 * expanded axis, negative never), and need not be set for axes of size 1. A block-quantised tensor has
 * shape [rows, K]; K is a multiple of the block, rows are contiguous blocks, and stride[0] = K. */
typedef struct lls_tensor {
    void *data;
    lls_dtype dtype;
    lls_device device;
    lls_layout layout;
    int32_t ndim;
    int64_t shape[LLS_MAX_DIMS];
    int64_t stride[LLS_MAX_DIMS];
} lls_tensor;

/* A contiguous (row-major) view. ndim above LLS_MAX_DIMS gives a view of ndim 0. */
LLS_API lls_tensor lls_tensor_make(void *data, lls_dtype dtype, lls_device device, int32_t ndim, const int64_t *shape);
/* Product of the sizes; 1 for ndim 0. */
LLS_API int64_t lls_tensor_numel(const lls_tensor *t);

/* ---- 3. Context and stream ------------------------------------------------------------------- */

/* A context belongs to one device. Calls on one context must not overlap in time; use one context a thread. */
typedef struct lls_ctx lls_ctx;

/* A cudaStream_t for CUDA contexts (NULL is the legacy default stream). Ignored by CPU contexts, whose calls
 * return when the work is done. */
typedef void *lls_stream;

typedef struct lls_ctx_options {
    size_t struct_size;
    lls_device device;      /* {0} means the CPU */
    int32_t num_threads;    /* CPU: workers including the caller; 0: one a core this process may use */
    size_t workspace_bytes; /* initial workspace; lls_ctx_reserve grows it */
} lls_ctx_options;
#define LLS_CTX_OPTIONS_INIT LLS_ARGS_INIT(lls_ctx_options)

/* options may be NULL. On CUDA this loads all kernels, so that later calls can be captured in a graph.
 * Errors: LLS_ERR_NO_DEVICE, LLS_ERR_MEMORY, LLS_ERR_ARGUMENT. */
LLS_API lls_status lls_ctx_create(const lls_ctx_options *options, lls_ctx **out);
LLS_API void lls_ctx_destroy(lls_ctx *ctx);
LLS_API lls_device lls_ctx_device(const lls_ctx *ctx);
LLS_API int32_t lls_ctx_num_threads(const lls_ctx *ctx);

/* Makes the context's workspace at least `bytes` large. An op that needs more than the context has fails
 * with LLS_ERR_WORKSPACE and names the bytes. Waits for the device when it has to move the workspace: call it
 * before a graph capture, never within, and never while a captured graph still uses the old workspace. On the
 * CPU, ops grow the workspace by themselves. */
LLS_API lls_status lls_ctx_reserve(lls_ctx *ctx, size_t bytes);

/* ---- 4. Device memory ------------------------------------------------------------------------ */

/* 256-byte aligned memory on the context's device. Zero bytes give a valid pointer. */
LLS_API lls_status lls_malloc(lls_ctx *ctx, size_t bytes, void **out);
LLS_API void lls_free(lls_ctx *ctx, void *ptr);
/* Host to the context's device and back, ordered on `stream`; both return when the copy is done. */
LLS_API lls_status lls_upload(lls_ctx *ctx, void *dst, const void *host_src, size_t bytes, lls_stream stream);
LLS_API lls_status lls_download(lls_ctx *ctx, void *host_dst, const void *src, size_t bytes, lls_stream stream);
LLS_API lls_status lls_synchronize(lls_ctx *ctx, lls_stream stream);

/* ---- 5. Logging ------------------------------------------------------------------------------ */

typedef enum lls_log_level { LLS_LOG_ERROR = 1, LLS_LOG_WARN = 2, LLS_LOG_INFO = 3, LLS_LOG_DEBUG = 4 } lls_log_level;

/* Environment, read at first use:
 *   LLS_LOG_LEVEL=error|warn|info|debug   (default warn)
 *   LLS_LOG_FILE=path                     (default standard error)
 *   LLS_LOG=plan                          prints, for each op call, the variant taken and why others refused
 *   LLS_FORCE=op:variant[,op:variant...]  pins a variant for every call that does not pin one itself */
typedef void (*lls_log_fn)(lls_log_level level, const char *message, void *user);
/* Replaces the sink; NULL restores the default. */
LLS_API void lls_log_set(lls_log_fn fn, void *user);

/* ---- 6. Introspection ------------------------------------------------------------------------ */

typedef struct lls_variant_info {
    const char *op;
    const char *variant;
    lls_device_type device;
    const char *dtypes;      /* "f32 f16 bf16" */
    int32_t min_sm;          /* CUDA: lowest compute capability x 10; 0 on the CPU */
    const char *unavailable; /* NULL: can run here. Otherwise a sentence that says why not. */
    const char *idea;        /* what it adds to the rungs below, in a few words; may be NULL */
} lls_variant_info;

/* Every op x variant row, in selection order; false when index is past the end. */
LLS_API bool lls_variant_at(int32_t index, lls_variant_info *out);

typedef struct lls_build_info {
    const char *version;
    const char *compiler;
    const char *cuda;      /* "13.0" or "none": the toolkit this library was built with */
    const char *cpu_level; /* the SIMD level chosen here: "portable", "avx2", "avx512" */
    const char *cpu_name;
} lls_build_info;
LLS_API lls_build_info lls_build(void);

typedef struct lls_cuda_info {
    char name[256];
    char driver[32];
    int32_t sm; /* compute capability x 10, 90 for an H200 */
    int32_t num_sms;
    size_t memory_bytes;
    size_t l2_bytes;
} lls_cuda_info;
/* 0 where there is no driver or no GPU. */
LLS_API int32_t lls_cuda_device_count(void);
LLS_API lls_status lls_cuda_device_info(int32_t index, lls_cuda_info *out);

/* ---- 7. Recording ---------------------------------------------------------------------------- */

/* The arithmetic that a call consists of, for the ceiling on its rate. */
typedef enum lls_math {
    LLS_MATH_F32 = 1,  /* fp32 */
    LLS_MATH_F16 = 2,  /* products of f16 or bf16, summed in fp32: tensor cores on CUDA */
    LLS_MATH_I8 = 3,   /* products of int8, summed in int32 */
    LLS_MATH_TF32 = 4, /* f32 operands rounded to tf32 on tensor cores */
    LLS_MATH_F8 = 5    /* products of f8, summed in fp32 */
} lls_math;

/* One op call. bytes and flops say what the op's definition asks for, whatever the implementation does: each input
 * byte read once, each output byte written once, an axis of stride 0 counted once, a multiply-add as two operations, exp
 * and its like as one. Attention counts the keys that the mask shows, sequence by sequence. */
typedef struct lls_record {
    const char *op, *variant; /* static, like kernel */
    lls_device device;
    lls_math math;
    double flops, bytes;
    int32_t num_kernels; /* launches; 0 on the CPU */
    /* The launch with the most threads, the first of equals. NULL and zeros on the CPU. */
    const char *kernel;
    uint32_t grid[3], block[3]; /* blocks, threads */
    size_t shared_bytes;        /* a block's shared memory, static and dynamic */
    int32_t registers;          /* a thread's */
    double occupancy; /* warps that a multiprocessor can hold at a time (registers, shared memory and block size limit
                       * them) over the most that it ever holds: 0 to 1 */
} lls_record;

/* From now on each op call on this context that launches an implementation and succeeds fills the next of `records`,
 * which must stay valid; calls past `capacity` are counted, not kept. Calls that fail, or have nothing to do, leave no
 * record. NULL stops; the count of before stays readable until the next start.
 * A recorded call may wait for the stream to read lengths that live on the device. While the stream is being captured
 * into a graph it does not: sequences then count as long as their tensors let them be. Costs nothing when off.
 * Errors: LLS_ERR_ARGUMENT. */
LLS_API lls_status lls_ctx_record(lls_ctx *ctx, lls_record *records, int32_t capacity);
/* Calls since the start, those past the capacity included. */
LLS_API int32_t lls_ctx_recorded(const lls_ctx *ctx);

/* What a device reaches at most; 0 where that is not known. */
typedef struct lls_ceilings {
    double read_bytes_per_s;
    double f32_flops, f16_flops, i8_ops, tf32_flops, f8_flops; /* a second, by lls_math */
} lls_ceilings;

/* Takes up to a second; call it while the device is idle.
 * CPU: measured with the context's threads and SIMD level. Memory is read in passes over more than the caches hold;
 * arithmetic is chains of multiply-adds in registers (f16, tf32 and f8 at the fp32 rate: they are converted first).
 * CUDA: memory is a copy within the device, reads and writes counted. Arithmetic is multiprocessors times highest clock
 * times the rate that NVIDIA's architecture papers give for compute capability 8.0, 8.6, 8.9, 9.0 and 12.0, without
 * sparsity; what the power limit allows may be less, and GeForce cards sum f16 products in fp32 at half of it.
 * Errors: LLS_ERR_ARGUMENT, LLS_ERR_MEMORY, LLS_ERR_CUDA. */
LLS_API lls_status lls_measure_ceilings(lls_ctx *ctx, lls_ceilings *out);

typedef enum lls_bound {
    LLS_BOUND_UNKNOWN = 0, /* no ceiling is known, or no time given */
    LLS_BOUND_MEMORY = 1,
    LLS_BOUND_COMPUTE = 2,
    LLS_BOUND_LATENCY = 3 /* neither: launch, synchronisation, dependent steps, or an implementation far from good */
} lls_bound;
/* "memory", "compute", "latency" or "unknown". */
LLS_API const char *lls_bound_name(lls_bound bound);

/* What limits a call that took `seconds`. Its floor is max(bytes / read_bytes_per_s, flops / rate of `math`), as in
 * Williams, Waterman and Patterson 2009, "Roofline"; terms without a ceiling are left out. Below a quarter of the time
 * the verdict is LLS_BOUND_LATENCY, else the larger term, memory when they are equal. floor_share, unless NULL, receives
 * floor / seconds: above 1 when caches serve what counts as memory here. */
LLS_API lls_bound lls_classify(const lls_ceilings *ceilings, lls_math math, double flops, double bytes, double seconds,
                               double *floor_share);

#ifdef __cplusplus
}
#endif

#endif
