#include "harness/harness.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/element.h"
#include "harness/state.h"

enum { GUARD = 256, GUARD_BYTE = 0xA5, POISON_BYTE = 0xFF };

/* ---- Buffers ---- */

static uint64_t splitmix(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double uniform(uint64_t *state) {
    return (double)(splitmix(state) >> 11) * 0x1p-53;
}

static double gaussian(uint64_t *state) {
    double u = 1 - uniform(state), v = uniform(state);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

uint64_t th_seed_from(const char *text) {
    uint64_t seed = 1469598103934665603u;
    for (; *text; text++) seed = (seed ^ (unsigned char)*text) * 1099511628211u;
    return seed;
}

static int64_t element_offset(const lls_tensor *t, int64_t index) {
    int64_t offset = 0;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        offset += index % t->shape[i] * t->stride[i];
        index /= t->shape[i];
    }
    return offset;
}

// Walks the elements in row-major order: element_offset() of each without its divisions.
typedef struct walk {
    int64_t index[LLS_MAX_DIMS], offset;
} walk;

static inline void step(walk *w, const lls_tensor *t) {
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        w->offset += t->stride[i];
        if (++w->index[i] < t->shape[i]) return;
        w->offset -= w->index[i] * t->stride[i];
        w->index[i] = 0;
    }
}

static void host_set(const lls_tensor *t, int64_t offset, double value) {
    switch (t->dtype) {
    case LLS_I32: ((int32_t *)t->data)[offset] = (int32_t)value; break;
    case LLS_I64: ((int64_t *)t->data)[offset] = (int64_t)value; break;
    case LLS_I8: ((int8_t *)t->data)[offset] = (int8_t)value; break;
    case LLS_U8: ((uint8_t *)t->data)[offset] = (uint8_t)value; break;
    default: lls__set(t, offset, value); break;
    }
}

static double host_get(const lls_tensor *t, int64_t offset) {
    switch (t->dtype) {
    case LLS_I32: return ((const int32_t *)t->data)[offset];
    case LLS_I64: return (double)((const int64_t *)t->data)[offset];
    case LLS_I8: return ((const int8_t *)t->data)[offset];
    case LLS_U8: return ((const uint8_t *)t->data)[offset];
    default: return lls__get(t, offset);
    }
}

// A new buffer, all poison between guards; its host image is where fill functions write before th_commit uploads it.
static th_buffer *new_buffer(th *h, lls_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *stride) {
    struct th_state *s = h->state;
    if (s->num_buffers == TH_MAX_BUFFERS) {
        fprintf(stderr, "harness: more than %d tensors in a case\n", TH_MAX_BUFFERS);
        exit(2);
    }
    th_buffer *b = &s->buffers[s->num_buffers++];
    *b = (th_buffer){.view = lls_tensor_make(NULL, dtype, h->device, ndim, shape)};
    if (stride) memcpy(b->view.stride, stride, (size_t)ndim * sizeof *stride);
    b->bytes = (size_t)lls__tensor_extent(&b->view);
    b->host = malloc(b->bytes + 2 * GUARD);
    if (!b->host || lls_malloc(h->ctx, b->bytes + 2 * GUARD, &b->device)) {
        fprintf(stderr, "harness: no memory for %zu bytes\n", b->bytes);
        exit(2);
    }
    memset(b->host, GUARD_BYTE, b->bytes + 2 * GUARD);
    memset(b->host + GUARD, POISON_BYTE, b->bytes);
    b->view.data = (char *)b->device + GUARD;
    b->host_view = b->view;
    b->host_view.data = b->host + GUARD;
    b->host_view.device = (lls_device){LLS_CPU, 0};
    return b;
}

static lls_tensor commit(th *h, th_buffer *b) {
    if (lls_upload(h->ctx, b->device, b->host, b->bytes + 2 * GUARD, h->stream))
        th_fail(h, "upload: %s", lls_last_error());
    b->initial = malloc(b->bytes + 2 * GUARD);
    memcpy(b->initial, b->host, b->bytes + 2 * GUARD);
    return b->view;
}

