/* Every op on a caller's stream (known fault X01), in a CUDA graph (X03), and on a GPU that is not the current one (X02, where
 * there are two).
 *
 * X03: the op's first call in the process is captured in global mode; three replays with new input values give the bits
 * of eager calls.
 * X01: the stream is held up by a sleeping host function, then new input is copied on it, then the op runs: its result
 * must be that of the new input, and the default stream must stay empty. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/check.h"
#include "llmspeed/llmspeed.h"

enum { TOKENS = 5, HIDDEN = 64, HEADS = 4, KV_HEADS = 2, DIM = 16, PAGE = 4, PAGES = 6, VOCAB = 50 };

static lls_ctx *ctx;
static lls_device gpu = {LLS_CUDA, 0};
static cudaStream_t stream;

/* An op to test: `input` is refilled before each run with values of the kind that the op reads there; `output` is
 * compared. */
typedef struct op_call {
    const char *name;
    lls_status (*run)(lls_stream s);
    const lls_tensor *input, *output;
} op_call;

static uint32_t seed = 1;

static float next_value(void) {
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / (float)(1 << 23) - 1.0f;
}

static void *device_copy(const void *host, size_t bytes) {
    void *p;
    if (lls_malloc(ctx, bytes, &p) || lls_upload(ctx, p, host, bytes, NULL)) {
        fprintf(stderr, "stream_test: %s\n", lls_last_error());
        exit(2);
    }
    return p;
}

