/* embed: every table dtype into every out dtype, bad ids, D06 (64-bit offsets), G02 (zero sizes), strides, errors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

typedef struct params {
    int64_t tokens, vocab, hidden;
    lls_dtype table, out;
    float scale;
    bool strided;
} params;

static lls_embed_args base_args(const th *h, const lls_tensor *table, const lls_tensor *ids, const lls_tensor *out) {
    lls_embed_args args = LLS_EMBED_ARGS_INIT;
    args.table = table, args.ids = ids, args.out = out, args.variant = h->variant;
    return args;
}

static bool is_block(lls_dtype dtype) {
    return lls_dtype_block_elems(dtype) > 1;
}

// Random codes and sub-scales; the f16 fields, where a block has them, are numbers between 2^-7 and 2^-6.
static lls_tensor block_table(th *h, lls_dtype dtype, int64_t vocab, int64_t hidden) {
    int64_t size = lls_dtype_block_bytes(dtype), blocks = vocab * hidden / lls_dtype_block_elems(dtype);
    uint8_t *bytes = malloc((size_t)(blocks * size));
    for (int64_t i = 0; i < blocks * size; i++) bytes[i] = (uint8_t)(64 * th_hash(i, NULL) + 128);
    int first = dtype == LLS_Q6_K ? 208 : 0,
        fields = dtype == LLS_Q4_1 || dtype == LLS_Q5_1 || dtype == LLS_Q4_K || dtype == LLS_Q5_K ? 2 : 1;
    for (int64_t b = 0; b < blocks; b++) {
        for (int f = 0; f < fields; f++) {
            uint8_t *high = &bytes[b * size + first + 2 * f + 1];
            *high = (uint8_t)(0x20 | (*high & 3));
        }
    }
    lls_tensor table = th_data(h, dtype, 2, (int64_t[]){vocab, hidden}, bytes);
    free(bytes);
    return table;
}

static void random_case(th *h, const void *param) {
    const params *p = param;
    int64_t shape[] = {p->tokens, p->hidden}, stride[] = {p->hidden + 5, 1}, table_shape[] = {p->vocab, p->hidden};
    const int64_t *strides = p->strided ? stride : NULL;
    int32_t ids[128];
    for (int64_t t = 0; t < p->tokens; t++) ids[t] = (int32_t)((t * 7 + 3) % p->vocab); // the last row too, and repeats
    ids[0] = (int32_t)p->vocab - 1;
    lls_tensor id_tensor = th_data(h, LLS_I32, 1, &p->tokens, ids);
    lls_tensor table = is_block(p->table) ? block_table(h, p->table, p->vocab, p->hidden)
                                          : th_normal(h, p->table, 2, table_shape, strides, 1);
    bool one_rounding = p->scale == 0 || p->out == LLS_F32; // else fp32 rounds the product before the out dtype does
    lls_tensor out = th_output(h, "out", p->out, 2, shape, strides, one_rounding ? 0 : th_tol(p->out));
    lls_embed_args args = base_args(h, &table, &id_tensor, &out);
    args.scale = p->scale;
    th_ok(h, lls_embed(h->ctx, &args, h->stream));
}

static void generate(th *h) {
    static const lls_dtype outs[] = {LLS_F32, LLS_F16, LLS_BF16};
    static const lls_dtype tables[] = {LLS_F32,  LLS_F16,  LLS_BF16, LLS_Q4_0, LLS_Q4_1, LLS_Q5_0,
                                       LLS_Q5_1, LLS_Q8_0, LLS_Q4_K, LLS_Q5_K, LLS_Q6_K};
    static const int64_t widths[] = {1, 3, 17, 64, 576, 1031};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        for (int o = 0; o < 3; o++) {
            for (size_t k = 0; k < sizeof widths / sizeof *widths; k++) {
                int64_t block = lls_dtype_block_elems(tables[i]),
                        hidden = is_block(tables[i]) ? block * (int64_t)(1 + k) : widths[k];
                params p = {.tokens = k % 2 ? 5 : 70,
                            .vocab = 11,
                            .hidden = hidden,
                            .table = tables[i],
                            .out = outs[o],
                            .scale = k % 3 == 2 ? 19.595918f : 0,
                            .strided = k % 2 == 1};
                char name[96];
                snprintf(name, sizeof name, "random %lldx%lld %s to %s%s", (long long)p.tokens, (long long)hidden,
                         lls_dtype_name(p.table), lls_dtype_name(p.out), p.scale != 0 ? " scaled" : "");
                th_run_case(h, name, random_case, &p);
            }
        }
    }
}

// Q8_0 and Q4_0 by hand: block b of row r has scale 2^-(r + b), and codes that count.
static void literal_blocks(th *h, const void *param) {
    (void)param;
    uint8_t q8[2][2][34], q4[2][2][18];
    for (int r = 0; r < 2; r++) {
        for (int b = 0; b < 2; b++) {
            uint8_t scale[2] = {0, (uint8_t)(0x3c - 4 * (r + b))}; // f16 1, 0.5, 0.25
            memcpy(q8[r][b], scale, 2);
            memcpy(q4[r][b], scale, 2);
            for (int i = 0; i < 32; i++) q8[r][b][2 + i] = (uint8_t)(int8_t)(8 * i - 128);
            for (int i = 0; i < 16; i++)
                q4[r][b][2 + i] = (uint8_t)(i | (15 - i) << 4); // weight i has code i, weight i + 16 has code 15 - i
        }
    }
    int32_t id = 1;
    lls_tensor ids = th_data(h, LLS_I32, 1, (int64_t[]){1}, &id);
    lls_tensor table8 = th_data(h, LLS_Q8_0, 2, (int64_t[]){2, 64}, q8),
               table4 = th_data(h, LLS_Q4_0, 2, (int64_t[]){2, 64}, q4);
    lls_tensor out8 = th_output(h, "q8_0", LLS_F16, 2, (int64_t[]){1, 64}, NULL, 0),
               out4 = th_output(h, "q4_0", LLS_F32, 2, (int64_t[]){1, 64}, NULL, 0);
    lls_embed_args args = base_args(h, &table8, &ids, &out8);
    if (!th_ok(h, lls_embed(h->ctx, &args, h->stream))) return;
    args = base_args(h, &table4, &ids, &out4);
    args.scale = 3;
    if (!th_ok(h, lls_embed(h->ctx, &args, h->stream))) return;
    for (int i = 0; i < 64; i++) {
        double scale = i < 32 ? 0.5 : 0.25;
        int k = i % 32, code = k < 16 ? k : 31 - k;
        th_expect_near(h, &out8, i, scale * (8 * k - 128), 0);
        th_expect_near(h, &out4, i, 3 * scale * (code - 8), 0);
    }
}

// An id outside the table: the CPU refuses the call before it writes anything, CUDA gives NaN for that row alone.
static void bad_ids(th *h, const void *param) {
    (void)param;
    static const int32_t bad[] = {-1, 4, INT32_MAX, INT32_MIN};
    lls_tensor table = th_normal(h, LLS_F16, 2, (int64_t[]){4, 40}, NULL, 1);
    for (int i = 0; i < 4; i++) {
        int32_t list[] = {2, bad[i], 3};
        lls_tensor ids = th_data(h, LLS_I32, 1, (int64_t[]){3}, list);
        lls_tensor out = th_output(h, "out", LLS_F16, 2, (int64_t[]){3, 40}, NULL, -1);
        lls_embed_args args = base_args(h, &table, &ids, &out);
        lls_status status = lls_embed(h->ctx, &args, h->stream);
        if (h->device.type == LLS_CPU) {
            char part[64];
            snprintf(part, sizeof part, "ids[1] is %d, must be in [0, 4)", bad[i]);
            th_expect_error(h, status, LLS_ERR_ARGUMENT, part);
            continue;
        }
        if (!th_ok(h, status)) return;
        for (int64_t k = 0; k < 40; k++) {
            th_expect_near(h, &out, k, th_value(h, &table, 2 * 40 + k), 0);
            th_expect_near(h, &out, 40 + k, NAN, 0);
            th_expect_near(h, &out, 80 + k, th_value(h, &table, 3 * 40 + k), 0);
        }
    }
}

// D06: row offsets of 2^31 and 2^32 elements, in a table with wide gaps (8.6 GB; on a CPU only the touched pages
// exist).
static void d06(th *h, const void *param) {
    (void)param;
    enum { HIDDEN = 8 };
    const int64_t stride = (int64_t)1 << 31;
    void *memory;
    if (lls_malloc(h->ctx, (size_t)(2 * stride + HIDDEN) * 2, &memory)) {
        th_fail(h, "%s", lls_last_error());
        return;
    }
    lls_tensor table = lls_tensor_make(memory, LLS_BF16, h->device, 2, (int64_t[]){3, HIDDEN});
    table.stride[0] = stride;
    for (int r = 0; r < 3; r++) {
        uint16_t row[HIDDEN]; // bf16 2^r
        for (int i = 0; i < HIDDEN; i++) row[i] = (uint16_t)(0x3f80 + 0x80 * r);
        if (lls_upload(h->ctx, (char *)memory + r * stride * 2, row, sizeof row, h->stream))
            th_fail(h, "%s", lls_last_error());
    }
    int32_t list[] = {2, 0, 1};
    lls_tensor ids = th_data(h, LLS_I32, 1, (int64_t[]){3}, list),
               out = th_output(h, "out", LLS_F32, 2, (int64_t[]){3, HIDDEN}, NULL, 0);
    lls_embed_args args = base_args(h, &table, &ids, &out);
    if (th_ok(h, lls_embed(h->ctx, &args, h->stream))) {
        for (int t = 0; t < 3; t++) th_expect_near(h, &out, t * HIDDEN + HIDDEN - 1, 1 << list[t], 0);
    }
    lls_free(h->ctx, memory);
}

static void zero_sizes(th *h, const void *param) {
    (void)param;
    static const int64_t sizes[][2] = {{0, 8}, {3, 0}, {3, 8}}; // the last: a call afterwards works
    int32_t list[] = {1, 0, 1};
    for (int i = 0; i < 3; i++) {
        int64_t tokens = sizes[i][0], hidden = sizes[i][1];
        lls_tensor table = th_normal(h, LLS_F16, 2, (int64_t[]){2, hidden}, NULL, 1),
                   ids = th_data(h, LLS_I32, 1, &tokens, list);
        lls_tensor out = th_output(h, "out", LLS_F16, 2, (int64_t[]){tokens, hidden}, NULL, 0);
        lls_embed_args args = base_args(h, &table, &ids, &out);
        if (!th_ok(h, lls_embed(h->ctx, &args, h->stream))) return;
    }
}

static void errors(th *h, const void *param) {
    (void)param;
    int32_t list[] = {0, 1, 2};
    lls_tensor table = th_normal(h, LLS_F16, 2, (int64_t[]){4, 64}, NULL, 1),
               ids = th_data(h, LLS_I32, 1, (int64_t[]){3}, list);
    lls_tensor blocks = block_table(h, LLS_Q8_0, 4, 64),
               out = th_output(h, "out", LLS_F16, 2, (int64_t[]){3, 64}, NULL, 0);
    lls_tensor narrow = th_output(h, "narrow", LLS_F16, 2, (int64_t[]){3, 63}, NULL, 0);

    lls_embed_args args = base_args(h, &table, &ids, &narrow);
    th_expect_error(h, lls_embed(h->ctx, &args, h->stream), LLS_ERR_SHAPE,
                    "out.shape[1] is 63, must equal table.shape[1] = 64");
    lls_tensor two_ids = ids;
    two_ids.shape[0] = 2;
    args = base_args(h, &table, &two_ids, &out);
    th_expect_error(h, lls_embed(h->ctx, &args, h->stream), LLS_ERR_SHAPE,
                    "ids.shape[0] is 2, must equal out.shape[0] = 3");
    lls_tensor wide_ids = ids;
    wide_ids.dtype = LLS_I64;
    args = base_args(h, &table, &wide_ids, &out);
    th_expect_error(h, lls_embed(h->ctx, &args, h->stream), LLS_ERR_DTYPE, "ids.dtype is i64");
    lls_tensor quantised = out;
    quantised.dtype = LLS_Q8_0;
    args = base_args(h, &table, &ids, &quantised);
    th_expect_error(h, lls_embed(h->ctx, &args, h->stream), LLS_ERR_DTYPE, "out.dtype is q8_0");
    lls_tensor half_block = blocks;
    half_block.shape[1] = 48;
    args = base_args(h, &half_block, &ids, &out);
    th_expect_error(h, lls_embed(h->ctx, &args, h->stream), LLS_ERR_SHAPE,
                    "table.shape[1] is 48, must be a multiple of q8_0's block of 32");
    lls_tensor inside = blocks;
    inside.data = out.data;
    args = base_args(h, &inside, &ids, &out);
    th_expect_error(h, lls_embed(h->ctx, &args, h->stream), LLS_ERR_ALIAS, "out at");
    args = base_args(h, &table, NULL, &out);
    th_expect_error(h, lls_embed(h->ctx, &args, h->stream), LLS_ERR_ARGUMENT, "ids is NULL");
}

static const th_case cases[] = {
    {"random 5x40 f16 to f32", random_case, &(const params){5, 11, 40, LLS_F16, LLS_F32, 0, true}, false},
    {"blocks by hand", literal_blocks, NULL, false},
    {"ids outside the table", bad_ids, NULL, false},
    {"D06 row offsets past 2^31", d06, NULL, true},
    {"G02 zero sizes", zero_sizes, NULL, false},
    {"errors", errors, NULL, false},
};

const th_suite th_suite_embed = {"embed", cases, sizeof cases / sizeof *cases, generate};
