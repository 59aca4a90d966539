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
static const double slow = 0.5;   // seconds: a call that takes longer is timed once
static const double too_slow = 2; // a rung that would take longer is left out where another has run

// What one case holds: the oracle's copy, and the copies on the device that calls rotate through.
typedef struct copies {
    bench_set *oracle, *sets;
    const void **args; // of the sets
    bench_arena oracle_arena, arena;
    int32_t rotation;
    const char *variant;
    double work; // operations of a call; 0 until a variant has run
    bench *b;
} copies;

static lls_status make_set(bench *b, bench_set *set, bench_arena *arena, const bench_set *whole, bench_make make,
                           const void *params) {
    *set = (bench_set){0};
    b->set = set, b->arena = arena, b->ctx = arena->ctx, b->status = LLS_OK;
    b->oracle = whole != NULL, b->whole = whole, b->spread = false;
    make(b, params);
    return b->status;
}

// As many copies as exceed twice the cache, so that a copy was evicted when its turn comes again.
static lls_status make_copies(bench *b, copies *c, bench_make make, const void *params) {
    *c = (copies){.b = b, .rotation = 1, .oracle_arena = {.ctx = b->oracle_ctx}, .arena = {.ctx = b->device_ctx}};
    c->oracle = malloc(sizeof *c->oracle);
    c->sets = malloc(sizeof *c->sets * MAX_ROTATION);
    c->args = malloc(sizeof *c->args * MAX_ROTATION);
    if (!c->oracle || !c->sets || !c->args) return lls__fail(LLS_ERR_MEMORY, "bench: no memory for a case");
    LLS_TRY(make_set(b, &c->sets[0], &c->arena, NULL, make, params));
    LLS_TRY(make_set(b, c->oracle, &c->oracle_arena, &c->sets[0], make, params));
    size_t enough = 2 * lls__cache_bytes(b->options->device), one = c->arena.total ? c->arena.total : 1;
    size_t rotation = enough / one + 1;
    c->rotation = rotation < MAX_ROTATION ? (int32_t)rotation : MAX_ROTATION;
    for (int32_t i = 1; i < c->rotation; i++) LLS_TRY(make_set(b, &c->sets[i], &c->arena, NULL, make, params));
    for (int32_t i = 0; i < c->rotation; i++) c->args[i] = c->sets[i].args;
    return LLS_OK;
}

static void free_copies(copies *c) {
    bench_arena_free(&c->oracle_arena);
    bench_arena_free(&c->arena);
    free(c->oracle);
    free(c->sets);
    free(c->args);
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

// The rows of `from` that the cut tensor `want` has, into `to`.
static lls_status fetch_rows(const bench *b, const lls_tensor *from, const lls_tensor *want, char *to) {
    size_t row_bytes = (size_t)bench_bytes(from->dtype, bench_row_length(from));
    int64_t rows = bench_num_rows(want);
    if (rows == bench_num_rows(from))
        return lls_download(b->device_ctx, to, from->data, (size_t)rows * row_bytes, NULL);
    for (int64_t r = 0; r < rows; r++) {
        const char *row = (const char *)from->data + (size_t)bench_whole_row(b, r, want, from) * row_bytes;
        LLS_TRY(lls_download(b->device_ctx, to + (size_t)r * row_bytes, row, row_bytes, NULL));
    }
    return LLS_OK;
}

// Worst error over the part that both have, in units of the tolerance; infinite for NaN. `got` has want's rows.
static double worst_error(const bench *b, const lls_tensor *got, const lls_tensor *want, double tol) {
    int64_t n = lls_tensor_numel(want), length = bench_row_length(want), whole = bench_row_length(got);
    double squares = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) squares += element(want, i) * element(want, i);
    double rms = sqrt(squares / (double)(n ? n : 1));
    for (int64_t i = 0; i < n; i++) {
        int64_t column = bench_whole_index(b, i % length, length, whole);
        double w = element(want, i), g = element(got, i / length * whole + column);
        double error = fabs(g - w), allowed = tol * (fabs(w) + rms);
        double units = g == w ? 0 : !(error <= INFINITY) || allowed == 0 ? INFINITY : error / allowed;
        if (units > worst) worst = units;
    }
    return worst;
}

