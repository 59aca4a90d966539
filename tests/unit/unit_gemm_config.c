/* Configurations of the Hopper rungs: their text, what is legal, and what the model prefers, without a GPU. */
#include <string.h>

#include "ops/gemm/sm90_plan.h"
#include "unit/unit.h"

static const int32_t tiles[][2] = {{256, 128}, {128, 256}, {128, 192}, {128, 128},
                                   {128, 64},  {64, 256},  {64, 128},  {64, 64}};
enum { NUM_TILES = sizeof tiles / sizeof *tiles };

static lls__sm90_shape shape_of(int64_t m, int64_t n, int32_t k_steps) {
    return (lls__sm90_shape){.m = m,
                             .n = n,
                             .batch = 1,
                             .k_steps = k_steps,
                             .num_sms = 132,
                             .out_bytes = 2,
                             .a_lines = 1,
                             .b_lines = 1,
                             .a_granule = 8,
                             .b_granule = 8,
                             .tiles = tiles,
                             .num_tiles = NUM_TILES,
                             .plain = true,
                             .any_split = true,
                             .any_cluster = true};
}

static void text_and_back(void **state) {
    (void)state;
    const lls__gemm_config c = {128, 256, 4, 2, 1, 1, 8, 0}, swapped = {64, 80, 12, 1, 4, 1, 2, 1};
    lls__gemm_config back;
    char text[96];
    lls__gemm_config_print(&c, text, sizeof text);
    assert_string_equal(text, "tile=128x256 stages=4 cluster=2x1 split=1 raster=8");
    assert_true(lls__gemm_config_parse(text, &back));
    assert_memory_equal(&c, &back, sizeof c);
    assert_false(lls__gemm_config_parse("tile=128x256 stages=4 cluster=2x1 split=1", &back));
    assert_false(lls__gemm_config_parse("tile=128x256 stages=4 cluster=2x1 split=1 raster=8 more", &back));
    lls__gemm_config_print(&swapped, text, sizeof text);
    assert_string_equal(text, "tile=64x80 stages=12 cluster=1x4 split=1 raster=2 swap=1");
    assert_true(lls__gemm_config_parse(text, &back));
    assert_memory_equal(&swapped, &back, sizeof back);
    assert_false(lls__gemm_config_parse("tile=64x80 stages=12 cluster=1x4 split=1 raster=2 swap=2", &back));
    assert_false(lls__gemm_config_parse("", &back));
}

// Whatever the shape: there is a configuration, all are legal, none comes twice, the cheapest is first.
static void every_list_is_legal_and_sorted(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 63, 128, 129, 1000, 4096, 16384};
    static const int32_t steps[] = {1, 2, 7, 64, 448};
    lls__gemm_config all[LLS__SM90_MAX_CONFIGS];
    for (int i = 0; i < 7 * 7 * 5; i++) {
        lls__sm90_shape s = shape_of(sizes[i % 7], sizes[i / 7 % 7], steps[i / 49]);
        int32_t count = lls__sm90_configs(&s, 1, all);
        assert_in_range(count, 1, LLS__SM90_MAX_CONFIGS);
        lls__gemm_config best;
        assert_true(lls__sm90_best(&s, 1, &best));
        assert_memory_equal(&best, &all[0], sizeof best);
        for (int32_t j = 0; j < count; j++) {
            const char *fault = lls__sm90_config_fault(&s, &all[j]);
            if (fault) fail_msg("%s", fault);
            assert_in_range(lls__sm90_shared_bytes(&all[j], false), 1, 227 * 1024);
            if (j > 0) assert_true(lls__sm90_cycles(&s, &all[j - 1]) <= lls__sm90_cycles(&s, &all[j]));
            for (int32_t other = 0; other < j; other++) assert_true(memcmp(&all[other], &all[j], sizeof *all) != 0);
        }
    }
}

static lls__gemm_config choice(lls__sm90_shape s) {
    lls__gemm_config all[LLS__SM90_MAX_CONFIGS];
    lls__sm90_configs(&s, 1, all);
    return all[0];
}

static void the_model_fills_the_device(void **state) {
    (void)state;
    lls__gemm_config large = choice(shape_of(8192, 8192, 128));
    assert_int_equal(large.tile_m * large.tile_n, 128 * 256);
    assert_int_equal(large.split, 1);
    lls__gemm_config small = choice(shape_of(1024, 1024, 16));
    assert_true(small.tile_m * small.tile_n <= 128 * 64); // 32 larger tiles would leave 100 multiprocessors idle
    lls__gemm_config deep = choice(shape_of(256, 4096, 224));
    assert_true(deep.split > 1); // few tiles, much k
}

static void limits_are_kept(void **state) {
    (void)state;
    lls__sm90_shape s = shape_of(128, 4096, 224);
    s.any_split = false, s.any_cluster = false;
    lls__gemm_config all[LLS__SM90_MAX_CONFIGS];
    int32_t count = lls__sm90_configs(&s, 1, all);
    for (int32_t i = 0; i < count; i++) assert_int_equal(all[i].split * all[i].cluster_m * all[i].cluster_n, 1);
    s = shape_of(128, 4096, 3);
    lls__gemm_config c = {128, 128, 6, 1, 1, 4, 1, 0};
    assert_string_equal(lls__sm90_config_fault(&s, &c), "its split is more than k has stages");
    s.grouped = true, c.split = 1, c.cluster_m = 2;
    assert_string_equal(lls__sm90_config_fault(&s, &c), "grouped products take no cluster");
    s = shape_of(4096, 4096, 32);
    s.only_n = 128; // of block scales
    count = lls__sm90_configs(&s, 1, all);
    assert_in_range(count, 1, LLS__SM90_MAX_CONFIGS);
    for (int32_t i = 0; i < count; i++) assert_int_equal(all[i].tile_n, 128);
    c = (lls__gemm_config){128, 256, 4, 1, 1, 1, 1, 0};
    assert_string_equal(lls__sm90_config_fault(&s, &c), "block scales need 128 columns a tile");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_back),
        cmocka_unit_test(every_list_is_legal_and_sorted),
        cmocka_unit_test(the_model_fills_the_device),
        cmocka_unit_test(limits_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
