/* The GGUF reader: good files of every type, and every way in which a file can lie (known faults L04, L06). Run it
 * under ASan and UBSan: each parse gets an allocation of exactly the file's size, so that one byte too far is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/gguf_builder.h"
#include "engine/model/gguf.h"

enum { F32 = 0, F16 = 1, Q4_0 = 2, Q2_K = 10, Q4_K = 12 };

// ---- Helpers ---------------------------------------------------------------------------------------

/* Parses a copy of exactly n bytes. *copy must be freed after the gguf. */
static lls_status parse_exact(const void *bytes, size_t n, uint8_t **copy, lls__gguf **out) {
    *copy = malloc(n > 0 ? n : 1);
    assert_non_null(*copy);
    if (n > 0) {
        memcpy(*copy, bytes, n);
    }
    return lls__gguf_parse(*copy, n, "test.gguf", out);
}

/* The file must be refused with `status` and a message that holds the file's name and `text`; *out stays as it is. */
static void expect_refusal(gguf_builder *b, lls_status status, const char *text) {
    lls__gguf *const untouched = (lls__gguf *)&status;
    lls__gguf *g = untouched;
    uint8_t *copy;
    lls_status got = parse_exact(b->bytes, b->size, &copy, &g);
    if (got != status || strstr(lls_last_error(), text) == NULL || strstr(lls_last_error(), "test.gguf") == NULL) {
        fail_msg("got %s \"%s\", wanted %s with \"%s\"", lls_status_name(got), lls_last_error(),
                 lls_status_name(status), text);
    }
    assert_ptr_equal(g, untouched);
    free(copy);
    build_free(b);
}

/* Reads everything that a parsed file offers, so that a sanitizer sees any byte that should not have been accepted. */
static uint64_t read_all(const lls__gguf *g) {
    uint64_t sum = 0;
    for (size_t i = 0; i < g->num_kvs; i++) {
        const lls__gguf_kv *kv = &g->kvs[i];
        if (kv->type == LLS__GGUF_STRING) {
            lls__gguf_strings strings = lls__gguf_strings_of(kv);
            for (lls__gguf_str s; lls__gguf_next_string(&strings, &s);) {
                for (size_t j = 0; j < s.size; j++) {
                    sum += (unsigned char)s.data[j];
                }
            }
        } else if (lls__gguf_type_bytes(kv->type) > 0) {
            for (uint64_t j = 0; j < kv->count * lls__gguf_type_bytes(kv->type); j++) {
                sum += kv->values[j];
            }
        }
    }
    for (size_t i = 0; i < g->num_tensors; i++) {
        const uint8_t *data = g->tensors[i].data;
        for (size_t j = 0; j < g->tensors[i].nbytes; j++) {
            sum += data[j];
        }
    }
    return sum;
}

/* Two keys, an array of strings, and two tensors: a small good file whose last byte belongs to a tensor. */
static gguf_builder good_file(void) {
    gguf_builder b = {0};
    build_header(&b, 3, 2, 3);
    build_kv_string(&b, "general.architecture", "llama");
    build_kv_u32(&b, "llama.block_count", 2);
    build_kv(&b, "tokens", LLS__GGUF_ARRAY, NULL, 0);
    build_u32(&b, LLS__GGUF_STRING);
    build_u64(&b, 2);
    build_string(&b, "one");
    build_string(&b, "");
    build_tensor_info(&b, "a.weight", 2, (uint64_t[]){4, 3}, F32, 0);
    build_tensor_info(&b, "b.weight", 1, (uint64_t[]){32}, Q4_0, 64);
    build_padding(&b, 32);
    for (int i = 0; i < 64 + 18; i++) { // 48 bytes of a, padding, 18 bytes of b
        build_bytes(&b, &(uint8_t){(uint8_t)i}, 1);
    }
    return b;
}

/* One tensor info after a header without keys, and 64 bytes of data. */
static gguf_builder one_tensor(uint32_t ndim, const uint64_t *dims, uint32_t type, uint64_t offset) {
    gguf_builder b = {0};
    build_header(&b, 3, 1, 0);
    build_tensor_info(&b, "bad.weight", ndim, dims, type, offset);
    build_padding(&b, 32);
    for (int i = 0; i < 64; i++) {
        build_bytes(&b, "", 1);
    }
    return b;
}

