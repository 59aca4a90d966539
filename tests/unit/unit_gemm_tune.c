/* Tuning files: which lines are read, which product finds which. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ops/gemm/tune.h"
#include "unit/unit.h"

static const lls_ctx device = {.sm = 90, .num_sms = 132}, other_device = {.sm = 90, .num_sms = 114};

static lls__gemm_problem problem(int64_t m) {
    lls__gemm_problem p = {.batch = 1, .m = m, .n = 4096, .k = 512, .alpha = 1};
    p.a.dtype = p.b.dtype = p.out.dtype = LLS_BF16;
    p.a.row = 512, p.a.col = 1, p.b.row = 1, p.b.col = 512, p.out.row = 4096, p.out.col = 1;
    return p;
}

// The file is read once a process, so everything is asked of one file.
static void lines_are_found(void **state) {
    (void)state;
    char path[] = "/tmp/lls_tune_XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");
    assert_non_null(file);
    fputs("# llmspeed tune gemm\n\n"
          "sm90x132 bf16 bf16 bf16 kk plain 256 4096 512 1 tile=64x80 stages=11 cluster=2x1 split=1 raster=8 swap=1\r\n"
          "no key and no configuration\n"
          " tile=128x128 stages=6 cluster=1x1 split=1 raster=8\n"
          "sm90x132 bf16 bf16 bf16 kk fused 128 4096 512 1 tile=128x128 stages=6 cluster=1x1 split=1 raster=8\n"
          "sm90x132 bf16 bf16 bf16 kk plain 128 4096 512 1 tile=64x64 stages=13 cluster=1x1 split=1 raster=4",
          file);
    assert_int_equal(fclose(file), 0);
    setenv("LLS_TUNE_FILE", path, 1);

    lls__gemm_problem small = problem(128), large = problem(256), unknown = problem(129), fused = problem(128);
    fused.act = LLS_GEMM_ACT_SILU;
    assert_string_equal(lls__gemm_tuned(&device, &small), "tile=64x64 stages=13 cluster=1x1 split=1 raster=4");
    assert_string_equal(lls__gemm_tuned(&device, &large),
                        "tile=64x80 stages=11 cluster=2x1 split=1 raster=8 swap=1"); // the line's end is cut off
    assert_string_equal(lls__gemm_tuned(&device, &fused), "tile=128x128 stages=6 cluster=1x1 split=1 raster=8");
    assert_null(lls__gemm_tuned(&device, &unknown));
    assert_null(lls__gemm_tuned(&other_device, &small));
    unlink(path);
    assert_non_null(lls__gemm_tuned(&device, &small)); // it is not read again
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines_are_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