static lls_status compare(const copies *c, double *worst) {
    *worst = 0;
    for (int32_t i = 0; i < c->oracle->num_tensors; i++) {
        const lls_tensor *want = &c->oracle->tensors[i];
        lls_tensor host = c->sets[0].tensors[i];
        if (c->oracle->tol[i] < 0) continue;
        size_t bytes = (size_t)(bench_bytes(host.dtype, bench_row_length(&host)) * (double)bench_num_rows(want));
        host.data = malloc(bytes + 1);
        if (!host.data) return lls__fail(LLS_ERR_MEMORY, "bench: no memory for %zu bytes", bytes);
        lls_status status = fetch_rows(c->b, &c->sets[0].tensors[i], want, host.data);
        double error = status ? 0 : worst_error(c->b, &host, want, c->oracle->tol[i]);
        free(host.data);
        LLS_TRY(status);
        if (error > *worst) *worst = error;
    }
    return LLS_OK;
}

// NaN into the outputs: what was there before must not pass for this call's.
static lls_status poison_outputs(const copies *c) {
    const bench_set *set = &c->sets[0];
    for (int32_t i = 0; i < set->num_tensors; i++) {
        if (set->tol[i] >= 0) LLS_TRY(bench_poison(c->arena.ctx, &set->tensors[i]));
    }
    return LLS_OK;
}

// One call, and how far its result is off.
static lls_status check(copies *c, bench_launch launch, void *user, double *error, double *seconds) {
    LLS_TRY(poison_outputs(c));
    double start = bench_now();
    LLS_TRY(launch(0, NULL, user));
    LLS_TRY(lls_synchronize(c->arena.ctx, NULL));
    *seconds = bench_now() - start;
    LLS_TRY(compare(c, error));
    if (*error <= 1) return LLS_OK;
    return lls__fail(LLS_ERR_INTERNAL, "wrong: %.3g times the tolerance off the fp64 oracle", *error);
}

// ---- Peers ------------------------------------------------------------------------------------------

// The peers of a case: those that are right are ready to be timed.
typedef struct peers {
    struct {
        const bench_peer *peer;
        void *state; // NULL: cannot be timed
        char why[LLS__ERROR_BYTES];
        bench_peer_time time;
    } all[BENCH_MAX_PEERS];
    int32_t count;
} peers;

static lls_status open_peer(copies *c, const bench_peer *peer, void **state) {
    double error, seconds;
    lls_status status = peer->open(c->b->device_ctx, c->args, c->rotation, state);
    if (!status) status = check(c, peer->call, *state, &error, &seconds);
    if (status && *state) peer->close(*state), *state = NULL;
    return status;
}

static void open_peers(copies *c, peers *p) {
    const bench *b = c->b;
    p->count = 0;
    if (b->options->no_peers || !b->suite->peers) return;
    for (int32_t i = 0; b->suite->peers[i] && p->count < BENCH_MAX_PEERS; i++) {
        const bench_peer *peer = b->suite->peers[i];
        if (peer->device != b->options->device.type) continue;
        const char *version = peer->version();
        void *state = NULL;
        lls_status status = version ? open_peer(c, peer, &state) : LLS_ERR_NO_DEVICE;
        if (status == LLS_ERR_UNSUPPORTED) continue;
        int32_t at = p->count++;
        p->all[at].peer = peer, p->all[at].state = state;
        p->all[at].time = (bench_peer_time){.name = peer->name, .version = version};
        if (!status) continue;
        snprintf(p->all[at].why, sizeof p->all[at].why, "%s", lls_last_error());
        p->all[at].time.why = p->all[at].why;
    }
}

static void close_peers(peers *p) {
    for (int32_t i = 0; i < p->count; i++) {
        if (p->all[i].state) p->all[i].peer->close(p->all[i].state);
        p->all[i].state = NULL;
    }
}