static gguf_builder one_kv(const char *key, uint32_t type, const void *value, size_t n) {
    gguf_builder b = {0};
    build_header(&b, 3, 0, 1);
    build_kv(&b, key, type, value, n);
    return b;
}

// ---- Good files ------------------------------------------------------------------------------------

static void test_good_file(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        gguf_builder b = good_file();
        memcpy(b.bytes + 4, &version, sizeof version);
        uint8_t *copy;
        lls__gguf *g = NULL;
        assert_int_equal(parse_exact(b.bytes, b.size, &copy, &g), LLS_OK);
        assert_int_equal(g->version, version);
        assert_int_equal(g->num_kvs, 3);
        assert_int_equal(g->num_tensors, 2);
        assert_null(lls__gguf_find(g, "absent"));
        assert_null(lls__gguf_find(g, "token"));
        assert_null(lls__gguf_find_tensor(g, "a"));

        const lls__gguf_tensor *a = lls__gguf_find_tensor(g, "a.weight");
        assert_non_null(a);
        assert_int_equal(a->dtype, LLS_F32);
        assert_int_equal(a->ndim, 2);
        assert_int_equal(a->shape[0], 3); // outermost first: the file says 4, 3
        assert_int_equal(a->shape[1], 4);
        assert_int_equal(a->nbytes, 48);
        assert_int_equal(((const uint8_t *)a->data)[47], 47);
        const lls__gguf_tensor *last = lls__gguf_find_tensor(g, "b.weight");
        assert_int_equal(last->nbytes, 18);
        assert_int_equal(((const uint8_t *)last->data)[0], 64);

        const lls__gguf_kv *tokens;
        assert_int_equal(lls__gguf_array(g, "tokens", LLS__GGUF_KIND_STRING, &tokens), LLS_OK);
        lls__gguf_strings it = lls__gguf_strings_of(tokens);
        lls__gguf_str s;
        assert_true(lls__gguf_next_string(&it, &s));
        assert_int_equal(s.size, 3);
        assert_memory_equal(s.data, "one", 3);
        assert_true(lls__gguf_next_string(&it, &s));
        assert_int_equal(s.size, 0);
        assert_false(lls__gguf_next_string(&it, &s));
        lls__gguf_close(g);
        free(copy);
        build_free(&b);
    }
}

static const struct {
    uint32_t number;
    lls_dtype dtype;
    uint64_t block;
    size_t row_bytes; // of 256 weights
} types[] = {
    {0, LLS_F32, 1, 1024},    {1, LLS_F16, 1, 512},     {30, LLS_BF16, 1, 512},   {2, LLS_Q4_0, 32, 144},
    {3, LLS_Q4_1, 32, 160},   {6, LLS_Q5_0, 32, 176},   {7, LLS_Q5_1, 32, 192},   {8, LLS_Q8_0, 32, 272},
    {12, LLS_Q4_K, 256, 144}, {13, LLS_Q5_K, 256, 176}, {14, LLS_Q6_K, 256, 210},
};

static void test_every_tensor_type(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        gguf_builder b = {0};
        build_header(&b, 3, 1, 0);
        build_tensor_info(&b, "w", 3, (uint64_t[]){256, 2, 3}, types[i].number, 0);
        build_padding(&b, 32);
        for (size_t j = 0; j < 6 * types[i].row_bytes; j++) {
            build_bytes(&b, &(uint8_t){(uint8_t)(j * 7)}, 1);
        }
        uint8_t *copy;
        lls__gguf *g = NULL;
        assert_int_equal(parse_exact(b.bytes, b.size, &copy, &g), LLS_OK);
        assert_int_equal(g->tensors[0].dtype, types[i].dtype);
        assert_int_equal(g->tensors[0].nbytes, 6 * types[i].row_bytes);
        assert_int_equal(g->tensors[0].shape[0], 3);
        assert_int_equal(g->tensors[0].shape[2], 256);
        read_all(g);
        lls__gguf_close(g);
        free(copy);
        b.size--; // one byte short
        expect_refusal(&b, LLS_ERR_FORMAT, "'w'");

        if (types[i].block > 1) {
            gguf_builder odd = one_tensor(1, (uint64_t[]){types[i].block + 1}, types[i].number, 0);
            expect_refusal(&odd, LLS_ERR_FORMAT, "must be a multiple of");
        }
    }
}

