/* Validation, the variant table, and the CUDA launches of sample. The definition is in ops.h. */
#include <stdlib.h>

#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/record.h"
#include "ops/sample/sample_kernels.h"

static const char *const op = "sample";

#if LLS_WITH_CUDA
#include "dispatch/launch.h"

static const lls__kernel kernels[] = {
    LLS_KERNEL(lls_sample_01_naive_f32),
    LLS_KERNEL(lls_sample_01_naive_f16),
    LLS_KERNEL(lls_sample_01_naive_bf16),
};

static const char *naive_reject(const void *params) {
    const lls__sample_params *p = params;
    return p->history && p->vocab > LLS__SAMPLE_MAX_PENALISED_VOCAB
               ? "with a history, vocab must be at most 2^20: a bit a token in shared memory"
               : NULL;
}

static lls_status naive(lls_ctx *ctx, const void *params, lls_stream stream) {
    lls__sample_params p = *(const lls__sample_params *)params;
    lls__grid shape = {
        .grid = {(uint32_t)p.batch, 1, 1},
        .block = {512, 1, 1},
        .shared_bytes = p.history ? ((uint32_t)p.vocab + 31) / 32 * 4 : 0,
    };
    return lls__launch(ctx, &kernels[lls__float_index(p.dtype)], &shape, (void *[]){&p}, stream);
}
#endif

static const char cpu_idea[] = "one padded fp32 copy; selection among the few tokens that matter";
static const lls__variant variants[] = {
#if LLS_WITH_CUDA
    {"01_naive", LLS_CUDA, "f32 f16 bf16", 80, LLS__CPU_PORTABLE, naive_reject, naive,
     "a block a row; bisection of the keys, one pass over the row a step"},
#endif
    {"cpu_avx512", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX512, NULL, lls__sample_cpu_avx512, cpu_idea},
    {"cpu_avx2", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_AVX2, NULL, lls__sample_cpu_avx2, cpu_idea},
    {"cpu_portable", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__sample_cpu_portable, cpu_idea},
    {"ref", LLS_CPU, "f32 f16 bf16", 0, LLS__CPU_PORTABLE, NULL, lls__sample_ref,
     "the definition in double: the oracle"},
};

// Ids of the histories; as many as fit where their lengths cannot be read.
static double history_ids(lls_ctx *ctx, const lls__sample_params *p, lls_stream stream) {
    void *copy;
    const int32_t *lens = lls__host_values(ctx, p->history_lens, (size_t)p->batch * sizeof *lens, stream, &copy);
    double ids = lens ? 0 : (double)p->batch * p->max_history;
    for (int32_t r = 0; lens && r < p->batch; r++) {
        if (lens[r] > 0 && lens[r] <= p->max_history) ids += lens[r];
    }
    free(copy);
    return ids;
}

// Reading the logits is what it takes; comparisons are no operations here.
static void cost(lls_ctx *ctx, const void *params, lls_stream stream, lls__cost *c) {
    const lls__sample_params *p = params;
    double rows = p->logits_stride == 0 ? 1 : p->batch;
    int32_t words = !!p->temperature + !!p->top_k + !!p->top_p + !!p->min_p + !!p->penalty + !!p->history_lens;
    int32_t out_words = 1 + !!p->out_probs, long_words = !!p->seed + !!p->step;
    c->bytes = rows * p->vocab * (double)lls__elem_size(p->dtype) +
               (double)p->batch * (4 * (words + out_words) + 8 * long_words);
    if (p->history) c->bytes += 4 * history_ids(ctx, p, stream);
    c->math = LLS_MATH_F32;
}

const lls__op lls__op_sample = {
    .name = "sample",
    .variants = variants,
    .num_variants = LLS_COUNT(variants),
#if LLS_WITH_CUDA
    .kernels = kernels,
    .num_kernels = LLS_COUNT(kernels),
#endif
    .cost = cost,
};

enum { MAX_VOCAB = 1 << 30 };

// An optional vector [batch].
static lls_status check_parameter(const lls_ctx *ctx, const lls_sample_args *a, const char *name, const lls_tensor *t,
                                  lls_dtype dtype) {
    return t ? lls__check_vector(ctx, op, name, t, a->logits->shape[0], "logits.shape[0]", LLS__DTYPE(dtype)) : LLS_OK;
}

static lls_status check_output(const lls_ctx *ctx, const lls_sample_args *a, const char *name, const lls_tensor *t,
                               lls_dtype dtype) {
    const struct {
        const char *name;
        const lls_tensor *t;
    } inputs[] = {
        {"logits", a->logits},   {"temperature", a->temperature},
        {"top_k", a->top_k},     {"top_p", a->top_p},
        {"min_p", a->min_p},     {"repetition_penalty", a->repetition_penalty},
        {"seed", a->seed},       {"step", a->step},
        {"history", a->history}, {"history_lens", a->history_lens},
    };
    LLS_TRY(lls__check_vector(ctx, op, name, t, a->logits->shape[0], "logits.shape[0]", LLS__DTYPE(dtype)));
    for (int32_t i = 0; i < LLS_COUNT(inputs); i++) {
        if (inputs[i].t) LLS_TRY(lls__check_disjoint(op, name, t, inputs[i].name, inputs[i].t));
    }
    return LLS_OK;
}

