/* How 05_mma_sync is launched: what fits the device, the tile by the size, the same for every device of a kind. And which
 * products rungs 03 to 07 refuse. */
#include "ops/gemm/gemm_kernels.h"
#include "unit/unit.h"

static lls__gemm_problem problem(lls_dtype dtype, int64_t m, int64_t n) {
    lls__gemm_problem p = {.batch = 1, .m = m, .n = n, .k = 4096};
    p.a.dtype = p.b.dtype = dtype;
    return p;
}

static const struct device {
    int32_t sm, num_sms,
        block_bytes; // most shared memory of a block (CUDA C++ Programming Guide, compute capabilities)
} devices[] = {{80, 108, 163 << 10}, {86, 84, 99 << 10},    {87, 16, 163 << 10}, {89, 142, 99 << 10},
               {90, 132, 227 << 10}, {100, 148, 227 << 10}, {120, 170, 99 << 10}};
enum { NUM_DEVICES = sizeof devices / sizeof *devices };

static void every_plan_fits_its_device(void **state) {
    (void)state;
    static const lls_dtype dtypes[] = {LLS_F32, LLS_F16, LLS_BF16, LLS_I8, LLS_F8_E4M3, LLS_F8_E5M2};
    static const int64_t sizes[] = {1, 63, 64, 65, 129, 1000, 4096, 100000};
    for (int i = 0; i < NUM_DEVICES; i++) {
        for (int j = 0; j < 6 * 8 * 8; j++) {
            lls__gemm_problem p = problem(dtypes[j % 6], sizes[j / 6 % 8], sizes[j / 48]);
            lls__gemm_mma_plan plan = lls__gemm_mma_plan_of(&p, devices[i].sm, devices[i].num_sms);
            assert_in_range(plan.config.stages, 2, 4);
            assert_in_range(plan.config.band, 1, 100);
            assert_in_range(plan.shared_bytes, (plan.rows + plan.cols) * 128 * plan.config.stages,
                            devices[i].block_bytes);
            assert_true(plan.threads == 128 || plan.threads == 256);
        }
    }
}

static void assert_tile(lls_dtype dtype, int64_t m, int64_t n, int32_t sm, int32_t num_sms, int32_t rows,
                        int32_t cols) {
    lls__gemm_problem p = problem(dtype, m, n);
    lls__gemm_mma_plan plan = lls__gemm_mma_plan_of(&p, sm, num_sms);
    if (plan.rows != rows || plan.cols != cols)
        fail_msg("%lldx%lld on sm_%d takes %dx%d, should take %dx%d", (long long)m, (long long)n, sm, plan.rows,
                 plan.cols, rows, cols);
}

static void large_products_take_large_tiles(void **state) {
    (void)state;
    assert_tile(LLS_BF16, 4096, 4096, 90, 132, 128, 256);
    assert_tile(LLS_F16, 8192, 8192, 80, 108, 128, 256);
    assert_tile(LLS_BF16, 4096, 4096, 89, 142, 128, 128); // 256 columns of sums need more shared memory than it has
    assert_tile(LLS_I8, 4096, 4096, 90, 132, 128, 128);
    assert_tile(LLS_BF16, 16, 4096, 90, 132, 64, 64); // 64 tiles: larger ones would leave more SMs idle
    assert_tile(LLS_F8_E4M3, 64, 64, 90, 132, 64, 64);
}

// Rings of 128 x 256: 227 KB hold 4 stages of 48 KB, 163 KB hold 3. Two blocks of 128 x 128 share an SM where they fit.
static void rings_are_as_deep_as_fits(void **state) {
    (void)state;
    lls__gemm_problem large = problem(LLS_BF16, 8192, 8192), i8 = problem(LLS_I8, 8192, 8192);
    assert_int_equal(lls__gemm_mma_plan_of(&large, 90, 132).config.stages, 4);
    assert_int_equal(lls__gemm_mma_plan_of(&large, 80, 108).config.stages, 3);
    assert_int_equal(lls__gemm_mma_plan_of(&i8, 90, 132).config.stages, 3);
    assert_int_equal(lls__gemm_mma_plan_of(&i8, 80, 108).config.stages, 2);
    assert_int_equal(lls__gemm_mma_plan_of(&i8, 89, 142).config.stages, 3);
}

