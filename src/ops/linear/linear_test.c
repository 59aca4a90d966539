/* linear: known faults G01 (out is never read), G02, G03, Q01, Q02 (integer rounding), Q07; every weight type, as in a
 * file and packed; both kinds of compute; token and row counts around every tile width; strides; stacked weights;
 * errors.
 *
 * The int8 path is held to a tight tolerance by activations that two int8 planes represent exactly (exact_x): nothing
 * but fp32 sums may then differ from the oracle. With normal activations its rounding shows: step max|x|/16256 of a
 * group, near 0.004 % of an output's rms, so 0.03 % bounds the largest of some thousands. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

static const lls_dtype weights_all[] = {LLS_F32,  LLS_F16,  LLS_BF16, LLS_Q4_0, LLS_Q4_1, LLS_Q5_0,
                                        LLS_Q5_1, LLS_Q8_0, LLS_Q4_K, LLS_Q5_K, LLS_Q6_K};
static const lls_dtype floats[] = {LLS_F32, LLS_F16, LLS_BF16};
enum { NUM_WEIGHTS = sizeof weights_all / sizeof *weights_all };

typedef struct params {
    int64_t m, n, k;
    lls_dtype weight, x, out;
    bool packed, exact_x, bias, strided;
    lls_compute compute;
} params;

static bool is_block(lls_dtype dtype) {
    return lls_dtype_block_elems(dtype) > 1;
}

/* ---- Data ---- */