static lls_tensor floats(int32_t ndim, const int64_t *shape) {
    lls_tensor t = lls_tensor_make(NULL, LLS_F32, gpu, ndim, shape);
    int64_t n = lls_tensor_numel(&t);
    float *values = malloc((size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++) values[i] = next_value();
    t.data = device_copy(values, (size_t)n * sizeof *values);
    free(values);
    return t;
}

static lls_tensor ints(int64_t n, const int32_t *values) {
    return lls_tensor_make(device_copy(values, (size_t)n * 4), LLS_I32, gpu, 1, &n);
}

#define SHAPE(...)      \
    (const int64_t[]) { \
        __VA_ARGS__     \
    }
static lls_tensor x, w, y, matrix_b, product, heads_q, heads_k, heads_v, rotated, k_cache, v_cache, attn, lse, merged,
    table, embedded, logits, positions, ids, slots, page_table, kv_lens, sampled, dense_k, dense_v, dense_q, dense_out,
    experts, offsets, routed;

static void make_tensors(void) {
    x = floats(2, SHAPE(TOKENS, HIDDEN)), w = floats(1, SHAPE(HIDDEN)), y = floats(2, SHAPE(TOKENS, HIDDEN));
    matrix_b = floats(2, SHAPE(HIDDEN, HIDDEN)), product = floats(2, SHAPE(TOKENS, HIDDEN));
    experts = floats(3, SHAPE(2, HIDDEN, HIDDEN)), routed = floats(2, SHAPE(TOKENS, HIDDEN));
    offsets = ints(3, (const int32_t[]){0, 2, TOKENS});
    heads_q = floats(3, SHAPE(TOKENS, HEADS, DIM)), heads_k = floats(3, SHAPE(TOKENS, KV_HEADS, DIM)),
    heads_v = floats(3, SHAPE(TOKENS, KV_HEADS, DIM));
    rotated = floats(3, SHAPE(TOKENS, HEADS, DIM));
    k_cache = floats(4, SHAPE(PAGES, PAGE, KV_HEADS, DIM)), v_cache = floats(4, SHAPE(PAGES, PAGE, KV_HEADS, DIM));
    attn = floats(4, SHAPE(1, TOKENS, HEADS, DIM)), lse = floats(2, SHAPE(TOKENS, HEADS)),
    merged = floats(3, SHAPE(TOKENS, HEADS, DIM));
    table = floats(2, SHAPE(VOCAB, HIDDEN)), embedded = floats(2, SHAPE(TOKENS, HIDDEN)),
    logits = floats(2, SHAPE(TOKENS, VOCAB));
    dense_q = floats(4, SHAPE(1, TOKENS, HEADS, DIM)), dense_k = floats(4, SHAPE(1, TOKENS, KV_HEADS, DIM)),
    dense_v = floats(4, SHAPE(1, TOKENS, KV_HEADS, DIM));
    dense_out = floats(4, SHAPE(1, TOKENS, HEADS, DIM));
    positions = ints(TOKENS, (const int32_t[]){0, 1, 7, 100, 131071});
    ids = ints(TOKENS, (const int32_t[]){0, 49, 3, 3, 17});
    sampled = ints(TOKENS, (const int32_t[TOKENS]){0});
    kv_lens = ints(1, (const int32_t[]){11});
    page_table = ints(3, (const int32_t[]){4, 0, 2});
    page_table.ndim = 2, page_table.shape[0] = 1, page_table.shape[1] = 3, page_table.stride[0] = 3,
    page_table.stride[1] = 1;
    static const int64_t slot_values[TOKENS] = {0, 9, -1, 23, 4};
    slots = lls_tensor_make(device_copy(slot_values, sizeof slot_values), LLS_I64, gpu, 1, SHAPE(TOKENS));
}

static lls_status run_embed(lls_stream s) {
    lls_embed_args a = LLS_EMBED_ARGS_INIT;
    a.table = &table, a.ids = &ids, a.out = &embedded;
    return lls_embed(ctx, &a, s);
}

static lls_status run_rmsnorm(lls_stream s) {
    lls_rmsnorm_args a = LLS_RMSNORM_ARGS_INIT;
    a.x = &x, a.weight = &w, a.out = &y, a.eps = 1e-5f;
    return lls_rmsnorm(ctx, &a, s);
}

static lls_status run_layernorm(lls_stream s) {
    lls_layernorm_args a = LLS_LAYERNORM_ARGS_INIT;
    a.x = &x, a.weight = &w, a.out = &y, a.eps = 1e-5f;
    return lls_layernorm(ctx, &a, s);
}

static lls_status run_gemm(lls_stream s) {
    lls_gemm_args a = LLS_GEMM_ARGS_INIT;
    a.a = &x, a.b = &matrix_b, a.out = &product;
    return lls_gemm(ctx, &a, s);
}

static lls_status run_gemm_grouped(lls_stream s) {
    lls_gemm_grouped_args a = LLS_GEMM_GROUPED_ARGS_INIT;
    a.a = &x, a.b = &experts, a.offsets = &offsets, a.out = &routed;
    return lls_gemm_grouped(ctx, &a, s);
}

static lls_status run_linear(lls_stream s) {
    lls_linear_args a = LLS_LINEAR_ARGS_INIT;
    a.x = &x, a.weight = &matrix_b, a.out = &product;
    return lls_linear(ctx, &a, s);
}

static lls_status run_rope(lls_stream s) {
    lls_rope_args a = LLS_ROPE_ARGS_INIT;
    a.x = &heads_q, a.out = &rotated, a.positions = &positions;
    return lls_rope(ctx, &a, s);
}

static lls_status run_kv_write(lls_stream s) {
    lls_kv_write_args a = LLS_KV_WRITE_ARGS_INIT;
    a.k = &heads_k, a.v = &heads_v, a.k_cache = &k_cache, a.v_cache = &v_cache, a.slots = &slots;
    return lls_kv_write(ctx, &a, s);
}

static lls_status run_prefill(lls_stream s) {
    lls_attn_prefill_args a = LLS_ATTN_PREFILL_ARGS_INIT;
    a.q = &dense_q, a.k = &dense_k, a.v = &dense_v, a.out = &dense_out, a.mask.causal = true;
    return lls_attn_prefill(ctx, &a, s);
}

static lls_status run_decode_splits(lls_stream s, int32_t num_splits) {
    lls_attn_decode_args a = LLS_ATTN_DECODE_ARGS_INIT;
    a.q = &dense_q, a.k_cache = &k_cache, a.v_cache = &v_cache, a.page_table = &page_table, a.kv_lens = &kv_lens,
    a.out = &attn;
    a.mask.causal = true, a.num_splits = num_splits;
    return lls_attn_decode(ctx, &a, s);
}

static lls_status run_decode(lls_stream s) {
    return run_decode_splits(s, 0);
}

static lls_status run_split_decode(lls_stream s) {
    return run_decode_splits(s, 3);
}

static lls_status run_merge(lls_stream s) {
    lls_attn_merge_args a = LLS_ATTN_MERGE_ARGS_INIT;
    a.a = &heads_q, a.lse_a = &lse, a.b = &rotated, a.lse_b = &lse, a.out = &merged;
    return lls_attn_merge(ctx, &a, s);
}

static lls_status run_act(lls_stream s) {
    lls_gated_act_args a = LLS_GATED_ACT_ARGS_INIT;
    a.gate = &x, a.up = &product, a.out = &y;
    return lls_gated_act(ctx, &a, s);
}

static lls_status run_sample(lls_stream s) {
    lls_sample_args a = LLS_SAMPLE_ARGS_INIT;
    a.logits = &logits, a.out_ids = &sampled;
    return lls_sample(ctx, &a, s);
}

static const op_call calls[] = {
    {"embed", run_embed, &table, &embedded},
    {"rmsnorm", run_rmsnorm, &x, &y},
    {"layernorm", run_layernorm, &x, &y},
    {"gemm", run_gemm, &x, &product},
    {"gemm_grouped", run_gemm_grouped, &x, &routed},
    {"linear", run_linear, &x, &product},
    {"rope", run_rope, &heads_q, &rotated},
    {"kv_write", run_kv_write, &heads_v, &v_cache},
    {"attn_prefill", run_prefill, &dense_q, &dense_out},
    {"attn_decode", run_decode, &dense_q, &attn},
    {"attn_decode, 3 splits", run_split_decode, &dense_q, &attn},
    {"attn_merge", run_merge, &heads_q, &merged},
    {"gated_act", run_act, &x, &y},
    {"sample", run_sample, &logits, &sampled},
};
enum { NUM_CALLS = sizeof calls / sizeof *calls };

static size_t bytes_of(const lls_tensor *t) {
    return (size_t)(lls_tensor_numel(t) * lls_dtype_block_bytes(t->dtype));
}

static void fill(float *values, const lls_tensor *t) {
    for (int64_t i = 0, n = lls_tensor_numel(t); i < n; i++) values[i] = next_value();
}

static void *download(const lls_tensor *t) {
    void *host = malloc(bytes_of(t));
    CHECK(lls_download(ctx, host, t->data, bytes_of(t), stream) == LLS_OK, "%s", lls_last_error());
    return host;
}

// The output of an eager call with these input values.
static void *eager(const op_call *c, const float *values) {
    CHECK(lls_upload(ctx, c->input->data, values, bytes_of(c->input), stream) == LLS_OK, "%s", lls_last_error());
    CHECK(c->run(stream) == LLS_OK, "%s: %s", c->name, lls_last_error());
    return download(c->output);
}

static cudaGraphExec_t capture(const op_call *c) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess, "%s: cannot begin the capture",
          c->name);
    lls_status status = c->run(stream);
    cudaError_t error = cudaStreamEndCapture(stream, &graph);
    CHECK(status == LLS_OK && !error, "%s: captured with %s, %s", c->name, lls_status_name(status),
          cudaGetErrorString(error));
    if (graph) CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess, "%s: cannot instantiate the graph", c->name);
    if (graph) cudaGraphDestroy(graph);
    return exec;
}

