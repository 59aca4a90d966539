/* cpu/simd.h and cpu/simd_f8.h at one SIMD level: compiled once a level, run by unit_simd.c. */
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/f8.h"
#include "cpu/simd_f8.h"
#include "unit/simd_level.h"
#include "unit/unit.h"

static const lls_dtype floats[] = {LLS_F32, LLS_F16, LLS_BF16};

static size_t size_of(lls_dtype dtype) {
    return dtype == LLS_F32 ? 4 : 2;
}

static float lane(vf v, int i) {
    float lanes[LLS_VF];
    memcpy(lanes, &v, sizeof v);
    return lanes[i];
}

static void broadcast_keeps_the_sign_of_zero(void **state) {
    (void)state;
    for (int i = 0; i < LLS_VF; i++) {
        assert_true(signbit(lane(vf_set1(-0.0f), i)));
        assert_false(signbit(lane(vf_set1(0.0f), i)));
        assert_true(lane(vf_set1(1.5f), i) == 1.5f);
    }
}

static void loads_of_every_half(void **state) {
    (void)state;
    for (uint32_t first = 0; first < 65536; first += LLS_VF) {
        uint16_t halves[LLS_VF];
        for (int i = 0; i < LLS_VF; i++) halves[i] = (uint16_t)(first + (uint32_t)i);
        vf f16 = vf_load(LLS_F16, halves, 0), bf16 = vf_load(LLS_BF16, halves, 0);
        for (int i = 0; i < LLS_VF; i++) {
            float want = lls__f16_to_f32(halves[i]);
            if (isnan(want)) assert_true(isnan(lane(f16, i))); // hardware quiets signalling NaN
            else assert_int_equal(lls__f32_bits(lane(f16, i)), lls__f32_bits(want));
            assert_int_equal(lls__f32_bits(lane(bf16, i)), (uint32_t)halves[i] << 16);
        }
    }
}

static void check_store(const float *values) {
    uint16_t halves[LLS_VF];
    vf v = vf_load_f32(values);
    vf_store(LLS_F16, halves, 0, v);
    for (int i = 0; i < LLS_VF; i++) assert_int_equal(halves[i], lls__f32_to_f16(values[i]));
    vf_store(LLS_BF16, halves, 0, v);
    for (int i = 0; i < LLS_VF; i++) assert_int_equal(halves[i], lls__f32_to_bf16(values[i]));
}

// unit_half.c checks the scalar forms against doubles; vectors must agree with them, NaN included.
static void stores_round_as_the_scalar_forms_do(void **state) {
    (void)state;
    float values[LLS_VF];
    uint32_t u = 7;
    for (int turn = 0; turn < 200000; turn++) {
        for (int i = 0; i < LLS_VF; i++) {
            u = u * 1664525 + 1013904223;
            values[i] = lls__f32_from_bits(u ^ u >> 16);
        }
        check_store(values);
    }
    for (uint32_t h = 0; h < 65536; h += LLS_VF / 4) { // each half, and the floats around the middle to the next one
        for (int i = 0; i < LLS_VF; i++) {
            uint32_t half = h + (uint32_t)i / 4, middle = lls__f32_bits(lls__f16_to_f32((uint16_t)half)) + 0x1000;
            values[i] = lls__f32_from_bits(i % 4 == 3 ? half << 16 | 0x8000 : middle + (uint32_t)(i % 4) - 1);
        }
        check_store(values);
    }
    static const float special[] = {0.0f,     -0.0f,      INFINITY, -INFINITY,       NAN,      65519.996f, 65520.0f,
                                    0x1p-25f, 0x1.8p-25f, 0x1p-24f, 0x1.fffffep127f, 0x1p-149f};
    for (size_t s = 0; s < sizeof special / sizeof *special; s++) {
        for (int i = 0; i < LLS_VF; i++) values[i] = special[(s + (size_t)i) % (sizeof special / sizeof *special)];
        check_store(values);
    }
}

// Two pages, the second without access: reading or writing past n faults.
static char *page_end(void) {
    static char *end;
    if (!end) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(pages != MAP_FAILED);
        assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
        end = pages + page;
    }
    return end;
}

static void loads_of_every_f8(void **state) {
    (void)state;
    for (uint32_t first = 0; first < 256; first += LLS_VF) {
        uint8_t codes[LLS_VF];
        for (int i = 0; i < LLS_VF; i++) codes[i] = (uint8_t)(first + (uint32_t)i);
        vf e4m3 = vf_load_e4m3(codes), e5m2 = vf_load_e5m2(codes);
        for (int i = 0; i < LLS_VF; i++) {
            float want4 = lls__e4m3_to_f32(codes[i]), want5 = lls__e5m2_to_f32(codes[i]);
            if (isnan(want4)) assert_true(isnan(lane(e4m3, i)));
            else assert_int_equal(lls__f32_bits(lane(e4m3, i)), lls__f32_bits(want4));
            if (isnan(want5)) assert_true(isnan(lane(e5m2, i)));
            else assert_int_equal(lls__f32_bits(lane(e5m2, i)), lls__f32_bits(want5));
        }
    }
}

