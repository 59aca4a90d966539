#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "core/error.h"
#include "core/log.h"
#include "dispatch/record.h"

// Why a row cannot run on this context whatever the arguments; NULL when it can.
static const char *unavailable(const lls_ctx *ctx, const lls__variant *v, char *text, size_t size) {
    if (v->device != ctx->device.type) {
        snprintf(text, size, "runs on %s, the context is on %s", lls__device_name(v->device),
                 lls__device_name(ctx->device.type));
        return text;
    }
    if (v->device == LLS_CPU && v->level > ctx->level) {
        snprintf(text, size, "needs %s, this machine has %s", lls__cpu_level_name(v->level),
                 lls__cpu_level_name(ctx->level));
        return text;
    }
    if (v->device == LLS_CUDA && v->min_sm > ctx->sm) {
        snprintf(text, size, "needs compute capability %d.%d, this device has %d.%d", v->min_sm / 10, v->min_sm % 10,
                 ctx->sm / 10, ctx->sm % 10);
        return text;
    }
    if (v->device == LLS_CUDA && v->max_sm && v->max_sm < ctx->sm) {
        snprintf(text, size, "is made for compute capability %d.%d, this device has %d.%d", v->max_sm / 10,
                 v->max_sm % 10, ctx->sm / 10, ctx->sm % 10);
        return text;
    }
    return NULL;
}

static const char *refusal(const lls_ctx *ctx, const lls__variant *v, const void *args, char *text, size_t size) {
    const char *why = unavailable(ctx, v, text, size);
    return why || !v->reject ? why : v->reject(args);
}

static pthread_once_t force_once = PTHREAD_ONCE_INIT;
static char *force_list; // "op:variant,op:variant", as LLS_FORCE has it

static void read_force(void) {
    const char *value = getenv("LLS_FORCE");
    force_list = value ? strdup(value) : NULL;
}

// The variant that LLS_FORCE names for this op, in `name`; false when it names none.
static bool forced_variant(const char *op, char *name, size_t size) {
    pthread_once(&force_once, read_force);
    size_t op_len = strlen(op);
    for (const char *item = force_list; item && *item;) {
        size_t len = strcspn(item, ",");
        if (len > op_len && item[op_len] == ':' && strncmp(item, op, op_len) == 0) {
            snprintf(name, size, "%.*s", (int)(len - op_len - 1), item + op_len + 1);
            return true;
        }
        item += len + (item[len] == ',');
    }
    return false;
}

lls_status lls__dispatch(lls_ctx *ctx, const lls__op *op, const char *pinned, const void *args, lls_stream stream) {
    char why_text[160], forced[64];
    bool plan = lls__log_plan_enabled();
    if (!pinned && forced_variant(op->name, forced, sizeof forced)) pinned = forced;
    for (int32_t i = 0; i < op->num_variants; i++) {
        const lls__variant *v = &op->variants[i];
        if (pinned && strcmp(pinned, v->name) != 0) continue;
        const char *why = refusal(ctx, v, args, why_text, sizeof why_text);
        if (!why) {
            if (plan) lls__log_plan("plan: %s takes %s", op->name, v->name);
            return ctx->recording.records ? lls__record_call(ctx, op, v, args, stream) : v->launch(ctx, args, stream);
        }
        if (plan) lls__log_plan("plan: %s passes over %s: %s", op->name, v->name, why);
        if (pinned)
            return lls__fail(LLS_ERR_VARIANT, "%s: variant %s is pinned but refuses: %s", op->name, pinned, why);
    }
    if (pinned)
        return lls__fail(LLS_ERR_VARIANT, "%s: variant is \"%s\", no such row (llmspeed info lists them)", op->name,
                         pinned);
    return lls__fail(LLS_ERR_UNSUPPORTED,
                     "%s: no implementation on %s takes these arguments (LLS_LOG=plan says why each refused)", op->name,
                     lls__device_name(ctx->device.type));
}

// A row's availability on this machine as a whole: the CPU, or CUDA device 0.
static const char *unavailable_here(const lls__variant *v) {
    static _Thread_local char text[160];
    lls_ctx here = {.device = {v->device, 0}, .level = lls__cpu_level_detect()};
    if (v->device == LLS_CUDA) {
        if (lls_cuda_device_count() == 0) return "no CUDA device with a working driver";
        if (lls__cuda_multiprocessors(0, &here.sm, &here.num_sms)) return "CUDA device 0 does not answer";
    }
    return unavailable(&here, v, text, sizeof text);
}

bool lls_variant_at(int32_t index, lls_variant_info *out) {
    for (int32_t i = 0; i < lls__num_ops; i++) {
        const lls__op *op = lls__ops[i];
        if (index >= op->num_variants) {
            index -= op->num_variants;
            continue;
        }
        if (index < 0) break;
        const lls__variant *v = &op->variants[index];
        *out = (lls_variant_info){
            .op = op->name,
            .variant = v->name,
            .device = v->device,
            .dtypes = v->dtypes,
            .min_sm = v->min_sm,
            .unavailable = unavailable_here(v),
            .idea = v->idea,
        };
        return true;
    }
    return false;
}