static void x03_one(const op_call *c) {
    cudaGraphExec_t exec = capture(c);
    float *values = malloc(bytes_of(c->input));
    for (int replay = 0; exec && replay < 3; replay++) {
        fill(values, c->input);
        CHECK(lls_upload(ctx, c->input->data, values, bytes_of(c->input), stream) == LLS_OK, "%s", lls_last_error());
        CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess && cudaStreamSynchronize(stream) == cudaSuccess,
              "%s: the replay fails", c->name);
        void *got = download(c->output), *want = eager(c, values);
        CHECK(memcmp(got, want, bytes_of(c->output)) == 0, "%s: replay %d differs from the eager call", c->name,
              replay);
        free(got), free(want);
    }
    free(values);
    if (exec) cudaGraphExecDestroy(exec);
}

static void x03(void) {
    for (int i = 0; i < NUM_CALLS; i++) x03_one(&calls[i]);
}

static void hold_up(void *user) {
    (void)user;
    usleep(50000);
}

static void x01_one(const op_call *c) {
    size_t bytes = bytes_of(c->input);
    float *old = malloc(bytes), *fresh = malloc(bytes);
    fill(old, c->input), fill(fresh, c->input);
    void *staged = device_copy(fresh, bytes), *want = eager(c, fresh), *stale = eager(c, old);
    CHECK(memcmp(want, stale, bytes_of(c->output)) != 0, "%s: the test's inputs do not tell old from new", c->name);
    cudaLaunchHostFunc(stream, hold_up, NULL);
    cudaMemcpyAsync(c->input->data, staged, bytes, cudaMemcpyDeviceToDevice, stream);
    CHECK(c->run(stream) == LLS_OK, "%s: %s", c->name, lls_last_error());
    CHECK(cudaStreamQuery(cudaStreamLegacy) == cudaSuccess, "%s: work waits on the default stream", c->name);
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady, "%s: the call waited for its stream", c->name);
    cudaGetLastError(); // cudaErrorNotReady is the answer wanted
    void *got = download(c->output);
    CHECK(memcmp(got, want, bytes_of(c->output)) == 0, "%s: the result is not that of the input copied on its stream",
          c->name);
    lls_free(ctx, staged);
    free(old), free(fresh), free(want), free(stale), free(got);
}

static void x01(void) {
    for (int i = 0; i < NUM_CALLS; i++) x01_one(&calls[i]);
}