// Peers that were right but cannot be timed, for the reason that was just met. False when there are none.
static bool drop_peers(peers *p, bench_row *row) {
    bool any = false;
    for (int32_t i = 0; i < p->count; i++) {
        if (!p->all[i].state) continue;
        snprintf(p->all[i].why, sizeof p->all[i].why, "%s", lls_last_error());
        p->all[i].time.why = p->all[i].why;
        row->peers[i] = p->all[i].time;
        any = true;
    }
    close_peers(p);
    return any;
}

// ---- One row ----------------------------------------------------------------------------------------

// Time of the fastest peer over ours; 0 where one of them is unknown.
static double ratio(double ours, const bench_row *row, bool sustained) {
    double best = 0;
    for (int32_t i = 0; i < row->num_peers; i++) {
        double peer = sustained ? row->peers[i].sustained : row->peers[i].median;
        if (peer > 0 && (best == 0 || peer < best)) best = peer;
    }
    return ours > 0 ? best / ours : 0;
}

static void note_times(bench_row *row, const bench_racer *racers, const int32_t *peer_of, int32_t count) {
    row->median = bench_percentile(&racers[0], 50);
    row->p95 = bench_percentile(&racers[0], 95);
    row->best = racers[0].samples[0];
    row->sustained = racers[0].sustained;
    row->samples = racers[0].count;
    for (int32_t i = 1; i < count; i++) {
        row->peers[peer_of[i]].median = bench_percentile(&racers[i], 50);
        row->peers[peer_of[i]].sustained = racers[i].sustained;
    }
    row->ratio = ratio(row->median, row, false);
    row->ratio_sustained = ratio(row->sustained, row, true);
}

static lls_status time_row(copies *c, const peers *p, bench_row *row) {
    const bench_options *o = c->b->options;
    bench_racer *racers = calloc(1 + BENCH_MAX_PEERS, sizeof *racers);
    int32_t count = 1, peer_of[1 + BENCH_MAX_PEERS];
    if (!racers) return lls__fail(LLS_ERR_MEMORY, "bench: no memory for samples");
    racers[0].launch = launch_copy, racers[0].user = c;
    for (int32_t i = 0; i < p->count; i++) {
        if (!p->all[i].state) continue;
        racers[count].launch = p->all[i].peer->call, racers[count].user = p->all[i].state;
        peer_of[count++] = i;
    }
    lls_status status = bench_race(o->device, c->rotation, o->seconds, o->sustained, racers, count);
    if (!status) note_times(row, racers, peer_of, count);
    free(racers);
    return status;
}

static lls_status check_and_time(copies *c, peers *p, bench_row *row) {
    double seconds;
    LLS_TRY(lls_ctx_record(c->b->device_ctx, &row->record, 1)); // the timed calls are not recorded
    lls_status status = check(c, launch_copy, c, &row->error, &seconds);
    lls_ctx_record(c->b->device_ctx, NULL, 0);
    if (status) return status;
    if (seconds > slow) {
        row->median = row->p95 = row->best = seconds;
        row->samples = 1;
        return LLS_OK;
    }
    status = time_row(c, p, row);
    return status && drop_peers(p, row) ? time_row(c, p, row) : status;
}

// What a variant reached at a case before, as operations a second.
static bench_speed *speed_of(bench *b, const bench_row *row) {
    for (int32_t i = 0; i < b->num_speeds; i++) {
        if (b->speeds[i].variant == row->variant && b->speeds[i].dtype == row->dtype) return &b->speeds[i];
    }
    if (b->num_speeds == BENCH_MAX_SPEEDS) return NULL;
    b->speeds[b->num_speeds] = (bench_speed){.variant = row->variant, .dtype = row->dtype};
    return &b->speeds[b->num_speeds++];
}

// A rung that needs seconds for what the rungs before it did at once. The first rung of a case always runs.
static bool is_too_slow(bench *b, const bench_row *row, double work, char *why, size_t size) {
    const bench_speed *speed = speed_of(b, row);
    if (!speed || speed->ops_per_s == 0 || work / speed->ops_per_s < too_slow) return false;
    snprintf(why, size, "left out: a call would take about %.0f s", work / speed->ops_per_s);
    return true;
}