static int8_t to_i8(float x) {
    double rounded = nearbyint((double)x);
    return x != x ? 0 : rounded < -128 ? -128 : rounded > 127 ? 127 : (int8_t)rounded;
}

static void check_byte_stores(const float *values) {
    uint8_t e4m3[LLS_VF], e5m2[LLS_VF];
    int8_t integers[LLS_VF];
    vf v = vf_load_f32(values);
    vf_store_e4m3(e4m3, v), vf_store_e5m2(e5m2, v), vf_store_i8(integers, v);
    for (int i = 0; i < LLS_VF; i++) {
        assert_int_equal(e4m3[i], lls__f32_to_e4m3(values[i]));
        assert_int_equal(e5m2[i], lls__f32_to_e5m2(values[i]));
        assert_int_equal(integers[i], to_i8(values[i]));
    }
}

// All floats whose upper 18 bits are anything and whose lower ones sit at, just below and just above ties and codes.
static void byte_stores_round_as_the_scalar_forms_do(void **state) {
    (void)state;
    static const uint32_t lower[] = {0, 1, 0x1fff, 0x2000, 0x2001, 0x3fff};
    float values[LLS_VF];
    int filled = 0;
    for (uint32_t upper = 0; upper < 1u << 18; upper++) {
        for (int i = 0; i < 6; i++) {
            values[filled++] = lls__f32_from_bits(upper << 14 | lower[i]);
            if (filled < LLS_VF) continue;
            check_byte_stores(values);
            filled = 0;
        }
    }
    for (float x = -130; x <= 130; x += 0.5f) { // ties of integers
        for (int i = 0; i < LLS_VF; i++) values[i] = x;
        check_byte_stores(values);
    }
}

static void partial_loads_touch_n_elements(void **state) {
    (void)state;
    for (int d = 0; d < 3; d++) {
        for (int n = 0; n <= LLS_VF; n++) {
            char *base = page_end() - (size_t)n * size_of(floats[d]);
            float values[LLS_VF];
            for (int i = 0; i < LLS_VF; i++) values[i] = (float)(i + 1);
            vf_store_n(floats[d], base, 0, n, vf_load_f32(values));
            vf v = vf_load_n(floats[d], base, 0, n);
            for (int i = 0; i < LLS_VF; i++) assert_true(lane(v, i) == (i < n ? (float)(i + 1) : 0.0f));
        }
    }
}

static void partial_stores_touch_n_elements(void **state) {
    (void)state;
    for (int d = 0; d < 3; d++) {
        size_t size = size_of(floats[d]);
        for (int n = 0; n <= LLS_VF; n++) {
            unsigned char buffer[(LLS_VF + 2) * 4];
            memset(buffer, 0xA5, sizeof buffer);
            vf_store_n(floats[d], buffer, 1, n, vf_set1(1.0f));
            for (size_t i = 0; i < sizeof buffer; i++) {
                bool inside = i >= size && i < size * (size_t)(n + 1);
                if (!inside) assert_int_equal(buffer[i], 0xA5);
            }
            vf v = vf_load_n(floats[d], buffer, 1, n);
            for (int i = 0; i < n; i++) assert_true(lane(v, i) == 1.0f);
        }
    }
}

static void offsets_count_elements(void **state) {
    (void)state;
    for (int d = 0; d < 3; d++) {
        char buffer[(LLS_VF + 3) * 4];
        for (int i = 0; i < LLS_VF + 3; i++) vf_store_n(floats[d], buffer, i, 1, vf_set1((float)i));
        vf v = vf_load(floats[d], buffer, 3);
        for (int i = 0; i < LLS_VF; i++) assert_true(lane(v, i) == (float)(i + 3));
        vf_store(floats[d], buffer, 2, v);
        assert_true(lane(vf_load(floats[d], buffer, 2), 0) == 3.0f);
    }
}

static void lanes_are_reduced(void **state) {
    (void)state;
    float values[LLS_VF];
    for (int at = 0; at < LLS_VF; at++) {
        for (int i = 0; i < LLS_VF; i++) values[i] = i == at ? 100.0f : (float)-i;
        vf v = vf_load_f32(values);
        assert_true(vf_reduce_max(v) == 100.0f);
        assert_true(vf_sum(v) == (float)(100 + at - LLS_VF * (LLS_VF - 1) / 2));
    }
}

