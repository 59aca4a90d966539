/* SIMD levels of the CPU backend. Each *_cpu.c is compiled once a level, with that level's compiler flags and
 * LLS_CPU_LEVEL_SUFFIX defined, and defines LLS_CPU(name) = name_<suffix>. The variant table holds one row for each,
 * best first. */
#ifndef LLS_CPU_LEVEL_H
#define LLS_CPU_LEVEL_H

typedef enum lls__cpu_level {
    LLS__CPU_PORTABLE = 0,
    LLS__CPU_AVX2 = 1,  /* AVX2, FMA, F16C */
    LLS__CPU_AVX512 = 2 /* AVX-512 F, BW, VL, DQ and VNNI, on top of the above */
} lls__cpu_level;

/* Best level of this machine, or a lower one when LLS_CPU_LEVEL=portable|avx2|avx512 asks for it. */
lls__cpu_level lls__cpu_level_detect(void);
const char *lls__cpu_level_name(lls__cpu_level level);
const char *lls__cpu_brand(void);

#define LLS_CPU_JOIN_(a, b) a##_##b
#define LLS_CPU_JOIN(a, b) LLS_CPU_JOIN_(a, b)
#define LLS_CPU(name) LLS_CPU_JOIN(name, LLS_CPU_LEVEL_SUFFIX)

/* Declares one function for every level. */
#define LLS_CPU_DECLARE(result, name, ...) \
    result name##_portable(__VA_ARGS__);   \
    result name##_avx2(__VA_ARGS__);       \
    result name##_avx512(__VA_ARGS__)

#endif