// A recorded call says what it launched. Captured, it may not wait for lengths and slots, and counts what they allow.
static void recording_one(const op_call *c) {
    lls_record eager_call = {0}, captured = {0};
    lls_ctx_record(ctx, &eager_call, 1);
    CHECK(c->run(stream) == LLS_OK, "%s: %s", c->name, lls_last_error());
    CHECK(lls_ctx_recorded(ctx) == 1, "%s: %d calls recorded", c->name, lls_ctx_recorded(ctx));
    lls_ctx_record(ctx, &captured, 1);
    cudaGraphExec_t exec = capture(c);
    if (exec) cudaGraphExecDestroy(exec);
    CHECK(lls_ctx_recorded(ctx) == 1, "%s: %d captured calls recorded", c->name, lls_ctx_recorded(ctx));
    lls_ctx_record(ctx, NULL, 0);
    const lls_record *r = &eager_call;
    CHECK(r->num_kernels > 0 && r->kernel && strncmp(r->kernel, "lls_", 4) == 0, "%s: %d launches of %s", c->name,
          r->num_kernels, r->kernel ? r->kernel : "nothing");
    CHECK(r->occupancy > 0 && r->occupancy <= 1 && r->registers > 0, "%s: occupancy %g, %d registers", c->name,
          r->occupancy, r->registers);
    CHECK((int64_t)r->grid[0] * r->grid[1] * r->grid[2] * r->block[0] * r->block[1] * r->block[2] > 0,
          "%s: the recorded launch has no threads", c->name);
    bool cut = c->run == run_kv_write || c->run == run_decode || c->run == run_split_decode;
    CHECK(cut ? captured.bytes > r->bytes : captured.bytes == r->bytes, "%s: %g bytes captured, %g eager", c->name,
          captured.bytes, r->bytes);
}

static void recording(void) {
    for (int i = 0; i < NUM_CALLS; i++) recording_one(&calls[i]);
    lls_ceilings ceilings = {0};
    CHECK(lls_measure_ceilings(ctx, &ceilings) == LLS_OK && ceilings.read_bytes_per_s > 1e10, "%g bytes/s: %s",
          ceilings.read_bytes_per_s, lls_last_error());
}

// A context, a stream and tensors on cuda:index, the same values for every index; device 0 is current afterwards.
static void set_up(int index) {
    lls_ctx_options options = LLS_CTX_OPTIONS_INIT;
    gpu.index = index;
    options.device = gpu, options.workspace_bytes = 1 << 20;
    seed = 1;
    cudaError_t error = cudaSetDevice(index);
    if (!error) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (!error) error = cudaSetDevice(0);
    if (error || lls_ctx_create(&options, &ctx)) {
        fprintf(stderr, "stream_test: cuda:%d: %s\n", index, error ? cudaGetErrorString(error) : lls_last_error());
        exit(2);
    }
    make_tensors();
}

static void tear_down(void) {
    lls_ctx_destroy(ctx);
    cudaStreamDestroy(stream);
}

static void eager_all(void *outputs[NUM_CALLS]) {
    for (int i = 0; i < NUM_CALLS; i++) {
        float *values = malloc(bytes_of(calls[i].input));
        fill(values, calls[i].input);
        outputs[i] = eager(&calls[i], values);
        free(values);
    }
}

// X02: device 1 computes what device 0 computes, with device 0 current before and after; tensors of another device are refused.
static void x02(void) {
    void *first[NUM_CALLS], *second[NUM_CALLS];
    set_up(0);
    eager_all(first);
    lls_tensor elsewhere = x;
    tear_down();
    set_up(1);
    eager_all(second);
    for (int i = 0; i < NUM_CALLS; i++) {
        CHECK(memcmp(first[i], second[i], bytes_of(calls[i].output)) == 0, "%s: cuda:1 differs from cuda:0",
              calls[i].name);
        free(first[i]), free(second[i]);
    }
    int current = -1;
    CHECK(cudaGetDevice(&current) == cudaSuccess && current == 0, "the current device is %d afterwards", current);
    lls_tensor here = x;
    x = elsewhere;
    CHECK(run_rmsnorm(stream) == LLS_ERR_DEVICE && strstr(lls_last_error(), "cuda:0"), "mixed devices: %s",
          lls_last_error());
    x = here;
    CHECK(run_rmsnorm(stream) == LLS_OK, "the call after a refused one: %s", lls_last_error());
    tear_down();
}

int main(void) {
    if (lls_cuda_device_count() == 0) {
        skip_test("X01, X02, X03, recordings", "no CUDA device");
        printf("0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    set_up(0);
    run_test("X03 each op captured in a graph, first call of the process included", x03);
    run_test("X01 each op stays on its caller's stream", x01);
    run_test("recordings, eager and captured, and ceilings", recording);
    tear_down();
    if (lls_cuda_device_count() > 1) run_test("X02 a GPU that is not the current one", x02);
    else skip_test("X02 a GPU that is not the current one", "one CUDA device");
    return check_summary();
}
