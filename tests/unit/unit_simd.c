/* Runs the tests of cpu/simd.h at every level that this build has and this machine reaches. */
#include <stdio.h>

#include "unit/simd_level.h"

int main(void) {
    int failures = 0;
    for (lls__cpu_level level = LLS__CPU_PORTABLE; level <= LLS__CPU_AVX512; level++) {
        if (level > lls__cpu_level_detect()) {
            printf("%s: this machine does not have it, skipped\n", lls__cpu_level_name(level));
            continue;
        }
        printf("%s:\n", lls__cpu_level_name(level));
        fflush(stdout);
        switch (level) {
        case LLS__CPU_PORTABLE: failures += simd_tests_portable(); break;
#if defined(__x86_64__)
        case LLS__CPU_AVX2: failures += simd_tests_avx2(); break;
        case LLS__CPU_AVX512: failures += simd_tests_avx512(); break;
#endif
        default: break;
        }
    }
    return failures != 0;
}
