/* The tests of cpu/simd.h at each level: the number of failures. */
#ifndef TESTS_UNIT_SIMD_LEVEL_H
#define TESTS_UNIT_SIMD_LEVEL_H

#include "cpu/level.h"

LLS_CPU_DECLARE(int, simd_tests, void);

#endif
