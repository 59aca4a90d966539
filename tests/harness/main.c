/* op_test: runs the suites on one device and ends with "N passed, N failed, N skipped". See --help. */
#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/variant.h"
#include "harness/state.h"
#include "harness/suites.h"

typedef struct th_walk {
    lls_device device;
    const char *op, *variant, *match, *json_path;
    bool list, large, smallest, verbose;
    int passed, failed, skipped;
    json_t *rows;
    lls_ctx *reference, *contexts[2]; // contexts[1] has other threads (CPU) or is the same again (CUDA)
    const lls__op *current;
    int cases_of_op;
} walk_t;

static struct argp_option options[] = {
    {"device", 'd', "cpu|cuda", 0, "device under test (default cpu)", 0},
    {"op", 'o', "OP", 0, "only this op", 0},
    {"variant", 'v', "NAME", 0, "only this variant", 0},
    {"case", 'c', "TEXT", 0, "only cases whose name contains TEXT", 0},
    {"list", 'l', NULL, 0, "list cases and exit", 0},
    {"large", 'L', NULL, 0, "also cases that need gigabytes", 0},
    {"smallest", 's', NULL, 0, "only the first case of each suite that each variant takes (for memory checkers)", 0},
    {"json", 'j', "FILE", 0, "write results to FILE", 0},
    {"verbose", 'V', NULL, 0, "a line for each pass and skip", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state) {
    walk_t *w = state->input;
    switch (key) {
    case 'd':
        if (strcmp(arg, "cuda") == 0) w->device.type = LLS_CUDA;
        else if (strcmp(arg, "cpu") != 0) argp_error(state, "device is %s, must be cpu or cuda", arg);
        break;
    case 'o': w->op = arg; break;
    case 'v': w->variant = arg; break;
    case 'c': w->match = arg; break;
    case 'l': w->list = true; break;
    case 'L': w->large = true; break;
    case 's': w->smallest = true; break;
    case 'j': w->json_path = arg; break;
    case 'V': w->verbose = true; break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static void reset(th *h, const char *case_name, bool reference) {
    struct th_walk *walk = h->state->walk;
    for (int i = 0; i < h->state->num_buffers; i++) {
        th_buffer *b = &h->state->buffers[i];
        lls_free(h->ctx, b->device);
        free(b->host);
        free(b->initial);
    }
    memset(h->state, 0, sizeof *h->state);
    h->state->walk = walk;
    h->state->seed = th_seed_from(case_name);
    h->state->reference = reference;
}

static void run_side(th *h, lls_ctx *ctx, const char *variant, const char *name, const struct th_state *first,
                     void (*run)(th *, const void *), const void *param) {
    h->ctx = ctx;
    h->device = lls_ctx_device(ctx);
    h->variant = variant;
    reset(h, name, first == NULL);
    h->state->twin = first;
    run(h, param);
    if (!h->state->refused) th_check_guards(h);
}

static void report(walk_t *w, const char *variant, const char *name, const char *result, const char *detail,
                   double worst) {
    bool failed = strcmp(result, "failed") == 0;
    if (failed || w->verbose)
        printf("%-7s %s %s [%s]%s%s\n", result, w->current->name, variant, name, *detail ? ": " : "", detail);
    if (failed) fflush(stdout);
    if (strcmp(result, "passed") == 0) w->passed++;
    else if (failed) w->failed++;
    else w->skipped++;
    if (!w->rows) return;
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:f}", "op", w->current->name, "variant", variant, "case", name,
                            "result", result, "worst_error", worst);
    if (*detail) json_object_set_new(row, "detail", json_string(detail));
    json_array_append_new(w->rows, row);
}

static bool same_bits(const th_buffer *a, const th_buffer *b) {
    return a->bytes == b->bytes && memcmp(a->host, b->host, a->bytes) == 0;
}

static void compare_outputs(th *h, const th *other, void (*compare)(th *, const th_buffer *, const th_buffer *)) {
    if (h->state->error_case) return;
    for (int i = 0; i < h->state->num_buffers && i < other->state->num_buffers; i++) {
        if (h->state->buffers[i].output) compare(h, &h->state->buffers[i], &other->state->buffers[i]);
    }
}

static void compare_bits(th *h, const th_buffer *a, const th_buffer *b) {
    if (!same_bits(a, b)) th_fail(h, "%s: two runs of the same call differ in bits", a->output);
}

void th_run_case(th *h, const char *name, void (*run)(th *, const void *), const void *param) {
    walk_t *w = h->state->walk;
    if (w->match && !strstr(name, w->match)) return;
    w->cases_of_op++;
    if (w->list) {
        printf("%s [%s]\n", w->current->name, name);
        return;
    }
    static struct th_state states[3]; // reference, first run, second run
    th side[3];
    for (int i = 0; i < 3; i++) {
        states[i].walk = w;
        side[i] = (th){.state = &states[i]};
    }
    run_side(&side[0], w->reference, "ref", name, NULL, run, param);
    bool reference_failed = side[0].state->failed;
    if (reference_failed) report(w, "ref", name, "failed", side[0].state->message, 0);
    else if (w->device.type == LLS_CPU) report(w, "ref", name, "passed", "", 0);
    bool taken = false;
    for (int32_t i = 0; !reference_failed && i < w->current->num_variants; i++) {
        const lls__variant *v = &w->current->variants[i];
        if (v->device != w->device.type || strcmp(v->name, "ref") == 0 || (w->variant && strcmp(v->name, w->variant)))
            continue;
        for (int k = 0; k < 2; k++) run_side(&side[1 + k], w->contexts[k], v->name, name, &states[0], run, param);
        if (side[1].state->refused) {
            report(w, v->name, name, "skipped", side[1].state->refusal, 0);
        } else {
            taken = true;
            compare_outputs(&side[1], &side[0], th_compare);
            compare_outputs(&side[1], &side[2], compare_bits);
            bool failed = side[1].state->failed || side[2].state->failed;
            const char *message = side[1].state->failed ? side[1].state->message : side[2].state->message;
            report(w, v->name, name, failed ? "failed" : "passed", failed ? message : "", side[1].state->worst);
        }
        for (int k = 0; k < 2; k++) reset(&side[1 + k], name, false);
    }
    reset(&side[0], name, true);
    if (!reference_failed && !taken && !w->variant) report(w, "any", name, "failed", "no variant takes this case", 0);
}

static const lls__op *find_op(const char *name) {
    for (int32_t i = 0; i < lls__num_ops; i++) {
        if (strcmp(lls__ops[i]->name, name) == 0) return lls__ops[i];
    }
    fprintf(stderr, "op_test: suite for an unknown op \"%s\"\n", name);
    exit(2);
}

static lls_ctx *make_context(lls_device device, int threads) {
    lls_ctx_options opt = LLS_CTX_OPTIONS_INIT;
    opt.device = device;
    opt.num_threads = threads;
    opt.workspace_bytes = device.type == LLS_CUDA ? (size_t)256 << 20 : 0;
    lls_ctx *ctx;
    if (lls_ctx_create(&opt, &ctx)) {
        fprintf(stderr, "op_test: %s\n", lls_last_error());
        exit(2);
    }
    return ctx;
}

int main(int argc, char **argv) {
    walk_t w = {.device = {LLS_CPU, 0}};
    static const struct argp argp = {options, parse, NULL, "Checks every variant of every op against the fp64 oracle.",
                                     NULL,    NULL,  NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &w);
    if (w.json_path) w.rows = json_array();
    w.reference = make_context((lls_device){LLS_CPU, 0}, 1);
    w.contexts[0] = make_context(w.device, 1);
    w.contexts[1] = make_context(w.device, 3);
    static struct th_state state;
    state.walk = &w;
    th h = {.state = &state};
    for (int32_t i = 0; i < th_num_suites; i++) {
        const th_suite *suite = th_suites[i];
        if (w.op && strcmp(w.op, suite->op)) continue;
        w.current = find_op(suite->op);
        w.cases_of_op = 0;
        int passed = w.passed, failed = w.failed, skipped = w.skipped;
        for (int32_t j = 0; j < suite->num_cases && !(w.smallest && w.cases_of_op); j++) {
            if (!suite->cases[j].large || w.large)
                th_run_case(&h, suite->cases[j].name, suite->cases[j].run, suite->cases[j].param);
        }
        if (suite->generate && !w.smallest) suite->generate(&h);
        if (!w.list) {
            printf("%-13s %4d cases: %5d passed, %d failed, %d skipped\n", suite->op, w.cases_of_op, w.passed - passed,
                   w.failed - failed, w.skipped - skipped);
            fflush(stdout);
        }
    }
    for (int i = 0; i < 2; i++) lls_ctx_destroy(w.contexts[i]);
    lls_ctx_destroy(w.reference);
    if (w.rows) {
        json_t *root = json_pack("{s:s, s:i, s:i, s:i, s:o}", "device", w.device.type == LLS_CUDA ? "cuda" : "cpu",
                                 "passed", w.passed, "failed", w.failed, "skipped", w.skipped, "rows", w.rows);
        if (json_dump_file(root, w.json_path, JSON_INDENT(1))) {
            fprintf(stderr, "op_test: cannot write %s\n", w.json_path);
            w.failed++;
        }
        json_decref(root);
    }
    if (!w.list) printf("%d passed, %d failed, %d skipped\n", w.passed, w.failed, w.skipped);
    return w.failed || (!w.list && w.passed == 0) ? 1 : 0;
}