th_buffer *th_find(th *h, const lls_tensor *t) {
    for (int i = 0; i < h->state->num_buffers; i++) {
        th_buffer *b = &h->state->buffers[i];
        const char *p = t->data, *base = b->device;
        if (p >= base && p <= base + GUARD + b->bytes) return b;
    }
    fprintf(stderr, "harness: tensor was not made by the harness\n");
    exit(2);
}

void th_refresh(th *h, th_buffer *b) {
    if (lls_download(h->ctx, b->host, b->device, b->bytes + 2 * GUARD, h->stream))
        th_fail(h, "download: %s", lls_last_error());
}

// Making numbers takes longer than most of the calls under test, so each side but the first copies them.
static bool copy_twin(th *h, th_buffer *b) {
    struct th_state *s = h->state;
    int i = s->num_buffers - 1;
    if (!s->twin || i >= s->twin->num_buffers) return false;
    const th_buffer *twin = &s->twin->buffers[i];
    if (twin->bytes != b->bytes || twin->fill != b->fill || twin->normal != b->normal) return false;
    memcpy(b->host, twin->initial, b->bytes + 2 * GUARD);
    s->seed = twin->seed;
    return true;
}

lls_tensor th_normal(th *h, lls_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *stride, float scale) {
    th_buffer *b = new_buffer(h, dtype, ndim, shape, stride);
    b->normal = true;
    walk w = {.offset = 0};
    for (int64_t i = 0, n = copy_twin(h, b) ? 0 : lls_tensor_numel(&b->view); i < n; i++, step(&w, &b->view))
        host_set(&b->host_view, w.offset, scale * gaussian(&h->state->seed));
    b->seed = h->state->seed;
    return commit(h, b);
}

lls_tensor th_filled(th *h, lls_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *stride,
                     double (*fn)(int64_t, const void *), const void *user) {
    th_buffer *b = new_buffer(h, dtype, ndim, shape, stride);
    b->fill = fn;
    walk w = {.offset = 0};
    for (int64_t i = 0, n = copy_twin(h, b) ? 0 : lls_tensor_numel(&b->view); i < n; i++, step(&w, &b->view))
        host_set(&b->host_view, w.offset, fn(i, user));
    b->seed = h->state->seed;
    return commit(h, b);
}

static double the_constant(int64_t i, const void *user) {
    (void)i;
    return *(const double *)user;
}

lls_tensor th_constant(th *h, lls_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *stride,
                       double value) {
    return th_filled(h, dtype, ndim, shape, stride, the_constant, &value);
}

lls_tensor th_data(th *h, lls_dtype dtype, int32_t ndim, const int64_t *shape, const void *data) {
    th_buffer *b = new_buffer(h, dtype, ndim, shape, NULL);
    if (b->bytes) memcpy(b->host_view.data, data, b->bytes);
    return commit(h, b);
}

lls_tensor th_output(th *h, const char *name, lls_dtype dtype, int32_t ndim, const int64_t *shape,
                     const int64_t *stride, double tol) {
    lls_tensor t = commit(h, new_buffer(h, dtype, ndim, shape, stride));
    th_also_output(h, name, &t, tol);
    return t;
}

void th_also_output(th *h, const char *name, const lls_tensor *t, double tol) {
    th_buffer *b = th_find(h, t);
    b->output = name;
    b->tol = tol;
    b->view = *t; // a case may register a sub-view
    b->host_view = *t;
    b->host_view.device = (lls_device){LLS_CPU, 0};
    b->host_view.data = b->host + ((char *)t->data - (char *)b->device);
}

void th_allow_nan(th *h, const lls_tensor *t) {
    th_find(h, t)->allow_nan = true;
}

double th_tol(lls_dtype dtype) {
    return dtype == LLS_F16 ? 2e-3 : dtype == LLS_BF16 ? 1e-2 : 1e-5;
}