static void squares_are_transposed(void **state) {
    (void)state;
    vf rows[LLS_VF];
    float values[LLS_VF];
    for (int r = 0; r < LLS_VF; r++) {
        for (int i = 0; i < LLS_VF; i++) values[i] = (float)(r * LLS_VF + i);
        rows[r] = vf_load_f32(values);
    }
    vf_transpose(rows);
    for (int r = 0; r < LLS_VF; r++) {
        for (int i = 0; i < LLS_VF; i++) assert_true(lane(rows[r], i) == (float)(i * LLS_VF + r));
    }
}

static void selection(void **state) {
    (void)state;
    float a[LLS_VF], b[LLS_VF];
    for (int i = 0; i < LLS_VF; i++) a[i] = (float)i, b[i] = (float)(LLS_VF - i);
    vf va = vf_load_f32(a), vb = vf_load_f32(b);
    for (int i = 0; i < LLS_VF; i++) {
        assert_true(lane(vf_max(va, vb), i) == fmaxf(a[i], b[i]));
        assert_true(lane(vf_min(va, vb), i) == fminf(a[i], b[i]));
        assert_true(lane(vf_select(va > vb, vf_set1(1), vf_set1(2)), i) == (a[i] > b[i] ? 1.0f : 2.0f));
    }
}

static void fma_multiplies_and_adds(void **state) {
    (void)state;
    assert_true(lane(vf_fma(vf_set1(3), vf_set1(5), vf_set1(-1)), LLS_VF - 1) == 14.0f);
#if LLS_VF > 4 // one rounding: (1 + e)(1 - e) - 1 = -e^2
    assert_true(lane(vf_fma(vf_set1(1 + 0x1p-20f), vf_set1(1 - 0x1p-20f), vf_set1(-1)), 0) == -0x1p-40f);
#endif
}

static void exp_special_values(void **state) {
    (void)state;
    static const float inputs[] = {0, -0.0f, INFINITY, -INFINITY, 89, -88, -1e30f, 1e30f},
                       want[] = {1, 1, INFINITY, 0, INFINITY, 0, 0, INFINITY};
    for (int i = 0; i < 8; i++) assert_true(lane(vf_exp(vf_set1(inputs[i])), i % LLS_VF) == want[i]);
    assert_true(isnan(lane(vf_exp(vf_set1(NAN)), 0)));
    assert_true(isfinite(lane(vf_exp(vf_set1(88.7228f)), 0)));
    assert_true(lane(vf_exp(vf_set1(-87.3365f)), 0) > 0);
}

static void exp_error_in_ulp(void **state) {
    (void)state;
    double worst = 0;
    float worst_x = 0;
    for (int sign = -1; sign <= 1; sign += 2) {
        float limit = sign < 0 ? 87.33f : 88.72f;
        uint32_t end = lls__f32_bits(limit), step = 97; // all exponents from 2^-126 up
        for (uint32_t u = 0x00800000; u + step * LLS_VF < end; u += step * LLS_VF) {
            float x[LLS_VF];
            for (uint32_t i = 0; i < LLS_VF; i++) x[i] = (float)sign * lls__f32_from_bits(u + i * step);
            float y[LLS_VF];
            vf_store_f32(y, vf_exp(vf_load_f32(x)));
            for (int i = 0; i < LLS_VF; i++) {
                double want = exp((double)x[i]);
                int exponent;
                frexp(want, &exponent);
                double error = fabs((double)y[i] - want) / ldexp(1, exponent - 24);
                if (error > worst) worst = error, worst_x = x[i];
            }
        }
    }
    print_message("vf_exp: at most %.3f ulp (x = %.9g)\n", worst, (double)worst_x);
    assert_true(worst < 1.25);
}

int LLS_CPU(simd_tests)(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broadcast_keeps_the_sign_of_zero),
        cmocka_unit_test(loads_of_every_half),
        cmocka_unit_test(stores_round_as_the_scalar_forms_do),
        cmocka_unit_test(loads_of_every_f8),
        cmocka_unit_test(byte_stores_round_as_the_scalar_forms_do),
        cmocka_unit_test(partial_loads_touch_n_elements),
        cmocka_unit_test(partial_stores_touch_n_elements),
        cmocka_unit_test(offsets_count_elements),
        cmocka_unit_test(lanes_are_reduced),
        cmocka_unit_test(squares_are_transposed),
        cmocka_unit_test(selection),
        cmocka_unit_test(fma_multiplies_and_adds),
        cmocka_unit_test(exp_special_values),
        cmocka_unit_test(exp_error_in_ulp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
