#include "contexts.h"

#include <Python.h>
#include <pthread.h>

namespace llm_speed {

// ---- Recording --------------------------------------------------------------------------------------

static thread_local std::vector<RecordedCall> *recorded_calls;

void record_calls(std::vector<RecordedCall> *calls) {
    recorded_calls = calls;
}

// With the context to itself.
static lls_status run_noted(lls_ctx *ctx, lls_stream stream, Call call, const void *args) {
    if (!recorded_calls) return call(ctx, args, stream);
    RecordedCall noted = {{}, stream};
    lls_ctx_record(ctx, &noted.record, 1);
    lls_status status = call(ctx, args, stream);
    lls_ctx_record(ctx, nullptr, 0);
    if (lls_ctx_recorded(ctx)) recorded_calls->push_back(noted);
    return status;
}

// ---- CPU --------------------------------------------------------------------------------------------

static pthread_mutex_t cpu_mutex = PTHREAD_MUTEX_INITIALIZER;
static lls_ctx *cpu_ctx;
static int32_t cpu_threads; // as asked for; 0: one a core

static void lock_cpu() {
    pthread_mutex_lock(&cpu_mutex);
}
static void unlock_cpu() {
    pthread_mutex_unlock(&cpu_mutex);
}
// A forked child has none of the pool's threads: it makes a context of its own.
static void forget_cpu() {
    cpu_ctx = nullptr;
    unlock_cpu();
}

// With the mutex held.
static lls_status need_cpu_ctx() {
    static bool handles_fork;
    if (!handles_fork) handles_fork = pthread_atfork(lock_cpu, unlock_cpu, forget_cpu) == 0;
    if (cpu_ctx) return LLS_OK;
    lls_ctx_options options = LLS_CTX_OPTIONS_INIT;
    options.num_threads = cpu_threads;
    return lls_ctx_create(&options, &cpu_ctx);
}

static lls_status run_on_cpu(Call call, const void *args) {
    lls_status status;
    Py_BEGIN_ALLOW_THREADS lock_cpu();
    status = need_cpu_ctx();
    if (!status) status = run_noted(cpu_ctx, nullptr, call, args);
    unlock_cpu();
    Py_END_ALLOW_THREADS return status;
}

lls_status set_num_threads(int32_t num_threads) {
    lls_ctx_options options = LLS_CTX_OPTIONS_INIT;
    options.num_threads = num_threads;
    lls_ctx *made = nullptr;
    lls_status status = lls_ctx_create(&options, &made); // checks the number
    if (status) return status;
    Py_BEGIN_ALLOW_THREADS lock_cpu();
    std::swap(cpu_ctx, made);
    cpu_threads = num_threads;
    unlock_cpu();
    lls_ctx_destroy(made);
    Py_END_ALLOW_THREADS return LLS_OK;
}

static lls_status count_threads(lls_ctx *ctx, const void *out, lls_stream) {
    **(int32_t *const *)out = lls_ctx_num_threads(ctx);
    return LLS_OK;
}

lls_status get_num_threads(int32_t *num_threads) {
    return run_on_cpu(count_threads, &num_threads);
}

// ---- CUDA: guarded by the GIL -----------------------------------------------------------------------

static std::vector<lls_ctx *> cuda_ctxs; // by device index; without a workspace, so that any stream may use them

struct Workspace {
    int32_t device;
    lls_stream stream;
    size_t bytes;
    lls_ctx *ctx;
};
static std::vector<Workspace> workspaces; // one a device and stream, so that streams do not share memory

static lls_status cuda_ctx(int32_t index, lls_ctx **out) {
    if (index >= 0 && (size_t)index < cuda_ctxs.size() && cuda_ctxs[index]) {
        *out = cuda_ctxs[index];
        return LLS_OK;
    }
    lls_ctx_options options = LLS_CTX_OPTIONS_INIT;
    options.device = {LLS_CUDA, index};
    lls_status status = lls_ctx_create(&options, out);
    if (status) return status;
    if ((size_t)index >= cuda_ctxs.size()) cuda_ctxs.resize(index + 1);
    cuda_ctxs[index] = *out;
    return LLS_OK;
}

static Workspace *find_workspace(int32_t device, lls_stream stream) {
    for (Workspace &w : workspaces) {
        if (w.device == device && w.stream == stream) return &w;
    }
    return nullptr;
}

// A larger workspace is a new one: a captured graph may go on using the old.
static lls_status need_workspace(int32_t device, lls_stream stream, size_t bytes, lls_ctx **out) {
    Workspace *found = find_workspace(device, stream);
    if (!found || found->bytes < bytes) {
        lls_ctx_options options = LLS_CTX_OPTIONS_INIT;
        options.device = {LLS_CUDA, device};
        options.workspace_bytes = found && bytes < 2 * found->bytes ? 2 * found->bytes : bytes;
        lls_ctx *made;
        lls_status status = lls_ctx_create(&options, &made);
        if (status) return status;
        if (!found) {
            workspaces.push_back({device, stream, 0, nullptr});
            found = &workspaces.back();
        }
        found->bytes = options.workspace_bytes;
        found->ctx = made;
    }
    *out = found->ctx;
    return LLS_OK;
}

lls_status reserve_workspace(lls_device device, lls_stream stream, size_t bytes) {
    lls_ctx *ctx;
    return device.type == LLS_CUDA ? need_workspace(device.index, stream, bytes, &ctx) : LLS_OK;
}

lls_status run_on(lls_device device, lls_stream stream, Call call, const void *args) {
    if (device.type != LLS_CUDA) return run_on_cpu(call, args);
    lls_ctx *ctx;
    if (!workspaces.empty()) {
        Workspace *workspace = find_workspace(device.index, stream);
        if (workspace) return run_noted(workspace->ctx, stream, call, args);
    }
    lls_status status = cuda_ctx(device.index, &ctx);
    return status ? status : run_noted(ctx, stream, call, args);
}

} // namespace llm_speed