static void test_alignment(void **state) {
    (void)state;
    static const uint32_t bad[] = {0, 1, 4, 12, 48, 1u << 31};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        gguf_builder b = one_kv("general.alignment", LLS__GGUF_U32, &bad[i], sizeof bad[i]);
        expect_refusal(&b, LLS_ERR_FORMAT, "general.alignment");
    }
    gguf_builder b = {0};
    build_header(&b, 3, 1, 1);
    build_kv_u32(&b, "general.alignment", 128);
    build_tensor_info(&b, "w", 1, (uint64_t[]){1}, F32, 128);
    build_padding(&b, 128);
    size_t start = b.size;
    for (int i = 0; i < 132; i++) {
        build_bytes(&b, &(uint8_t){(uint8_t)i}, 1);
    }
    uint8_t *copy;
    lls__gguf *g = NULL;
    assert_int_equal(parse_exact(b.bytes, b.size, &copy, &g), LLS_OK);
    assert_int_equal(g->data_offset, start);
    assert_int_equal(*(const uint8_t *)g->tensors[0].data, 128);
    lls__gguf_close(g);
    free(copy);
    build_free(&b);
}

// ---- Values ----------------------------------------------------------------------------------------

static void test_int_widths(void **state) {
    (void)state;
    static const struct {
        uint32_t type;
        uint64_t bits;
        int64_t value;
    } cases[] = {
        {LLS__GGUF_U8, 0xff, 255},
        {LLS__GGUF_I8, 0xff, -1},
        {LLS__GGUF_U16, 0xfffe, 65534},
        {LLS__GGUF_I16, 0xfffe, -2},
        {LLS__GGUF_U32, 0xfffffffd, 4294967293},
        {LLS__GGUF_I32, 0xfffffffd, -3},
        {LLS__GGUF_I64, (uint64_t)-4, -4},
        {LLS__GGUF_U64, 5, 5},
        {LLS__GGUF_U64, (uint64_t)-1, INT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t n = lls__gguf_type_bytes((lls__gguf_type)cases[i].type);
        gguf_builder b = one_kv("n", cases[i].type, &cases[i].bits, n);
        uint8_t *copy;
        lls__gguf *g = NULL;
        assert_int_equal(parse_exact(b.bytes, b.size, &copy, &g), LLS_OK);
        int64_t value = 77;
        assert_int_equal(lls__gguf_int(g, "n", 0, INT64_MIN, INT64_MAX, &value), LLS_OK);
        assert_int_equal(value, cases[i].value);
        value = 77;
        assert_int_equal(lls__gguf_int(g, "n", 0, cases[i].value - 2, cases[i].value - 1, &value), LLS_ERR_FORMAT);
        assert_int_equal(value, 77);
        assert_non_null(strstr(lls_last_error(), "'n'"));
        lls__gguf_close(g);
        free(copy);
        build_free(&b);
    }
}

static void test_typed_getters(void **state) {
    (void)state;
    gguf_builder b = {0};
    build_header(&b, 3, 0, 7);
    build_kv_u32(&b, "int", 9);
    build_kv_f32(&b, "float", 0.5f);
    build_kv(&b, "double", LLS__GGUF_F64, &(double){0.25}, sizeof(double));
    build_kv(&b, "bool", LLS__GGUF_BOOL, &(uint8_t){1}, 1);
    build_kv_string(&b, "string", "text");
    build_kv(&b, "ints", LLS__GGUF_ARRAY, NULL, 0);
    build_u32(&b, LLS__GGUF_I16);
    build_u64(&b, 2);
    build_bytes(&b, (int16_t[]){-7, 300}, 4);
    build_kv(&b, "floats", LLS__GGUF_ARRAY, NULL, 0);
    build_u32(&b, LLS__GGUF_F32);
    build_u64(&b, 2);
    build_bytes(&b, (float[]){1.5f, -2.0f}, 8);
    uint8_t *copy;
    lls__gguf *g = NULL;
    assert_int_equal(parse_exact(b.bytes, b.size, &copy, &g), LLS_OK);

    double d;
    bool flag;
    uint32_t u;
    lls__gguf_str s;
    const lls__gguf_kv *kv;
    assert_int_equal(lls__gguf_u32(g, "int", 0, &u), LLS_OK);
    assert_int_equal(u, 9);
    assert_int_equal(lls__gguf_u32(g, "absent", 4, &u), LLS_OK);
    assert_int_equal(u, 4);
    assert_int_equal(lls__gguf_float(g, "float", 0, &d), LLS_OK);
    assert_true(d == 0.5);
    assert_int_equal(lls__gguf_float(g, "double", 0, &d), LLS_OK);
    assert_true(d == 0.25);
    assert_int_equal(lls__gguf_float(g, "absent", 3.0, &d), LLS_OK);
    assert_true(d == 3.0);
    assert_int_equal(lls__gguf_bool(g, "bool", false, &flag), LLS_OK);
    assert_true(flag);
    assert_int_equal(lls__gguf_bool(g, "absent", true, &flag), LLS_OK);
    assert_true(flag);
    assert_int_equal(lls__gguf_string(g, "string", &s), LLS_OK);
    assert_int_equal(s.size, 4);
    assert_int_equal(lls__gguf_string(g, "absent", &s), LLS_OK);
    assert_null(s.data);
    assert_int_equal(lls__gguf_array(g, "ints", LLS__GGUF_KIND_INT, &kv), LLS_OK);
    assert_int_equal(kv->count, 2);
    assert_int_equal(lls__gguf_int_at(kv, 0), -7);
    assert_int_equal(lls__gguf_int_at(kv, 1), 300);
    assert_int_equal(lls__gguf_array(g, "floats", LLS__GGUF_KIND_FLOAT, &kv), LLS_OK);
    assert_true(lls__gguf_float_at(kv, 1) == -2.0);
    assert_int_equal(lls__gguf_array(g, "absent", LLS__GGUF_KIND_INT, &kv), LLS_OK);
    assert_null(kv);

    assert_int_equal(lls__gguf_u32(g, "float", 0, &u), LLS_ERR_FORMAT);
    assert_int_equal(lls__gguf_u32(g, "bool", 0, &u), LLS_ERR_FORMAT);
    assert_int_equal(lls__gguf_u32(g, "ints", 0, &u), LLS_ERR_FORMAT);
    assert_int_equal(lls__gguf_float(g, "int", 0, &d), LLS_ERR_FORMAT);
    assert_int_equal(lls__gguf_bool(g, "int", false, &flag), LLS_ERR_FORMAT);
    assert_int_equal(lls__gguf_string(g, "int", &s), LLS_ERR_FORMAT);
    assert_int_equal(lls__gguf_array(g, "int", LLS__GGUF_KIND_INT, &kv), LLS_ERR_FORMAT);
    assert_int_equal(lls__gguf_array(g, "ints", LLS__GGUF_KIND_FLOAT, &kv), LLS_ERR_FORMAT);
    assert_int_equal(lls__gguf_array(g, "floats", LLS__GGUF_KIND_STRING, &kv), LLS_ERR_FORMAT);
    assert_non_null(strstr(lls_last_error(), "f32 array"));
    lls__gguf_close(g);
    free(copy);
    build_free(&b);
}

/* Arrays nested `depth` deep, the innermost one empty. */
static gguf_builder nested(int depth) {
    gguf_builder b = one_kv("deep", LLS__GGUF_ARRAY, NULL, 0);
    for (int i = 1; i < depth; i++) {
        build_u32(&b, LLS__GGUF_ARRAY);
        build_u64(&b, 1);
    }
    build_u32(&b, LLS__GGUF_U8);
    build_u64(&b, 0);
    return b;
}

static void test_nested_arrays(void **state) {
    (void)state;
    gguf_builder b = nested(4);
    uint8_t *copy;
    lls__gguf *g = NULL;
    assert_int_equal(parse_exact(b.bytes, b.size, &copy, &g), LLS_OK);
    assert_int_equal(g->kvs[0].type, LLS__GGUF_ARRAY);
    lls__gguf_close(g);
    free(copy);
    build_free(&b);
    b = nested(5);
    expect_refusal(&b, LLS_ERR_FORMAT, "nests arrays deeper than 4");
    b = nested(10000);
    expect_refusal(&b, LLS_ERR_FORMAT, "nests arrays deeper than 4");
}

static void test_hostile_values(void **state) {
    (void)state;
    gguf_builder b = one_kv("k", 13, "\0\0\0\0\0\0\0\0", 8);
    expect_refusal(&b, LLS_ERR_FORMAT, "value type 13");
    b = one_kv("", LLS__GGUF_U8, "", 1);
    expect_refusal(&b, LLS_ERR_FORMAT, "key 0 has 0 bytes");
    b = one_kv("a\x1b[31m", LLS__GGUF_U8, "", 1);
    expect_refusal(&b, LLS_ERR_FORMAT, "control character 0x1b");

    static const uint64_t lengths[] = {1, 1000, (uint64_t)1 << 60, UINT64_MAX - 7, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        b = one_kv("s", LLS__GGUF_STRING, &lengths[i], sizeof lengths[i]);
        expect_refusal(&b, LLS_ERR_FORMAT, "string has");
        for (uint32_t type = LLS__GGUF_U8; type <= LLS__GGUF_F64; type++) {
            b = one_kv("array", LLS__GGUF_ARRAY, &type, sizeof type);
            build_u64(&b, lengths[i]);
            expect_refusal(&b, LLS_ERR_FORMAT, "count");
        }
    }
    b = (gguf_builder){0};
    build_header(&b, 3, 0, 1);
    build_u64(&b, UINT64_MAX); // the key's length
    build_u64(&b, 0);
    expect_refusal(&b, LLS_ERR_FORMAT, "key has 18446744073709551615 bytes");
    b = (gguf_builder){0};
    build_header(&b, 3, 0, 2);
    build_kv_u32(&b, "twice", 1);
    build_kv_u32(&b, "twice", 2);
    expect_refusal(&b, LLS_ERR_FORMAT, "key 'twice' occurs twice");
}

// ---- L04: tensor infos that lie --------------------------------------------------------------------

static void test_l04_hostile_tensor_infos(void **state) {
    (void)state;
    const uint64_t ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const uint32_t ndims[] = {0, 5, 9, UINT32_MAX};
    for (size_t i = 0; i < sizeof ndims / sizeof ndims[0]; i++) {
        gguf_builder b = one_tensor(ndims[i], ones, F32, 0);
        expect_refusal(&b, LLS_ERR_FORMAT, "dimensions, must have 1 to 4");
    }
    static const struct {
        uint32_t ndim;
        uint64_t dims[4];
        uint32_t type;
        uint64_t offset;
        lls_status status;
        const char *text;
    } cases[] = {
        {2, {4, 0}, F32, 0, LLS_ERR_FORMAT, "shape[0] = 0"},
        {2, {0, 4}, Q4_0, 0, LLS_ERR_FORMAT, "shape[1] = 0"},
        {2, {((uint64_t)1 << 42) + 1, (uint64_t)1 << 22}, F32, 0, LLS_ERR_FORMAT, "more than 2^63"},
        {4, {(uint64_t)1 << 32, (uint64_t)1 << 32, 1, 1}, F16, 0, LLS_ERR_FORMAT, "more than 2^63"},
        {4, {(uint64_t)1 << 21, (uint64_t)1 << 21, (uint64_t)1 << 21, 2}, Q4_0, 0, LLS_ERR_FORMAT, "more than 2^63"},
        {2, {UINT64_MAX, 2}, F32, 0, LLS_ERR_FORMAT, "shape[1] = 18446744073709551615"},
        {2, {(uint64_t)1 << 63, 2}, F32, 0, LLS_ERR_FORMAT, "shape[1] = 9223372036854775808"},
        {2, {100, 1}, Q4_K, 0, LLS_ERR_FORMAT, "multiple of 256"},
        {1, {1}, 9999, 0, LLS_ERR_FORMAT, "type 9999"},
        {1, {1}, 4, 0, LLS_ERR_FORMAT, "type 4"}, // withdrawn
        {1, {UINT32_MAX}, UINT32_MAX, 0, LLS_ERR_FORMAT, "type 4294967295"},
        {1, {256}, Q2_K, 0, LLS_ERR_MODEL, "type Q2_K (10)"},
        {1, {1}, F32, 4, LLS_ERR_FORMAT, "offset 4, must be a multiple of 32"},
        {1, {1}, F32, (uint64_t)1 << 63, LLS_ERR_FORMAT, "offset 9223372036854775808"},
        {1, {1}, F32, UINT64_MAX - 31, LLS_ERR_FORMAT, "offset 18446744073709551584"},
        {1, {1}, F32, 64, LLS_ERR_FORMAT, "data section has only 64"},
        {1, {17}, F32, 0, LLS_ERR_FORMAT, "68 bytes at offset 0"},
        {1, {9}, F32, 32, LLS_ERR_FORMAT, "36 bytes at offset 32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gguf_builder b = one_tensor(cases[i].ndim, cases[i].dims, cases[i].type, cases[i].offset);
        expect_refusal(&b, cases[i].status, cases[i].text);
    }
}

static void test_l04_hostile_counts(void **state) {
    (void)state;
    // 2^24 keys would be a gigabyte, which a system may well grant: it must not be asked.
    static const uint64_t counts[] = {8, (uint64_t)1 << 24, (uint64_t)1 << 60, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        gguf_builder b = {0};
        build_header(&b, 3, counts[i], 0);
        build_tensor_info(&b, "w", 1, (uint64_t[]){1}, F32, 0);
        expect_refusal(&b, LLS_ERR_FORMAT, "number of tensors");
        build_header(&b, 3, 0, counts[i]);
        build_kv_u32(&b, "k", 1);
        expect_refusal(&b, LLS_ERR_FORMAT, "number of keys");
    }
}

static void test_names(void **state) {
    (void)state;
    char name[66];
    memset(name, 'n', sizeof name);
    name[64] = 0;
    gguf_builder b = {0};
    build_header(&b, 3, 1, 0);
    build_tensor_info(&b, name, 1, (uint64_t[]){1}, F32, 0);
    build_padding(&b, 32);
    build_u32(&b, 0);
    uint8_t *copy;
    lls__gguf *g = NULL;
    assert_int_equal(parse_exact(b.bytes, b.size, &copy, &g), LLS_OK);
    assert_non_null(lls__gguf_find_tensor(g, name));
    lls__gguf_close(g);
    free(copy);
    build_free(&b);

    name[64] = 'n';
    name[65] = 0;
    build_header(&b, 3, 1, 0);
    build_tensor_info(&b, name, 1, (uint64_t[]){1}, F32, 0);
    expect_refusal(&b, LLS_ERR_FORMAT, "tensor name 0 has 65 bytes");
    build_header(&b, 3, 1, 0);
    build_tensor_info(&b, "a\nb", 1, (uint64_t[]){1}, F32, 0);
    expect_refusal(&b, LLS_ERR_FORMAT, "control character 0x0a");
}

static void test_headers(void **state) {
    (void)state;
    gguf_builder b = {0};
    expect_refusal(&b, LLS_ERR_FORMAT, "magic");
    build_bytes(&b, "GGUX\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
    expect_refusal(&b, LLS_ERR_FORMAT, "must begin with \"GGUF\"");
    static const uint32_t versions[] = {0, 1, 4, UINT32_MAX};
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        build_header(&b, versions[i], 0, 0);
        expect_refusal(&b, LLS_ERR_FORMAT, "must be 2 or 3");
    }
    build_header(&b, 3u << 24, 0, 0);
    expect_refusal(&b, LLS_ERR_FORMAT, "big-endian");
}

// ---- L06: truncated files and duplicates -----------------------------------------------------------

static void test_l06_every_truncation_is_refused(void **state) {
    (void)state;
    gguf_builder b = good_file();
    for (size_t n = 0; n < b.size; n++) {
        uint8_t *copy;
        lls__gguf *g = NULL;
        assert_int_equal(parse_exact(b.bytes, n, &copy, &g), LLS_ERR_FORMAT);
        assert_null(g);
        free(copy);
    }
    build_free(&b);
}

static void test_l06_duplicate_tensor(void **state) {
    (void)state;
    gguf_builder b = {0};
    build_header(&b, 3, 3, 0);
    build_tensor_info(&b, "same", 1, (uint64_t[]){1}, F32, 0);
    build_tensor_info(&b, "other", 1, (uint64_t[]){1}, F32, 0);
    build_tensor_info(&b, "same", 1, (uint64_t[]){1}, F32, 0);
    build_padding(&b, 32);
    build_u32(&b, 0);
    expect_refusal(&b, LLS_ERR_FORMAT, "tensor 'same' occurs twice");
}

/* No single damaged byte may crash the reader or let it accept bytes outside the file. */
static void test_damaged_bytes(void **state) {
    (void)state;
    gguf_builder b = good_file();
    for (size_t i = 0; i < b.size; i++) {
        uint8_t original = b.bytes[i];
        const uint8_t damage[] = {
            0, 0xff, 0x7f, (uint8_t)(original ^ 1), (uint8_t)(original ^ 0x80), (uint8_t)(original + 1)};
        for (size_t j = 0; j < sizeof damage; j++) {
            b.bytes[i] = damage[j];
            uint8_t *copy;
            lls__gguf *g = NULL;
            if (parse_exact(b.bytes, b.size, &copy, &g) == LLS_OK) {
                read_all(g);
                lls__gguf_close(g);
            }
            free(copy);
        }
        b.bytes[i] = original;
    }
    build_free(&b);
}

// ---- Files -----------------------------------------------------------------------------------------

static void write_file(const char *path, const void *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void test_open(void **state) {
    (void)state;
    char folder[] = "/tmp/gguf_test_XXXXXX";
    assert_non_null(mkdtemp(folder));
    char path[64];
    snprintf(path, sizeof path, "%s/m.gguf", folder);

    lls__gguf *g = NULL;
    assert_int_equal(lls__gguf_open(path, &g), LLS_ERR_IO);
    assert_non_null(strstr(lls_last_error(), path));
    assert_int_equal(lls__gguf_open(folder, &g), LLS_ERR_IO);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(lls__gguf_open(path, &g), LLS_ERR_IO); // must not wait for a writer
    assert_int_equal(remove(path), 0);
    write_file(path, "", 0);
    assert_int_equal(lls__gguf_open(path, &g), LLS_ERR_FORMAT);

    gguf_builder b = good_file();
    const size_t cuts[] = {25, b.size - 40, b.size - 1}; // L06: in the header, in the first tensor, at the last byte
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        write_file(path, b.bytes, cuts[i]);
        assert_int_equal(lls__gguf_open(path, &g), LLS_ERR_FORMAT);
        assert_non_null(strstr(lls_last_error(), path));
    }
    assert_null(g);
    write_file(path, b.bytes, b.size);
    assert_int_equal(lls__gguf_open(path, &g), LLS_OK);
    read_all(g);
    lls__gguf_close(g);
    lls__gguf_close(NULL);
    build_free(&b);
    assert_int_equal(remove(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* A file that spans many pages: hints change nothing that can be read. */
static void test_paging_hints(void **state) {
    (void)state;
    char path[] = "/tmp/gguf_test_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    gguf_builder b = {0};
    build_header(&b, 3, 2, 0);
    build_tensor_info(&b, "big", 2, (uint64_t[]){1024, 16}, F32, 0);
    build_tensor_info(&b, "small", 1, (uint64_t[]){3}, F32, 65536);
    build_padding(&b, 32);
    for (int32_t i = 0; i < 16384 + 3; i++) {
        build_bytes(&b, &i, sizeof i);
    }
    write_file(path, b.bytes, b.size);
    lls__gguf *g = NULL;
    assert_int_equal(lls__gguf_open(path, &g), LLS_OK);
    uint64_t before = read_all(g);
    for (size_t i = 0; i < g->num_tensors; i++) {
        lls__gguf_will_need(g, &g->tensors[i]);
        lls__gguf_drop_pages(g, &g->tensors[i]);
    }
    assert_int_equal(read_all(g), before);
    lls__gguf_close(g);
    build_free(&b);
    assert_int_equal(remove(path), 0);
}

static void test_unaligned_memory_is_refused(void **state) {
    (void)state;
    uint64_t memory[8] = {0};
    lls__gguf *g = NULL;
    assert_int_equal(lls__gguf_parse((uint8_t *)memory + 1, 32, "test.gguf", &g), LLS_ERR_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_file),
        cmocka_unit_test(test_every_tensor_type),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_int_widths),
        cmocka_unit_test(test_typed_getters),
        cmocka_unit_test(test_nested_arrays),
        cmocka_unit_test(test_hostile_values),
        cmocka_unit_test(test_l04_hostile_tensor_infos),
        cmocka_unit_test(test_l04_hostile_counts),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_l06_every_truncation_is_refused),
        cmocka_unit_test(test_l06_duplicate_tensor),
        cmocka_unit_test(test_damaged_bytes),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_paging_hints),
        cmocka_unit_test(test_unaligned_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
