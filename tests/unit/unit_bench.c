/* The runner of the benches: peers that are right, wrong, absent or late; where the oracle looks; what a race counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/timer.h"
#include "core/error.h"
#include "unit/unit.h"

// ---- A small suite in place of the ops' own -----------------------------------------------------------

enum { SIZE = 96, CUT = 8 };
static bool spread, wrong_past_cut;
static const bench_peer *const *peers;

static void make(bench *b, const void *params) {
    (void)params;
    if (spread) bench_spread(b);
    int64_t m = bench_cut(b, SIZE, CUT), n = bench_cut(b, SIZE, CUT);
    lls_gemm_args args = LLS_GEMM_ARGS_INIT;
    args.a = bench_normal(b, LLS_F32, 2, (int64_t[]){m, SIZE}, 1);
    args.b = bench_normal(b, LLS_F32, 2, (int64_t[]){SIZE, n}, 1);
    args.out = bench_output(b, LLS_F32, 2, (int64_t[]){m, n}, 1e-4);
    bench_args(b, &args, sizeof args);
    bench_param(b, "size", SIZE);
}

// What each product takes at least, by the clock: processors change their speed, and by more than a factor between two
// samples.
static double least_seconds;

static void linger(void) {
    double end = bench_now() + least_seconds;
    while (bench_now() < end) continue;
}

// As a kernel that goes wrong past its first tile.
static void spoil(const lls_gemm_args *args) {
    const lls_tensor *out = args->out;
    if (!wrong_past_cut || out->shape[0] == CUT) return;
    for (int64_t i = 0; i < SIZE * SIZE; i++) {
        if (i / SIZE >= CUT || i % SIZE >= CUT) ((float *)out->data)[i] = 1000;
    }
}

static lls_status call(lls_ctx *ctx, void *args, const char *variant, lls_stream stream) {
    lls_gemm_args *a = args;
    a->variant = variant;
    LLS_TRY(lls_gemm(ctx, a, stream));
    spoil(a);
    linger();
    return LLS_OK;
}

static void cases(bench *b) {
    bench_case(b, "square", "small", LLS_F32, make, NULL);
}

static bench_suite suite = {.op = "gemm", .call = call, .cases = cases};
const bench_suite *const bench_suites[] = {&suite};
const int32_t bench_num_suites = 1;

// ---- Peers --------------------------------------------------------------------------------------------

typedef struct state {
    lls_ctx *ctx;
    const void *const *args;
    int32_t copies, calls;
} state;
static int32_t num_open;

static const char *version(void) {
    return "1.2";
}

static const char *no_version(void) {
    (void)lls__fail(LLS_ERR_NO_DEVICE, "absent: no library here");
    return NULL;
}

static lls_status open_state(lls_ctx *ctx, const void *const *args, int32_t copies, void **out) {
    state *s = *out = calloc(1, sizeof *s);
    assert_non_null(s);
    *s = (state){ctx, args, copies, 0};
    num_open++;
    return LLS_OK;
}

static lls_status open_nothing(lls_ctx *ctx, const void *const *args, int32_t copies, void **out) {
    (void)ctx, (void)args, (void)copies, (void)out;
    return lls__fail(LLS_ERR_UNSUPPORTED, "other: does not do this");
}

static void close_state(void *user) {
    free(user);
    num_open--;
}

// Every product twice: half our speed.
static lls_status call_twice(int32_t copy, lls_stream stream, void *user) {
    state *s = user;
    assert_in_range(copy, 0, s->copies - 1);
    lls_gemm_args args = *(const lls_gemm_args *)s->args[copy];
    args.variant = "cpu_portable";
    for (int i = 0; i < 2; i++) {
        LLS_TRY(lls_gemm(s->ctx, &args, stream));
        linger();
    }
    return LLS_OK;
}

static lls_status call_nothing(int32_t copy, lls_stream stream, void *user) {
    (void)copy, (void)stream, (void)user;
    return LLS_OK;
}

static lls_status call_once(int32_t copy, lls_stream stream, void *user) {
    if (((state *)user)->calls++ > 0) return lls__fail(LLS_ERR_INTERNAL, "late: cannot be called again");
    return call_twice(copy, stream, user);
}

static const bench_peer twice = {"twice", LLS_CPU, version, open_state, call_twice, close_state};
static const bench_peer wrong = {"wrong", LLS_CPU, version, open_state, call_nothing, close_state};
static const bench_peer absent = {"absent", LLS_CPU, no_version, open_state, call_twice, close_state};
static const bench_peer other = {"other", LLS_CPU, version, open_nothing, call_twice, close_state};
static const bench_peer on_cuda = {"on_cuda", LLS_CUDA, version, open_state, call_twice, close_state};
static const bench_peer late = {"late", LLS_CPU, version, open_state, call_once, close_state};

// ---- Runs ---------------------------------------------------------------------------------------------

static bench_row got;
static char why[256], peer_why[BENCH_MAX_PEERS][256];
static int32_t num_rows;

static void on_row(const bench_row *row, void *user) {
    (void)user;
    got = *row; // but its reasons end with the call
    snprintf(why, sizeof why, "%s", row->why ? row->why : "");
    for (int32_t i = 0; i < row->num_peers; i++) {
        snprintf(peer_why[i], sizeof peer_why[i], "%s", row->peers[i].why ? row->peers[i].why : "");
    }
    num_rows++;
}

static void run(bench_options options) {
    options.device = (lls_device){LLS_CPU, 0};
    options.threads = 1;
    options.variant = "cpu_portable";
    options.seconds = options.seconds > 0 ? options.seconds : 0.01;
    options.on_row = on_row;
    suite.peers = peers;
    num_rows = 0;
    assert_int_equal(bench_run(&options), LLS_OK);
    assert_int_equal(num_rows, 1);
    assert_int_equal(num_open, 0);
}

static int reset(void **unused) {
    (void)unused;
    spread = wrong_past_cut = false;
    least_seconds = 0;
    peers = NULL;
    return 0;
}

static void a_row_without_peers(void **unused) {
    (void)unused;
    run((bench_options){0});
    assert_string_equal(why, "");
    assert_true(got.chosen && !got.failed && got.samples >= 3 && got.num_peers == 0 && got.ratio == 0);
    assert_true(0 < got.best && got.best <= got.median && got.median <= got.p95 && got.sustained == 0);
    assert_true(got.record.flops == 2.0 * SIZE * SIZE * SIZE);
}

static void a_peer_of_half_the_speed(void **unused) {
    (void)unused;
    peers = (const bench_peer *const[]){&twice, NULL};
    least_seconds = 0.01;
    run((bench_options){.seconds = 0.1, .sustained = 0.1});
    assert_int_equal(got.num_peers, 1);
    assert_string_equal(got.peers[0].name, "twice");
    assert_string_equal(got.peers[0].version, "1.2");
    assert_true(1.4 < got.ratio && got.ratio < 2.8); // 2, on a machine that does other things too
    assert_true(1.4 < got.ratio_sustained && got.ratio_sustained < 2.8);
    assert_true(got.ratio == got.peers[0].median / got.median);
}

static void peers_that_have_no_time_say_why(void **unused) {
    (void)unused;
    peers = (const bench_peer *const[]){&other, &wrong, &on_cuda, &absent, NULL};
    run((bench_options){0});
    assert_int_equal(got.num_peers, 2); // another device's, and one that is not meant for this, are not peers here
    assert_non_null(strstr(peer_why[0], "times the tolerance"));
    assert_string_equal(peer_why[1], "absent: no library here");
    assert_null(got.peers[1].version);
    assert_true(got.median > 0 && got.ratio == 0 && !got.failed);
}

static void a_peer_that_fails_later_leaves_ours_a_time(void **unused) {
    (void)unused;
    peers = (const bench_peer *const[]){&late, NULL};
    run((bench_options){0});
    assert_string_equal(peer_why[0], "late: cannot be called again");
    assert_true(got.median > 0 && got.ratio == 0 && got.peers[0].median == 0 && !got.failed);
}

static void no_peers_when_told_so(void **unused) {
    (void)unused;
    peers = (const bench_peer *const[]){&twice, NULL};
    run((bench_options){.no_peers = true});
    assert_int_equal(got.num_peers, 0);
}

// The leading part is right; spread over the output the oracle sees that the rest is not.
static void spread_looks_past_the_first_tile(void **unused) {
    (void)unused;
    wrong_past_cut = true;
    run((bench_options){0});
    assert_string_equal(why, "");
    spread = true;
    run((bench_options){0});
    assert_true(got.failed && got.median == 0);
    assert_non_null(strstr(why, "times the tolerance"));
    wrong_past_cut = false;
    run((bench_options){0});
    assert_string_equal(why, "");
    assert_true(got.error < 1);
}

// ---- Races --------------------------------------------------------------------------------------------

static lls_status count_call(int32_t index, lls_stream stream, void *user) {
    (void)stream;
    ((int32_t *)user)[index]++;
    for (double start = bench_now(); bench_now() - start < 2e-5;) {
    }
    return LLS_OK;
}

static void a_race_rotates_and_has_equal_loops(void **unused) {
    (void)unused;
    enum { COPIES = 3, OPENINGS = 8 }; // a loop that is opened begins with the first copy
    int32_t counts[2][COPIES] = {0};
    bench_racer racers[2] = {{.launch = count_call, .user = counts[0]}, {.launch = count_call, .user = counts[1]}};
    assert_int_equal(bench_race((lls_device){LLS_CPU, 0}, COPIES, 0.02, 0, racers, 2), LLS_OK);
    assert_true(racers[0].count >= 3 && racers[0].count == racers[1].count);
    assert_int_equal(racers[0].loop.calls, racers[1].loop.calls);
    for (int i = 0; i < 2; i++) {
        assert_true(counts[i][COPIES - 1] > 0);
        assert_in_range(counts[i][0] - counts[i][COPIES - 1], 0, OPENINGS);
        assert_true(bench_percentile(&racers[i], 0) >= 2e-5);
        assert_true(bench_percentile(&racers[i], 0) <= bench_percentile(&racers[i], 50));
        assert_true(racers[i].sustained == 0);
    }
}

static lls_status fail_call(int32_t index, lls_stream stream, void *user) {
    (void)index, (void)stream, (void)user;
    return lls__fail(LLS_ERR_INTERNAL, "not today");
}

static void a_race_ends_with_the_first_failure(void **unused) {
    (void)unused;
    bench_racer racer = {.launch = fail_call};
    assert_int_equal(bench_race((lls_device){LLS_CPU, 0}, 1, 0.02, 0, &racer, 1), LLS_ERR_INTERNAL);
    assert_string_equal(lls_last_error(), "not today");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_row_without_peers, reset),
        cmocka_unit_test_setup(a_peer_of_half_the_speed, reset),
        cmocka_unit_test_setup(peers_that_have_no_time_say_why, reset),
        cmocka_unit_test_setup(a_peer_that_fails_later_leaves_ours_a_time, reset),
        cmocka_unit_test_setup(no_peers_when_told_so, reset),
        cmocka_unit_test_setup(spread_looks_past_the_first_tile, reset),
        cmocka_unit_test(a_race_rotates_and_has_equal_loops),
        cmocka_unit_test(a_race_ends_with_the_first_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