static lls_status validate(const lls_ctx *ctx, const lls_sample_args *a) {
    LLS_TRY(lls__check_tensor(ctx, op, "logits", a->logits, 2, 2, LLS__FLOATS));
    LLS_TRY(lls__check_inner_contiguous(op, "logits", a->logits));
    if (a->logits->shape[0] > INT32_MAX || a->logits->shape[1] > MAX_VOCAB) {
        return lls__fail(LLS_ERR_SHAPE,
                         "%s: logits is [%lld, %lld], must have below 2^31 rows and at most 2^30 columns", op,
                         (long long)a->logits->shape[0], (long long)a->logits->shape[1]);
    }
    LLS_TRY(check_parameter(ctx, a, "temperature", a->temperature, LLS_F32));
    LLS_TRY(check_parameter(ctx, a, "top_k", a->top_k, LLS_I32));
    LLS_TRY(check_parameter(ctx, a, "top_p", a->top_p, LLS_F32));
    LLS_TRY(check_parameter(ctx, a, "min_p", a->min_p, LLS_F32));
    LLS_TRY(check_parameter(ctx, a, "repetition_penalty", a->repetition_penalty, LLS_F32));
    LLS_TRY(check_parameter(ctx, a, "seed", a->seed, LLS_I64));
    LLS_TRY(check_parameter(ctx, a, "step", a->step, LLS_I64));
    LLS_TRY(check_parameter(ctx, a, "history_lens", a->history_lens, LLS_I32));
    if (!a->history != !a->history_lens) {
        return lls__fail(LLS_ERR_ARGUMENT, "%s: history and history_lens must be given together, %s is NULL", op,
                         a->history ? "history_lens" : "history");
    }
    if (a->history) {
        LLS_TRY(lls__check_tensor(ctx, op, "history", a->history, 2, 2, LLS__DTYPE(LLS_I32)));
        LLS_TRY(lls__check_dim(op, "history", a->history, 0, a->logits->shape[0], "logits.shape[0]"));
        LLS_TRY(lls__check_inner_contiguous(op, "history", a->history));
        if (a->history->shape[1] > INT32_MAX) {
            return lls__fail(LLS_ERR_SHAPE, "%s: history.shape[1] is %lld, must be below 2^31", op,
                             (long long)a->history->shape[1]);
        }
    }
    LLS_TRY(check_output(ctx, a, "out_ids", a->out_ids, LLS_I32));
    if (a->out_probs) {
        LLS_TRY(check_output(ctx, a, "out_probs", a->out_probs, LLS_F32));
        LLS_TRY(lls__check_disjoint(op, "out_probs", a->out_probs, "out_ids", a->out_ids));
    }
    return LLS_OK;
}

// On the CPU the parameters' values can be read.
static lls_status check_rows(const lls__sample_params *p) {
    for (int32_t r = 0; r < p->batch; r++) {
        lls__sample_row row = lls__sample_row_of(p, r);
        switch (lls__sample_row_fault(p, r)) {
        case LLS__SAMPLE_SOUND: break;
        case LLS__SAMPLE_TEMPERATURE:
            return lls__fail(LLS_ERR_ARGUMENT, "%s: temperature[%d] is %g, must be >= 0 and finite", op, r,
                             (double)row.temperature);
        case LLS__SAMPLE_TOP_K:
            return lls__fail(LLS_ERR_ARGUMENT, "%s: top_k[%d] is %d, must be >= 0 (0: off)", op, r, row.top_k);
        case LLS__SAMPLE_TOP_P:
            return lls__fail(LLS_ERR_ARGUMENT, "%s: top_p[%d] is %g, must be within [0, 1]", op, r, (double)row.top_p);
        case LLS__SAMPLE_MIN_P:
            return lls__fail(LLS_ERR_ARGUMENT, "%s: min_p[%d] is %g, must be within [0, 1]", op, r, (double)row.min_p);
        case LLS__SAMPLE_PENALTY:
            return lls__fail(LLS_ERR_ARGUMENT, "%s: repetition_penalty[%d] is %g, must be > 0 and finite", op, r,
                             (double)row.penalty);
        case LLS__SAMPLE_HISTORY_LEN:
            return lls__fail(LLS_ERR_ARGUMENT, "%s: history_lens[%d] is %d, must be within [0, history.shape[1] = %d]",
                             op, r, p->history_lens[r], p->max_history);
        }
    }
    return LLS_OK;
}

static const void *data_of(const lls_tensor *t) {
    return t ? t->data : NULL;
}

lls_status lls_sample(lls_ctx *ctx, const lls_sample_args *args, lls_stream stream) {
    lls_sample_args a;
    LLS_TRY(lls__copy_args(op, &a, sizeof a, args));
    LLS_TRY(validate(ctx, &a));
    lls__sample_params p = {
        .logits = a.logits->data,
        .logits_stride = a.logits->stride[0],
        .dtype = a.logits->dtype,
        .batch = (int32_t)a.logits->shape[0],
        .vocab = (int32_t)a.logits->shape[1],
        .temperature = data_of(a.temperature),
        .top_k = data_of(a.top_k),
        .top_p = data_of(a.top_p),
        .min_p = data_of(a.min_p),
        .penalty = data_of(a.repetition_penalty),
        .seed = data_of(a.seed),
        .step = data_of(a.step),
        .history = data_of(a.history),
        .history_stride = a.history ? a.history->stride[0] : 0,
        .max_history = a.history ? (int32_t)a.history->shape[1] : 0,
        .history_lens = data_of(a.history_lens),
        .out_ids = a.out_ids->data,
        .out_probs = a.out_probs ? a.out_probs->data : NULL,
    };
    if (p.batch == 0) return LLS_OK;
    if (ctx->device.type == LLS_CPU) LLS_TRY(check_rows(&p));
    return lls__dispatch(ctx, &lls__op_sample, a.variant, &p, stream);
}