void th_poison_workspace(th *h, size_t bytes) {
    void *nan = malloc(bytes ? bytes : 1);
    memset(nan, POISON_BYTE, bytes);
    if (lls_ctx_reserve(h->ctx, bytes)) th_fail(h, "reserve: %s", lls_last_error());
    void *workspace;
    if (lls__ctx_workspace(h->ctx, "harness", bytes, &workspace) ||
        lls_upload(h->ctx, workspace, nan, bytes, h->stream)) {
        th_fail(h, "poison: %s", lls_last_error());
    }
    free(nan);
}

/* ---- Expectations ---- */

void th_fail(th *h, const char *format, ...) {
    struct th_state *s = h->state;
    s->failed = true;
    if (s->message[0]) return; // the first failure explains the rest
    va_list args;
    va_start(args, format);
    vsnprintf(s->message, sizeof s->message, format, args);
    va_end(args);
}

bool th_is_reference(const th *h) {
    return h->state->reference;
}

bool th_ok(th *h, lls_status status) {
    if (status == LLS_OK) {
        if (lls_synchronize(h->ctx, h->stream)) th_fail(h, "synchronize: %s", lls_last_error());
        return true;
    }
    if (status == LLS_ERR_VARIANT && !h->state->reference) {
        h->state->refused = true;
        snprintf(h->state->refusal, sizeof h->state->refusal, "%s", lls_last_error());
    } else {
        th_fail(h, "%s: %s", lls_status_name(status), lls_last_error());
    }
    return false;
}

void th_expect_error(th *h, lls_status got, lls_status want, const char *part) {
    if (got != want) {
        th_fail(h, "expected %s, got %s (%s)", lls_status_name(want), lls_status_name(got),
                got ? lls_last_error() : "");
    } else if (!strstr(lls_last_error(), part)) {
        th_fail(h, "expected a message with \"%s\", got \"%s\"", part, lls_last_error());
    }
    lls_synchronize(h->ctx, h->stream);
    for (int i = 0; i < h->state->num_buffers; i++) {
        th_buffer *b = &h->state->buffers[i];
        if (!b->output) continue;
        th_refresh(h, b);
        if (memcmp(b->host, b->initial, b->bytes + 2 * GUARD)) th_fail(h, "the failed call wrote to %s", b->output);
    }
    h->state->error_case = true;
}

// The view in the buffer's host image, which is brought up to date.
static lls_tensor refreshed(th *h, const lls_tensor *t) {
    th_buffer *b = th_find(h, t);
    th_refresh(h, b);
    lls_tensor host = *t;
    host.data = b->host + ((char *)t->data - (char *)b->device);
    return host;
}

double th_value(th *h, const lls_tensor *t, int64_t index) {
    lls_tensor one = *t;
    int64_t bytes = 0;
    if (lls_download(h->ctx, &bytes, lls__at(t, element_offset(t, index)), (size_t)lls__elem_size(t->dtype), h->stream))
        th_fail(h, "download: %s", lls_last_error());
    one.data = &bytes;
    return host_get(&one, 0);
}

void th_expect_near(th *h, const lls_tensor *t, int64_t index, double want, double relative_tol) {
    double got = th_value(h, t, index);
    bool equal = got == want || (isnan(got) && isnan(want)) || fabs(got - want) <= relative_tol * fabs(want);
    if (!equal) th_fail(h, "element %lld is %.9g, expected %.9g", (long long)index, got, want);
}

void th_expect_bits_equal(th *h, const lls_tensor *a, const lls_tensor *b) {
    lls_tensor host_a = refreshed(h, a), host_b = refreshed(h, b);
    walk at_a = {.offset = 0}, at_b = at_a;
    for (int64_t i = 0, n = lls_tensor_numel(a); i < n; i++, step(&at_a, a), step(&at_b, b)) {
        double x = host_get(&host_a, at_a.offset), y = host_get(&host_b, at_b.offset);
        if (memcmp(&x, &y, sizeof x)) {
            th_fail(h, "element %lld: %.9g and %.9g should have equal bits", (long long)i, x, y);
            return;
        }
    }
}

