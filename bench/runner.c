#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/element.h"
#include "core/error.h"
#include "profile/ceilings.h"
#include "state.h"
#include "timer.h"

enum { MAX_ROTATION = 1024 };

// What one case holds: the oracle's copy, and the copies on the device that calls rotate through.
typedef struct copies {
    bench_set *oracle, *sets;
    bench_arena oracle_arena, arena;
    int32_t rotation;
    const char *variant;
    bench *b;
} copies;

static lls_status make_set(bench *b, bench_set *set, bench_arena *arena, bool oracle, bench_make make,
                           const void *params) {
    *set = (bench_set){0};
    b->set = set, b->arena = arena, b->oracle = oracle, b->ctx = arena->ctx, b->status = LLS_OK;
    make(b, params);
    return b->status;
}

// As many copies as exceed twice the cache, so that a copy was evicted when its turn comes again.
static lls_status make_copies(bench *b, copies *c, bench_make make, const void *params) {
    *c = (copies){.b = b, .rotation = 1, .oracle_arena = {.ctx = b->oracle_ctx}, .arena = {.ctx = b->device_ctx}};
    c->oracle = malloc(sizeof *c->oracle);
    c->sets = malloc(sizeof *c->sets * MAX_ROTATION);
    if (!c->oracle || !c->sets) return lls__fail(LLS_ERR_MEMORY, "bench: no memory for a case");
    LLS_TRY(make_set(b, c->oracle, &c->oracle_arena, true, make, params));
    LLS_TRY(make_set(b, &c->sets[0], &c->arena, false, make, params));
    size_t enough = 2 * lls__cache_bytes(b->options->device), one = c->arena.total ? c->arena.total : 1;
    size_t rotation = enough / one + 1;
    c->rotation = rotation < MAX_ROTATION ? (int32_t)rotation : MAX_ROTATION;
    for (int32_t i = 1; i < c->rotation; i++) LLS_TRY(make_set(b, &c->sets[i], &c->arena, false, make, params));
    return LLS_OK;
}

static void free_copies(copies *c) {
    bench_arena_free(&c->oracle_arena);
    bench_arena_free(&c->arena);
    free(c->oracle);
    free(c->sets);
}

static lls_status launch_copy(int32_t index, lls_stream stream, void *user) {
    copies *c = user;
    return c->b->suite->call(c->b->device_ctx, c->sets[index].args, c->variant, stream);
}

// ---- The check against the oracle -------------------------------------------------------------------

static double element(const lls_tensor *host, int64_t offset) {
    if (host->dtype == LLS_I32) return ((const int32_t *)host->data)[offset];
    if (host->dtype == LLS_I64) return (double)((const int64_t *)host->data)[offset];
    return lls__get(host, offset);
}

// Offset in `t` of the element that has row-major index `i` in the (no larger) tensor `part`.
static int64_t offset_of(const lls_tensor *t, const lls_tensor *part, int64_t i) {
    int64_t offset = 0;
    for (int32_t d = part->ndim - 1; d >= 0; d--) {
        offset += i % part->shape[d] * t->stride[d];
        i /= part->shape[d];
    }
    return offset;
}

// Worst error over the part that both have, in units of the tolerance; infinite for NaN.
static double worst_error(const lls_tensor *got, const lls_tensor *want, double tol) {
    int64_t n = lls_tensor_numel(want);
    double squares = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) squares += element(want, i) * element(want, i);
    double rms = sqrt(squares / (double)(n ? n : 1));
    for (int64_t i = 0; i < n; i++) {
        double w = element(want, i), g = element(got, offset_of(got, want, i));
        double error = fabs(g - w), allowed = tol * (fabs(w) + rms);
        double units = g == w ? 0 : !(error <= INFINITY) || allowed == 0 ? INFINITY : error / allowed;
        if (units > worst) worst = units;
    }
    return worst;
}

static lls_status compare(const copies *c, double *worst) {
    *worst = 0;
    for (int32_t i = 0; i < c->oracle->num_tensors; i++) {
        lls_tensor host = c->sets[0].tensors[i];
        if (c->oracle->tol[i] < 0) continue;
        size_t bytes = (size_t)bench_bytes(host.dtype, lls_tensor_numel(&host));
        host.data = malloc(bytes ? bytes : 1);
        if (!host.data) return lls__fail(LLS_ERR_MEMORY, "bench: no memory for %zu bytes", bytes);
        lls_status status = lls_download(c->arena.ctx, host.data, c->sets[0].tensors[i].data, bytes, NULL);
        double error = status ? 0 : worst_error(&host, &c->oracle->tensors[i], c->oracle->tol[i]);
        free(host.data);
        LLS_TRY(status);
        if (error > *worst) *worst = error;
    }
    return LLS_OK;
}

