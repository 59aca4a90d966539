/* f16 and bf16: all 65536 patterns to f32 and back, and rounding of f32 against an oracle in double. */
#include <math.h>

#include "core/element.h"
#include "cpu/half.h"
#include "unit/unit.h"

// A format with `bits` of mantissa whose smallest normal is 2^min_exponent: the two neighbours of |x| and the one that
// rounding to nearest even takes, in double.
static double round_even(double x, int bits, int min_exponent, double largest) {
    if (x == 0 || isnan(x) || isinf(x)) return x;
    int exponent;
    frexp(x, &exponent); // |x| in [2^(exponent - 1), 2^exponent)
    exponent = exponent - 1 < min_exponent ? min_exponent : exponent - 1;
    double step = ldexp(1, exponent - bits),
           rounded = nearbyint(x / step) * step; // both exact; nearbyint rounds to even
    return fabs(rounded) > largest ? copysign(INFINITY, x) : rounded;
}

static double f16_oracle(double x) {
    return round_even(x, 10, -14, 65504);
}

static double bf16_oracle(double x) {
    return round_even(x, 7, -126, 0x1.fep127);
}

static void expect_same(double got, double want, double input) {
    if (isnan(want) ? isnan(got) : got == want && !signbit(got) == !signbit(want)) return;
    fail_msg("%.17g rounds to %.17g, must be %.17g", input, got, want);
}

static void f16_patterns(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = lls__f16_to_f32((uint16_t)h);
        int exponent = h >> 10 & 31, mantissa = h & 0x3ff;
        double magnitude = exponent == 31 ? (mantissa ? (double)NAN : (double)INFINITY)
                           : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                          : ldexp(mantissa, -24);
        expect_same((double)f, h & 0x8000 ? -magnitude : magnitude, h);
        uint16_t back = lls__f32_to_f16(f);
        if (isnan(f)) assert_true((back & 0x7c00) == 0x7c00 && (back & 0x3ff));
        else assert_int_equal(back, h);
    }
}

static void bf16_patterns(void **state) {
    (void)state;
    for (uint32_t b = 0; b < 65536; b++) {
        float f = lls__bf16_to_f32((uint16_t)b);
        assert_int_equal(lls__f32_bits(f), b << 16);
        uint16_t back = lls__f32_to_bf16(f);
        if (isnan(f)) assert_true((back & 0x7f80) == 0x7f80 && (back & 0x7f));
        else assert_int_equal(back, b);
    }
}

static void check_rounding(float f) {
    expect_same((double)lls__f16_to_f32(lls__f32_to_f16(f)), f16_oracle((double)f), (double)f);
    expect_same((double)lls__bf16_to_f32(lls__f32_to_bf16(f)), bf16_oracle((double)f), (double)f);
}

// Each value of the format, the midpoint to the next, and the floats beside both.
static void rounding_at_boundaries(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float values[] = {lls__f16_to_f32((uint16_t)h), lls__f16_to_f32((uint16_t)(h + 1)),
                          lls__bf16_to_f32((uint16_t)h), lls__bf16_to_f32((uint16_t)(h + 1))};
        for (int i = 0; i < 4; i += 2) {
            float points[] = {values[i], (float)(((double)values[i] + (double)values[i + 1]) / 2)};
            for (int j = 0; j < 2; j++) {
                check_rounding(points[j]);
                check_rounding(nextafterf(points[j], INFINITY));
                check_rounding(nextafterf(points[j], -INFINITY));
            }
        }
    }
    static const float edges[] = {65504,        65519.996f,   65520,           65536,
                                  0x1p-24f,     0x1p-25f,     0x1.000002p-25f, 0x1.fffffep-26f,
                                  0x1.ffcp-15f, 0x1.ffep-15f, 0x1.ffefffp-15f, 0x1.fffffep127f};
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) check_rounding(edges[i]), check_rounding(-edges[i]);
}

static void rounding_of_random_bits(void **state) {
    (void)state;
    uint32_t u = 1;
    for (int i = 0; i < 4000000; i++) {
        u = u * 1664525 + 1013904223;
        check_rounding(lls__f32_from_bits(u ^ u >> 16));
    }
}

// The oracles store doubles: through an odd-rounded float, as if rounded once.
static void double_to_half_rounds_once(void **state) {
    (void)state;
    uint16_t cell;
    lls_tensor f16 = {.data = &cell, .dtype = LLS_F16}, bf16 = {.data = &cell, .dtype = LLS_BF16};
    double tie = 1 + 0x1p-11,
           above = tie + 0x1p-40; // `above` as a float is the tie, which would then round down to even
    lls__set(&f16, 0, tie), assert_true(lls__get(&f16, 0) == 1);
    lls__set(&f16, 0, above), assert_true(lls__get(&f16, 0) == 1 + 0x1p-10);
    lls__set(&f16, 0, -above), assert_true(lls__get(&f16, 0) == -1 - 0x1p-10);
    lls__set(&bf16, 0, 1 + 0x1p-8 + 0x1p-40), assert_true(lls__get(&bf16, 0) == 1 + 0x1p-7);
    uint64_t seed = 1;
    for (int i = 0; i < 1000000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        double x = ldexp((double)(int64_t)seed, (int)(seed >> 17 & 63) - 90);
        lls__set(&f16, 0, x), expect_same(lls__get(&f16, 0), f16_oracle(x), x);
        lls__set(&bf16, 0, x), expect_same(lls__get(&bf16, 0), bf16_oracle(x), x);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_patterns),
        cmocka_unit_test(bf16_patterns),
        cmocka_unit_test(rounding_at_boundaries),
        cmocka_unit_test(rounding_of_random_bits),
        cmocka_unit_test(double_to_half_rounds_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