static uint32_t hash(int64_t i) {
    uint32_t u = (uint32_t)i * 2654435761u + 12345u;
    u ^= u >> 15;
    u *= 2246822519u;
    return u ^ u >> 13;
}

double th_hash(int64_t i, const void *user) {
    (void)user;
    return ((int)(hash(i) >> 8 & 255) - 128) / 64.0;
}

double th_hash9(int64_t i, const void *user) {
    (void)user;
    return (int)((hash(i) >> 8) % 9) - 4;
}

/* ---- Comparison ---- */

// Of a number in a type that results are quantised to: from |value| to the next one. 0 for other types.
static double step_above(lls_dtype dtype, double value) {
    switch (dtype) {
    case LLS_I8: return 1;
    case LLS_F8_E4M3: return fmax(ldexp(1, ilogb(value) - 3), 0x1p-9);
    case LLS_F8_E5M2: return fmax(ldexp(1, ilogb(value) - 2), 0x1p-16);
    default: return 0;
    }
}

// Bytes that no element of the view covers must still be what they were before the call.
static void check_gaps(th *h, const th_buffer *b) {
    size_t total = b->bytes + 2 * GUARD, size = (size_t)lls_dtype_block_bytes(b->view.dtype);
    char *covered = calloc(total, 1);
    size_t base = (size_t)((char *)b->view.data - (char *)b->device);
    walk w = {.offset = 0};
    if (b->output) {
        if (lls_dtype_block_elems(b->view.dtype) > 1) memset(covered + GUARD, 1, b->bytes);
        else
            for (int64_t i = 0, n = lls_tensor_numel(&b->view); i < n; i++, step(&w, &b->view))
                memset(covered + base + (size_t)w.offset * size, 1, size);
    }
    for (size_t i = 0; i < total; i++) {
        if (!covered[i] && b->host[i] != b->initial[i]) {
            th_fail(h, "%s: byte %lld, outside the elements, was written", b->output ? b->output : "an input",
                    (long long)i - GUARD);
            break;
        }
    }
    free(covered);
}

void th_check_guards(th *h) {
    for (int i = 0; i < h->state->num_buffers; i++) {
        th_refresh(h, &h->state->buffers[i]);
        check_gaps(h, &h->state->buffers[i]);
    }
}

static double rms(const lls_tensor *t) {
    double sum = 0;
    int64_t n = lls_tensor_numel(t), finite = 0;
    walk w = {.offset = 0};
    for (int64_t i = 0; i < n; i++, step(&w, t)) {
        double v = host_get(t, w.offset);
        if (isfinite(v)) sum += v * v, finite++;
    }
    return finite ? sqrt(sum / (double)finite) : 0;
}

void th_compare(th *h, const th_buffer *got, const th_buffer *want) {
    const lls_tensor *g = &got->host_view, *w = &want->host_view;
    if (want->tol < 0) return;
    bool rounded = lls__is_float(w->dtype) || step_above(w->dtype, 1) > 0;
    double scale = rounded ? rms(w) : 0, worst = 0;
    walk at_g = {.offset = 0}, at_w = at_g;
    for (int64_t i = 0, n = lls_tensor_numel(w); i < n; i++, step(&at_g, g), step(&at_w, w)) {
        double x = host_get(g, at_g.offset), y = host_get(w, at_w.offset);
        if (isnan(y) && !want->allow_nan) {
            th_fail(h, "%s: the oracle's element %lld is NaN", want->output, (long long)i);
            return;
        }
        if (x == y || (isnan(x) && isnan(y))) continue;
        double gap = fabs(x - y), forgiven = want->tol > 0 ? step_above(w->dtype, y) : 0;
        double error = gap <= forgiven ? 0 : (gap - forgiven) / (fabs(y) + scale); // NaN where x is
        if (!(error <= want->tol)) {
            th_fail(h, "%s: element %lld is %.9g, the oracle says %.9g (error %.3g, allowed %.3g)", want->output,
                    (long long)i, x, y, error, want->tol);
            return;
        }
        if (error > worst) worst = error;
    }
    if (worst > h->state->worst) h->state->worst = worst;
}