static void run_variant(bench *b, copies *c, peers *p, const lls_variant_info *v) {
    char why[LLS__ERROR_BYTES];
    bench_row row = b->row;
    row.variant = c->variant = v->variant;
    row.idea = v->idea;
    for (int32_t i = 0; i < p->count; i++) row.peers[row.num_peers++] = p->all[i].time;
    if (is_too_slow(b, &row, c->work, why, sizeof why)) {
        row.why = why;
    } else {
        lls_status status = check_and_time(c, p, &row);
        if (status) {
            snprintf(why, sizeof why, "%s", lls_last_error());
            row.why = why;
            row.failed = status != LLS_ERR_VARIANT;
        } else {
            row.chosen = c->work == 0;
            c->work = row.record.flops > 0 ? row.record.flops : 1;
            bench_speed *speed = speed_of(b, &row);
            if (speed) speed->ops_per_s = c->work / row.median;
        }
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

static bool case_wanted(const bench *b, const char *dtype) {
    const bench_options *o = b->options;
    if (b->fatal || (o->match && !strstr(b->name, o->match)) || (o->dtype && strcmp(dtype, o->dtype) != 0))
        return false;
    return any_wanted(b);
}

// Every copy's arguments with configuration `index`; false past the last. What all have in common decides: the first.
static bool pin_all(bench *b, copies *c, int32_t index, char *config) {
    for (int32_t i = 0; i < c->rotation; i++) {
        char again[LLS_GEMM_CONFIG_CHARS];
        if (!b->suite->pin(b->device_ctx, c->sets[i].args, index, i ? again : config)) return false;
    }
    return true;
}

// Each configuration of the variant that a call takes.
static void run_configs(bench *b, copies *c) {
    peers none = {.count = 0};
    char config[LLS_GEMM_CONFIG_CHARS];
    if (!b->suite->pin) return;
    for (int32_t i = 0; i < b->options->configs && pin_all(b, c, i, config); i++) {
        b->selected++;
        b->row.config = config, b->row.args = c->sets[0].args;
        c->work = 0;
        run_variant(b, c, &none, &(lls_variant_info){.op = b->suite->op, .variant = NULL});
    }
}

static void run_variants(bench *b, copies *c) {
    peers p;
    lls_variant_info v;
    open_peers(c, &p);
    for (int32_t i = 0; lls_variant_at(i, &v) && !(b->options->only_chosen && c->work > 0); i++) {
        if (!wanted(b, &v)) continue;
        b->selected++;
        run_variant(b, c, &p, &v);
    }
    close_peers(&p);
}

void bench_case(bench *b, const char *model, const char *phase, lls_dtype dtype, bench_make make, const void *params) {
    copies c;
    snprintf(b->name, sizeof b->name, "%s, %s", model, phase);
    if (!case_wanted(b, lls_dtype_name(dtype))) return;
    b->row = (bench_row){.op = b->suite->op, .name = b->name, .dtype = lls_dtype_name(dtype)};
    lls_status status = make_copies(b, &c, make, params);
    if (!status) status = b->suite->call(b->oracle_ctx, c.oracle->args, "ref", NULL);
    if (!status && b->options->configs) run_configs(b, &c);
    else if (!status) run_variants(b, &c);
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
        if (options->suite) b.suite = options->suite, i = bench_num_suites;
        if (options->op && strcmp(options->op, b.suite->op) != 0) continue;
        b.suite->cases(&b);
        status = b.fatal;
    }
    lls_ctx_destroy(b.oracle_ctx);
    lls_ctx_destroy(b.device_ctx);
    if (!status && b.selected == 0) {
        return lls__fail(LLS_ERR_ARGUMENT,
                         "bench: no row fits op \"%s\", variant \"%s\", case \"%s\", dtype \"%s\" on this device",
                         options->op ? options->op : "any", options->variant ? options->variant : "any",
                         options->match ? options->match : "any", options->dtype ? options->dtype : "any");
    }
    return status;
}