static uint32_t next(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void put_f16(uint8_t *p, uint16_t bits) {
    p[0] = (uint8_t)bits, p[1] = (uint8_t)(bits >> 8);
}

// Blocks of random codes and sub-scales; f16 scales of either sign near 2^-7, mins likewise.
static void fill_blocks(lls_dtype dtype, uint8_t *data, int64_t num_blocks) {
    int64_t bytes = lls_dtype_block_bytes(dtype);
    uint32_t state = 12345u + (uint32_t)dtype;
    for (int64_t b = 0; b < num_blocks; b++, data += bytes) {
        for (int64_t i = 0; i < bytes; i++) data[i] = (uint8_t)next(&state);
        uint16_t scale[2];
        for (int i = 0; i < 2; i++) {
            scale[i] =
                (uint16_t)((next(&state) & 0x83ff) | (i && dtype != LLS_Q4_K && dtype != LLS_Q5_K ? 0x2c00 : 0x2000));
        }
        bool min = dtype == LLS_Q4_1 || dtype == LLS_Q5_1 || dtype == LLS_Q4_K || dtype == LLS_Q5_K;
        put_f16(dtype == LLS_Q6_K ? data + 208 : data, scale[0]);
        if (min) put_f16(data + 2, scale[1]);
    }
}

// A block weight whose last byte is followed by f16 NaNs (Q07).
static lls_tensor block_weight(th *h, lls_dtype dtype, int64_t n, int64_t k) {
    enum { TAIL = 1024 };
    int64_t blocks = n * k / lls_dtype_block_elems(dtype), bytes = blocks * lls_dtype_block_bytes(dtype),
            total = bytes + TAIL;
    uint8_t *data = malloc((size_t)total);
    fill_blocks(dtype, data, blocks);
    for (int64_t i = bytes; i < total; i++) data[i] = (i - bytes) % 2 ? 0x7e : 0x00;
    lls_tensor all = th_data(h, LLS_U8, 1, &total, data);
    free(data);
    return lls_tensor_make(all.data, dtype, h->device, 2, (int64_t[]){n, k});
}

static lls_tensor make_weight(th *h, lls_dtype dtype, int64_t n, int64_t k, bool strided) {
    if (is_block(dtype)) return block_weight(h, dtype, n, k);
    return th_normal(h, dtype, 2, (int64_t[]){n, k}, strided ? (int64_t[]){k + 3, 1} : NULL, 1.0f);
}

// Multiples of 1/128 in -126 .. 126 (short enough for bf16: 8 bits or fewer) with one 127 in each group of 32, times a
// power of two that changes from group to group.
static double exact_x(int64_t i, const void *user) {
    (void)user;
    double power = ldexp(1, -(int)(i / 32 % 5)), h = th_hash(i, NULL); // h in steps of 1/64 below 2
    return power * (i % 32 == i / 32 % 32 ? 127 : i % 3 ? floor(h * 63) : h / 2);
}

/* A copy of `stored` packed for the CPU, outside the harness's buffers since only the side under test has one. Bytes
 * after it are checked on release. */
typedef struct packed {
    lls_tensor view;
    size_t bytes;
    void *buffer;
} packed;

enum { PACK_GUARD = 64 };

static bool pack(th *h, const lls_tensor *stored, int32_t num, packed *p) {
    if (lls_linear_packed_bytes(h->ctx, stored, num, &p->bytes) ||
        lls_malloc(h->ctx, p->bytes + PACK_GUARD, &p->buffer)) {
        th_fail(h, "packed_bytes: %s", lls_last_error());
        return false;
    }
    memset(p->buffer, 0xff, p->bytes);
    memset((char *)p->buffer + p->bytes, 0xa5, PACK_GUARD);
    if (lls_linear_pack(h->ctx, stored, num, p->buffer, p->bytes, &p->view)) {
        th_fail(h, "pack: %s", lls_last_error());
        lls_free(h->ctx, p->buffer);
        return false;
    }
    return true;
}

static void release(th *h, packed *p) {
    for (int i = 0; i < PACK_GUARD; i++) {
        if (((uint8_t *)p->buffer)[p->bytes + (size_t)i] != 0xa5) {
            th_fail(h, "byte %d after the packed weight was written", i);
        }
    }
    lls_free(h->ctx, p->buffer);
}

static lls_linear_args base_args(const th *h, const lls_tensor *x, const lls_tensor *weight, const lls_tensor *out) {
    lls_linear_args args = LLS_LINEAR_ARGS_INIT;
    args.x = x, args.weight = weight, args.out = out, args.variant = h->variant;
    return args;
}

// Calls linear with the weight packed where a packed weight is understood: the CPU's variants, not the oracle, not
// CUDA.
static bool call(th *h, lls_linear_args *args, bool want_packed) {
    if (!want_packed || th_is_reference(h) || h->device.type != LLS_CPU) {
        return th_ok(h, lls_linear(h->ctx, args, h->stream));
    }
    packed p;
    if (!pack(h, args->weight, 1, &p)) return false;
    args->weight = &p.view;
    bool ok = th_ok(h, lls_linear(h->ctx, args, h->stream));
    release(h, &p);
    return ok;
}

/* ---- Cases ---- */

static void run_params(th *h, const void *param) {
    const params *p = param;
    int64_t x_shape[] = {p->m, p->k}, x_stride[] = {p->k + 5, 1}, out_shape[] = {p->m, p->n},
            out_stride[] = {p->n + 3, 1};
    bool rounds = p->packed && is_block(p->weight) && p->compute == LLS_COMPUTE_DEFAULT && !p->exact_x;
    lls_tensor x = p->exact_x ? th_filled(h, p->x, 2, x_shape, p->strided ? x_stride : NULL, exact_x, NULL)
                              : th_normal(h, p->x, 2, x_shape, p->strided ? x_stride : NULL, 1.0f);
    lls_tensor weight = make_weight(h, p->weight, p->n, p->k, p->strided);
    lls_tensor out = th_output(h, "out", p->out, 2, out_shape, p->strided ? out_stride : NULL,
                               rounds ? fmax(3e-4, th_tol(p->out)) : th_tol(p->out));
    lls_tensor bias;
    lls_linear_args args = base_args(h, &x, &weight, &out);
    args.compute = p->compute;
    if (p->bias) {
        bias = th_normal(h, p->m % 2 ? LLS_F32 : p->out, 1, &p->n, NULL, 1.0f);
        args.bias = &bias;
    }
    th_poison_workspace(h, 1 << 20);
    call(h, &args, p->packed);
}

static void run_named(th *h, const params *p) {
    char name[160];
    snprintf(name, sizeof name, "%lldx%lldx%lld %s%s x %s out %s%s%s%s", (long long)p->m, (long long)p->n,
             (long long)p->k, lls_dtype_name(p->weight), p->packed ? " packed" : "", lls_dtype_name(p->x),
             lls_dtype_name(p->out), p->compute == LLS_COMPUTE_F32 ? " compute f32" : "", p->exact_x ? " exact x" : "",
             p->bias ? " bias" : "");
    th_run_case(h, name, run_params, p);
}

static void generate(th *h) {
    static const int64_t tokens[] = {1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 33, 129};
    for (int w = 0; w < NUM_WEIGHTS; w++) {
        bool block = is_block(weights_all[w]);
        for (int t = 0; t < 12; t++) {
            for (int mode = 0; mode < 4; mode++) { // in a file; packed; packed with exact x; packed, fp32
                if (!block && mode >= 2) continue;
                params p = {.m = tokens[t],
                            .n = t % 2 ? 35 : 16,
                            .k = block ? 256 : 67,
                            .weight = weights_all[w],
                            .x = floats[(w + t) % 3],
                            .out = mode == 2 ? LLS_F32 : floats[(w + t / 3) % 3],
                            .packed = mode > 0,
                            .exact_x = mode == 2,
                            .bias = t % 2,
                            .strided = t % 3 == 1,
                            .compute = mode == 3 ? LLS_COMPUTE_F32 : LLS_COMPUTE_DEFAULT};
                run_named(h, &p);
            }
        }
        // Units of work: several a thread; few rows, so that tokens are cut; one weight row; k of many blocks.
        static const int64_t shapes[][3] = {{40, 600, 256}, {70, 16, 512}, {1, 1, 256}, {1, 1027, 256}, {18, 18, 2048}};
        for (int s = 0; s < 5; s++) {
            params p = {.m = shapes[s][0],
                        .n = shapes[s][1],
                        .k = shapes[s][2],
                        .weight = weights_all[w],
                        .x = LLS_F32,
                        .out = LLS_F32,
                        .packed = true,
                        .exact_x = true};
            run_named(h, &p);
        }
    }
}

// Q07: no byte after a row counts, however its f16 reads; all k of whole blocks.
static void q07(th *h, const void *param) {
    (void)param;
    static const int64_t k32[] = {32, 96, 160, 3200}, k256[] = {256, 768}, tokens[] = {1, 8, 9, 33};
    for (int w = 3; w < NUM_WEIGHTS; w++) {
        bool k_quant = lls_dtype_block_elems(weights_all[w]) == 256;
        for (int i = 0; i < (k_quant ? 2 : 4); i++) {
            int64_t k = k_quant ? k256[i] : k32[i], m = tokens[(w + i) % 4];
            lls_tensor x = th_filled(h, LLS_F32, 2, (int64_t[]){m, k}, NULL, exact_x, NULL),
                       weight = block_weight(h, weights_all[w], 3, k);
            lls_tensor out = th_output(h, "out", LLS_F32, 2, (int64_t[]){m, 3}, NULL, 1e-5),
                       out2 = th_output(h, "out of packed", LLS_F32, 2, (int64_t[]){m, 3}, NULL, 1e-5);
            lls_linear_args args = base_args(h, &x, &weight, &out);
            if (!call(h, &args, false)) return;
            args = base_args(h, &x, &weight, &out2);
            if (!call(h, &args, true)) return;
        }
    }
}

static void q07_refused(th *h, const void *param) {
    (void)param;
    lls_tensor x = th_normal(h, LLS_F32, 2, (int64_t[]){1, 288}, NULL, 1), weight = block_weight(h, LLS_Q4_K, 8, 256);
    lls_tensor out = th_output(h, "out", LLS_F32, 2, (int64_t[]){1, 3}, NULL, 0);
    weight.shape[0] = 3, weight.shape[1] = 288, weight.stride[0] = 288;
    lls_linear_args args = base_args(h, &x, &weight, &out);
    th_expect_error(h, lls_linear(h->ctx, &args, h->stream), LLS_ERR_SHAPE,
                    "weight.shape[1] is 288, must be a multiple of q4_k's block of 256");
}

/* A Q8_0 weight with scale 1 and integer values: out is a sum that can be checked by eye. */
static lls_tensor q8_integers(th *h, int64_t n, int64_t k, int8_t (*value)(int64_t n, int64_t k)) {
    int64_t blocks = n * k / 32;
    uint8_t *data = malloc((size_t)blocks * 34);
    for (int64_t b = 0; b < blocks; b++) {
        put_f16(data + b * 34, 0x3c00);
        for (int64_t i = 0; i < 32; i++) data[b * 34 + 2 + i] = (uint8_t)value(b * 32 / k, b * 32 % k + i);
    }
    int64_t bytes = blocks * 34;
    lls_tensor all = th_data(h, LLS_U8, 1, &bytes, data);
    free(data);
    return lls_tensor_make(all.data, LLS_Q8_0, h->device, 2, (int64_t[]){n, k});
}

static int8_t one(int64_t n, int64_t k) {
    (void)n, (void)k;
    return 1;
}

static int8_t identity(int64_t n, int64_t k) {
    return n == k;
}

static double zero_group(int64_t i, const void *user) {
    (void)user;
    return i / 32 == 1 ? 0 : 127;
}

// Q01: zero rows, a zero group, rows near either end of fp32; infinity and NaN do not become numbers.
static void q01(th *h, const void *param) {
    (void)param;
    static const double values[] = {0, 1e-40, 1e-30, 1e30, INFINITY, NAN};
    int64_t shape[] = {1, 64}, out_shape[] = {1, 3};
    lls_tensor weight = q8_integers(h, 3, 64, one);
    for (int i = 0; i < 6; i++) {
        lls_tensor x = th_constant(h, LLS_F32, 2, shape, NULL, values[i]);
        lls_tensor out = th_output(h, "out", LLS_F32, 2, out_shape, NULL, -1);
        lls_linear_args args = base_args(h, &x, &weight, &out);
        if (!call(h, &args, true)) return;
        for (int n = 0; n < 3; n++) {
            double got = th_value(h, &out, n), want = 64 * values[i];
            bool good = isfinite(want) ? fabs(got - want) <= 1e-5 * fabs(want) + 1e-31 : !isfinite(got);
            if (!good) th_fail(h, "x = %g: out is %g, expected %g", values[i], got, want);
        }
    }
    lls_tensor x = th_filled(h, LLS_F32, 2, shape, NULL, zero_group, NULL),
               out = th_output(h, "zero group", LLS_F32, 2, out_shape, NULL, 1e-6);
    lls_linear_args args = base_args(h, &x, &weight, &out);
    if (!call(h, &args, true)) return;
    th_expect_near(h, &out, 0, 32 * 127, 1e-6);
}

static double q02_value(int64_t i, const void *user) {
    (void)user;
    static const float x[] = {.5f, 1.5f, 2.5f, -.5f, -1.5f, -2.5f, 126.5f, -126.5f, 127, -127, 125.5f, 0.49f};
    int64_t j = i % 32;
    return j == 8 || j == 9 ? x[j] : j < 12 ? x[j] / 128 : 0;
}

// Q02: rounding to nearest even. The largest value of each group is 127, so the step is 1/128; the weight is the
// identity.
static void q02(th *h, const void *param) {
    (void)param;
    static const double want[] = {0, 2, 2, 0, -2, -2, 126, -126, 127, -127, 126, 0};
    for (int64_t m = 1; m <= 17; m += 16) {
        lls_tensor x = th_filled(h, LLS_F32, 2, (int64_t[]){m, 64}, NULL, q02_value, NULL),
                   weight = q8_integers(h, 64, 64, identity);
        lls_tensor out = th_output(h, "out", LLS_F32, 2, (int64_t[]){m, 64}, NULL, -1);
        lls_linear_args args = base_args(h, &x, &weight, &out);
        if (!call(h, &args, true)) return;
        bool rounds = !th_is_reference(h) && h->device.type == LLS_CPU;
        for (int64_t i = 0; i < m * 64; i++) {
            double exact = q02_value(i, NULL);
            int64_t j = i % 32;
            th_expect_near(h, &out, i, rounds && j < 12 ? (j == 8 || j == 9 ? want[j] : want[j] / 128) : exact, 0);
        }
    }
}

// Integers where an element is, NaN in the gaps; the view begins one element after the buffer.
static double offset_rows(int64_t i, const void *width) {
    int64_t w = *(const int64_t *)width, row = (i - 1) / (w + 3), column = (i - 1) % (w + 3);
    return i < 1 || column >= w ? NAN : th_hash9(row * w + column, NULL);
}

static lls_tensor offset_view(th *h, lls_dtype dtype, int64_t rows, int64_t width, bool output) {
    int64_t total = rows * (width + 3) + 1;
    lls_tensor all = output ? th_constant(h, dtype, 1, &total, NULL, NAN)
                            : th_filled(h, dtype, 1, &total, NULL, offset_rows, &width);
    lls_tensor view =
        lls_tensor_make((char *)all.data + lls_dtype_block_bytes(dtype), dtype, h->device, 2, (int64_t[]){rows, width});
    view.stride[0] = width + 3;
    return view;
}

// G03 and G01: odd sizes, row strides, a start that is aligned to one element only, NaN in the gaps and in out: exact
// integers.
static void g03(th *h, const void *param) {
    const params *p = param;
    for (int mode = 0; mode < 2; mode++) {
        lls_tensor x = offset_view(h, p->x, p->m, p->k, false), weight = offset_view(h, p->weight, p->n, p->k, false),
                   out = offset_view(h, p->out, p->m, p->n, true);
        lls_tensor bias = th_filled(h, p->out, 1, &p->n, NULL, th_hash9, NULL);
        th_also_output(h, "out", &out, 0);
        lls_linear_args args = base_args(h, &x, &weight, &out);
        args.bias = &bias;
        if (!call(h, &args, mode)) return;
    }
}

// G02: nothing to do is success, k = 0 gives the bias, and the next call works.
static void g02(th *h, const void *param) {
    (void)param;
    static const int64_t shapes[][3] = {{0, 8, 32}, {8, 0, 32}, {8, 8, 0}, {3, 8, 32}};
    static const lls_dtype dtypes[] = {LLS_F16, LLS_Q8_0};
    for (int d = 0; d < 2; d++) {
        for (int s = 0; s < 4; s++) {
            for (int mode = 0; mode < 2; mode++) {
                int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
                lls_tensor x = th_filled(h, LLS_F32, 2, (int64_t[]){m, k}, NULL, exact_x, NULL),
                           weight = make_weight(h, dtypes[d], n, k, false);
                lls_tensor bias = th_constant(h, LLS_F32, 1, &n, NULL, 3),
                           out = th_output(h, "out", LLS_F32, 2, (int64_t[]){m, n}, NULL, 1e-5);
                lls_linear_args args = base_args(h, &x, &weight, &out);
                args.bias = &bias;
                if (!call(h, &args, mode)) return;
                if (k == 0) th_expect_near(h, &out, m * n - 1, 3, 0);
            }
        }
    }
}

// A row's bits do not depend on the rows beside it: 33 tokens at once, and one by one.
static void batch_invariant(th *h, const void *param) {
    (void)param;
    enum { M = 33, N = 20, K = 512 };
    for (int w = 0; w < NUM_WEIGHTS; w++) {
        lls_tensor x = th_normal(h, LLS_F32, 2, (int64_t[]){M, K}, NULL, 1),
                   weight = make_weight(h, weights_all[w], N, K, false);
        lls_tensor out =
            th_output(h, "out", LLS_F32, 2, (int64_t[]){M, N}, NULL, is_block(weights_all[w]) ? 3e-4 : 1e-5);
        lls_tensor single = th_output(h, "single", LLS_F32, 2, (int64_t[]){1, N}, NULL, -1);
        lls_linear_args args = base_args(h, &x, &weight, &out);
        if (!call(h, &args, true)) return;
        for (int64_t m = 0; m < M; m += 4) {
            lls_tensor row = lls_tensor_make((float *)x.data + m * K, LLS_F32, h->device, 2, (int64_t[]){1, K});
            lls_tensor want = lls_tensor_make((float *)out.data + m * N, LLS_F32, h->device, 2, (int64_t[]){1, N});
            args = base_args(h, &row, &weight, &single);
            if (!call(h, &args, true)) return;
            th_expect_bits_equal(h, &single, &want);
        }
    }
}

// AVX2 and AVX-512 sum in the same order with the same operations.
static void levels_agree(th *h, const void *param) {
    (void)param;
    bool avx512 = !th_is_reference(h) && strcmp(h->variant, "cpu_avx512") == 0;
    for (int w = 0; w < NUM_WEIGHTS; w++) {
        lls_tensor x = th_normal(h, LLS_F16, 2, (int64_t[]){9, 256}, NULL, 1),
                   weight = make_weight(h, weights_all[w], 40, 256, false);
        lls_tensor out =
            th_output(h, "out", LLS_F32, 2, (int64_t[]){9, 40}, NULL, is_block(weights_all[w]) ? 3e-4 : 1e-5);
        lls_tensor other = th_output(h, "avx2", LLS_F32, 2, (int64_t[]){9, 40}, NULL, -1);
        lls_linear_args args = base_args(h, &x, &weight, &out);
        if (!call(h, &args, true)) return;
        if (!avx512) continue;
        args = base_args(h, &x, &weight, &other);
        args.variant = "cpu_avx2";
        if (!call(h, &args, true)) return;
        th_expect_bits_equal(h, &out, &other);
    }
}

// Weights stacked by lls_linear_pack give the outputs of each, side by side.
static void stacked(th *h, const void *param) {
    (void)param;
    static const int64_t rows[] = {5, 16, 20};
    enum { M = 3, N = 41, K = 256 };
    for (int w = 0; w < NUM_WEIGHTS; w++) {
        lls_tensor x = th_filled(h, LLS_F32, 2, (int64_t[]){M, K}, NULL, exact_x, NULL), parts[3];
        lls_tensor out = th_output(h, "out", LLS_F32, 2, (int64_t[]){M, N}, NULL, 1e-5);
        for (int i = 0; i < 3; i++) parts[i] = make_weight(h, weights_all[w], rows[i], K, i == 1);
        packed all;
        bool packs = !th_is_reference(h) && h->device.type == LLS_CPU;
        if (packs) {
            if (!pack(h, parts, 3, &all)) return;
            if (all.view.shape[0] != N || all.view.shape[1] != K || all.view.layout != LLS_PACKED) {
                th_fail(h, "the stacked view is not [%d, %d]", N, K);
            }
            lls_linear_args args = base_args(h, &x, &all.view, &out);
            bool ok = th_ok(h, lls_linear(h->ctx, &args, h->stream));
            release(h, &all);
            if (!ok) return;
            continue;
        }
        for (int i = 0, n = 0; i < 3; n += (int)rows[i++]) {
            lls_tensor part = out;
            part.data = (float *)out.data + n, part.shape[1] = rows[i];
            lls_linear_args args = base_args(h, &x, &parts[i], &part);
            if (!th_ok(h, lls_linear(h->ctx, &args, h->stream))) return;
        }
    }
}

static void errors(th *h, const void *param) {
    (void)param;
    lls_tensor x = th_normal(h, LLS_F16, 2, (int64_t[]){2, 64}, NULL, 1),
               weight = th_normal(h, LLS_F16, 2, (int64_t[]){5, 64}, NULL, 1);
    lls_tensor out = th_output(h, "out", LLS_F16, 2, (int64_t[]){2, 5}, NULL, 0),
               bias = th_normal(h, LLS_BF16, 1, (int64_t[]){5}, NULL, 1);
    lls_linear_args args = base_args(h, &x, &weight, NULL);
    th_expect_error(h, lls_linear(h->ctx, &args, h->stream), LLS_ERR_ARGUMENT, "out is NULL");
    lls_tensor bad = weight;
    bad.shape[1] = 63;
    args = base_args(h, &x, &bad, &out);
    th_expect_error(h, lls_linear(h->ctx, &args, h->stream), LLS_ERR_SHAPE,
                    "weight.shape[1] is 63, must equal x.shape[1] = 64");
    bad = weight, bad.shape[0] = 4;
    args = base_args(h, &x, &bad, &out);
    th_expect_error(h, lls_linear(h->ctx, &args, h->stream), LLS_ERR_SHAPE,
                    "out.shape[1] is 5, must equal weight.shape[0] = 4");
    bad = weight, bad.stride[1] = 2;
    args = base_args(h, &x, &bad, &out);
    th_expect_error(h, lls_linear(h->ctx, &args, h->stream), LLS_ERR_STRIDE, "weight.stride[1] is 2, must be 1");
    bad = weight, bad.dtype = LLS_I32;
    args = base_args(h, &x, &bad, &out);
    th_expect_error(h, lls_linear(h->ctx, &args, h->stream), LLS_ERR_DTYPE, "weight.dtype is i32");
    args = base_args(h, &x, &weight, &out);
    args.bias = &bias;
    th_expect_error(h, lls_linear(h->ctx, &args, h->stream), LLS_ERR_DTYPE, "bias.dtype is bf16");
    args = base_args(h, &x, &weight, &out);
    args.compute = (lls_compute)7;
    th_expect_error(h, lls_linear(h->ctx, &args, h->stream), LLS_ERR_ARGUMENT, "compute is 7");
    bad = x, bad.shape[1] = 5;
    args = base_args(h, &x, &weight, &bad);
    th_expect_error(h, lls_linear(h->ctx, &args, h->stream), LLS_ERR_ALIAS, "out at");
    args = base_args(h, &x, &weight, &out);
    args.variant = "no_such_rung";
    th_expect_error(h, lls_linear(h->ctx, &args, h->stream), LLS_ERR_VARIANT, "no_such_rung");
    bad = weight, bad.layout = LLS_PACKED, bad.data = (char *)weight.data + 2;
    args = base_args(h, &x, &bad, &out);
    th_expect_error(h, lls_linear(h->ctx, &args, h->stream), LLS_ERR_STRIDE, "must be aligned to 64 bytes when packed");

    size_t bytes;
    lls_tensor two[] = {weight, weight}, view;
    if (h->device.type != LLS_CPU) {
        th_expect_error(h, lls_linear_packed_bytes(h->ctx, two, 2, &bytes), LLS_ERR_DEVICE, "must be on the CPU");
        return;
    }
    two[1].dtype = LLS_BF16;
    th_expect_error(h, lls_linear_packed_bytes(h->ctx, two, 2, &bytes), LLS_ERR_DTYPE,
                    "must equal weights[0].dtype = f16");
    two[1] = weight, two[1].shape[1] = 32;
    th_expect_error(h, lls_linear_packed_bytes(h->ctx, two, 2, &bytes), LLS_ERR_SHAPE,
                    "must equal weights[0].shape[1] = 64");
    th_expect_error(h, lls_linear_packed_bytes(h->ctx, two, 0, &bytes), LLS_ERR_ARGUMENT, "num_weights is 0");
    _Alignas(64) static char buffer[4096];
    th_expect_error(h, lls_linear_pack(h->ctx, &weight, 1, buffer, 8, &view), LLS_ERR_ARGUMENT,
                    "bytes is 8, must be at least 2048");
    th_expect_error(h, lls_linear_pack(h->ctx, &weight, 1, buffer + 4, 4000, &view), LLS_ERR_STRIDE,
                    "must be aligned to 64 bytes");
    th_expect_error(h, lls_linear_pack(h->ctx, &weight, 1, weight.data, 4000, &view), LLS_ERR_ALIAS,
                    "overlaps weights[0]");
}

#define G03(m, n, k, dtype, out)                                              \
    {                                                                         \
        "G01 G03 " #m "x" #n "x" #k " " #dtype " out " #out, g03,             \
            &(const params){m, n, k, dtype, dtype, out, 0, 0, 0, 0, 0}, false \
    }
static const th_case cases[] = {
    {"G02 empty sizes", g02, NULL, false},
    G03(1, 105, 107, LLS_F16, LLS_F32),
    G03(2, 2, 2, LLS_F32, LLS_F16),
    G03(1, 1, 1, LLS_BF16, LLS_F32),
    G03(3, 4304, 80, LLS_F16, LLS_F16),
    G03(17, 129, 65, LLS_BF16, LLS_F16),
    G03(65, 65, 33, LLS_F32, LLS_F32),
    G03(4, 1440, 2880, LLS_F16, LLS_F32),
    {"Q01 zero, tiny, huge, infinite activations", q01, NULL, false},
    {"Q02 integer rounding", q02, NULL, false},
    {"Q07 bytes after the last row", q07, NULL, false},
    {"Q07 k = 288 with K-quants", q07_refused, NULL, false},
    {"a row's bits do not depend on its batch", batch_invariant, NULL, false},
    {"SIMD levels agree", levels_agree, NULL, false},
    {"stacked weights", stacked, NULL, false},
    {"errors", errors, NULL, false},
};

const th_suite th_suite_linear = {"linear", cases, sizeof cases / sizeof *cases, generate};