static void f8_formats_have_instances_of_their_own(void **state) {
    (void)state;
    int32_t seen[4];
    for (int i = 0; i < 4; i++) {
        lls__gemm_problem p = problem(i / 2 ? LLS_F8_E5M2 : LLS_F8_E4M3, 512, 512);
        p.b.dtype = i % 2 ? LLS_F8_E5M2 : LLS_F8_E4M3;
        seen[i] = lls__gemm_mma_plan_of(&p, 90, 132).instance;
        for (int j = 0; j < i; j++) assert_int_not_equal(seen[i], seen[j]);
    }
}

static void refusals(void **state) {
    (void)state;
    lls__gemm_problem p = problem(LLS_F32, 64, 64);
    assert_non_null(strstr(lls__gemm_refuse_mma_sync(&p), "LLS_GEMM_TF32"));
    p.flags = LLS_GEMM_TF32;
    assert_null(lls__gemm_refuse_mma_sync(&p));
    assert_null(lls__gemm_refuse_register_tile(&p));
    assert_non_null(lls__gemm_refuse_wmma(&p));
    p.batch = (int64_t)1 << 31; // a block a tile
    assert_non_null(strstr(lls__gemm_refuse_mma_sync(&p), "more tiles"));
    p.batch--;
    assert_null(lls__gemm_refuse_mma_sync(&p));
    p.a.dtype = LLS_I8;
    assert_non_null(lls__gemm_refuse_register_tile(&p));
}

// [128, k] by [k, 256] bf16, both along k, in a batch of 3 with one b.
static lls__gemm_problem along_k(int64_t k) {
    lls__gemm_problem p = problem(LLS_BF16, 128, 256);
    p.batch = 3, p.k = k;
    p.a.data = p.b.data = (void *)0x1000, p.out.data = (void *)0x2000;
    p.a.row = p.b.col = k, p.a.batch = 128 * k;
    p.a.col = p.b.row = 1;
    return p;
}

static void assert_refused(lls__gemm_problem p, const char *part) {
    const char *why = lls__gemm_refuse_wgmma(&p);
    assert_non_null(why);
    assert_non_null(strstr(why, part));
}

static void what_tma_does_not_reach_is_refused(void **state) {
    (void)state;
    const lls__gemm_problem good = along_k(72);
    lls__gemm_problem p = good;
    assert_null(lls__gemm_refuse_wgmma(&p));
    p.a.dtype = p.b.dtype = LLS_F16;
    assert_null(lls__gemm_refuse_wgmma(&p));
    p.a.dtype = p.b.dtype = LLS_F8_E4M3;
    assert_refused(p, "f16 and bf16");
    p = good, p.k = 0; // or alpha 0
    assert_refused(p, "k above 0");
    p = good, p.c.data = (void *)0x3000, p.c.pointers = p.c.data;
    assert_refused(p, "no pointers");
    p = good, p.a.col = 128, p.a.row = 1;
    assert_refused(p, "contiguous along k");
    p = good, p.b.row = 256, p.b.col = 1;
    assert_refused(p, "contiguous along k");
    p = good, p.a.data = (void *)0x1002;
    assert_refused(p, "16 bytes");
    p = good, p.b.col = 76; // 152 bytes
    assert_refused(p, "16 bytes");
    p = good, p.a.batch = 128 * 72 + 4;
    assert_refused(p, "16 bytes");
    p = good, p.batch = (int64_t)1 << 30; // a block for each 128 x 128
    assert_refused(p, "more tiles");
    p.batch--;
    assert_null(lls__gemm_refuse_wgmma(&p));
}

// One row of any length begins at 16 bytes, two do not.
static void a_row_does_not_change_the_rung(void **state) {
    (void)state;
    lls__gemm_problem p = along_k(76);
    assert_refused(p, "16 bytes");
    p.m = p.n = 1, p.a.row = p.b.col = 1, p.a.batch = 80;
    assert_null(lls__gemm_refuse_wgmma(&p));
    p.flags = LLS_GEMM_BATCH_INVARIANT;
    assert_refused(p, "to be invariant");
    p.k = 80;
    assert_null(lls__gemm_refuse_wgmma(&p));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_fits_its_device),
        cmocka_unit_test(large_products_take_large_tiles),
        cmocka_unit_test(rings_are_as_deep_as_fits),
        cmocka_unit_test(f8_formats_have_instances_of_their_own),
        cmocka_unit_test(refusals),
        cmocka_unit_test(what_tma_does_not_reach_is_refused),
        cmocka_unit_test(a_row_does_not_change_the_rung),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