// NaN into the outputs: what the variant before wrote must not pass for this one's.
static lls_status poison_outputs(const copies *c) {
    const bench_set *set = &c->sets[0];
    for (int32_t i = 0; i < set->num_tensors; i++) {
        if (set->tol[i] < 0) continue;
        size_t bytes = (size_t)bench_bytes(set->tensors[i].dtype, lls_tensor_numel(&set->tensors[i]));
        void *nan = malloc(bytes ? bytes : 1);
        if (!nan) return lls__fail(LLS_ERR_MEMORY, "bench: no memory for %zu bytes", bytes);
        memset(nan, 0xff, bytes);
        lls_status status = lls_upload(c->arena.ctx, set->tensors[i].data, nan, bytes, NULL);
        free(nan);
        LLS_TRY(status);
    }
    return LLS_OK;
}

// ---- One row ----------------------------------------------------------------------------------------

// The first call, noted. The timed ones are not.
static lls_status record_call(copies *c, lls_record *record) {
    LLS_TRY(lls_ctx_record(c->b->device_ctx, record, 1));
    lls_status status = launch_copy(0, NULL, c);
    lls_ctx_record(c->b->device_ctx, NULL, 0);
    return status;
}

static lls_status check_and_time(copies *c, bench_row *row, bench_samples *samples) {
    LLS_TRY(poison_outputs(c));
    LLS_TRY(record_call(c, &row->record));
    LLS_TRY(lls_synchronize(c->arena.ctx, NULL));
    LLS_TRY(compare(c, &row->error));
    if (row->error > 1) {
        return lls__fail(LLS_ERR_INTERNAL, "wrong: %.3g times the tolerance off the fp64 oracle", row->error);
    }
    return bench_time(c->b->options->device, c->rotation, c->b->options->seconds, launch_copy, c, samples);
}

static void run_variant(bench *b, copies *c, const char *variant, bool *chosen) {
    char why[LLS__ERROR_BYTES];
    bench_samples samples = {.count = 0};
    bench_row row = b->row;
    row.variant = c->variant = variant;
    lls_status status = check_and_time(c, &row, &samples);
    if (status) {
        snprintf(why, sizeof why, "%s", lls_last_error());
        row.why = why;
        row.failed = status != LLS_ERR_VARIANT;
    } else {
        row.median = bench_percentile(&samples, 50);
        row.p95 = bench_percentile(&samples, 95);
        row.best = samples.seconds[0];
        row.chosen = !*chosen;
        *chosen = true;
    }
    b->options->on_row(&row, b->options->user);
}

static bool wanted(const bench *b, const lls_variant_info *v) {
    if (strcmp(v->op, b->suite->op) != 0 || v->device != b->options->device.type || v->unavailable) return false;
    return b->options->variant ? strcmp(v->variant, b->options->variant) == 0 : strcmp(v->variant, "ref") != 0;
}

static bool any_wanted(const bench *b) {
    lls_variant_info v;
    for (int32_t i = 0; lls_variant_at(i, &v); i++) {
        if (wanted(b, &v)) return true;
    }
    return false;
}

void bench_case(bench *b, const char *model, const char *phase, lls_dtype dtype, bench_make make, const void *params) {
    lls_variant_info v;
    copies c;
    snprintf(b->name, sizeof b->name, "%s, %s", model, phase);
    if (b->fatal || (b->options->match && !strstr(b->name, b->options->match)) || !any_wanted(b)) return;
    b->row = (bench_row){.op = b->suite->op, .name = b->name, .dtype = lls_dtype_name(dtype)};
    lls_status status = make_copies(b, &c, make, params);
    if (!status) status = b->suite->call(b->oracle_ctx, c.oracle->args, "ref", NULL);
    bool chosen = false;
    for (int32_t i = 0; !status && lls_variant_at(i, &v); i++) {
        if (!wanted(b, &v)) continue;
        b->selected++;
        run_variant(b, &c, v.variant, &chosen);
    }
    free_copies(&c);
    b->fatal = status;
}

// ---- All of them ------------------------------------------------------------------------------------

static lls_status make_context(lls_device device, int32_t threads, lls_ctx **out) {
    lls_ctx_options options = LLS_CTX_OPTIONS_INIT;
    options.device = device;
    options.num_threads = threads;
    options.workspace_bytes = device.type == LLS_CUDA ? (size_t)256 << 20 : 0; // more than any case asks for
    return lls_ctx_create(&options, out);
}

lls_status bench_run(const bench_options *options) {
    bench b = {.options = options};
    LLS_TRY(make_context(options->device, options->threads, &b.device_ctx));
    lls_status status = make_context((lls_device){LLS_CPU, 0}, 0, &b.oracle_ctx);
    for (int32_t i = 0; !status && i < bench_num_suites; i++) {
        b.suite = bench_suites[i];
        if (options->op && strcmp(options->op, b.suite->op) != 0) continue;
        b.suite->cases(&b);
        status = b.fatal;
    }
    lls_ctx_destroy(b.oracle_ctx);
    lls_ctx_destroy(b.device_ctx);
    if (!status && b.selected == 0) {
        return lls__fail(LLS_ERR_ARGUMENT, "bench: no row fits op \"%s\", variant \"%s\", case \"%s\" on this device",
                         options->op ? options->op : "any", options->variant ? options->variant : "any",
                         options->match ? options->match : "any");
    }
    return status;
}
