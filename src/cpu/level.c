#include "cpu/level.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

const char *lls__cpu_level_name(lls__cpu_level level) {
    switch (level) {
    case LLS__CPU_PORTABLE: return "portable";
    case LLS__CPU_AVX2: return "avx2";
    case LLS__CPU_AVX512: return "avx512";
    }
    return "?";
}

static lls__cpu_level best_of_machine(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return LLS__CPU_PORTABLE;
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vnni");
    return avx512 ? LLS__CPU_AVX512 : LLS__CPU_AVX2;
#else
    return LLS__CPU_PORTABLE;
#endif
}

static lls__cpu_level detected;
static char brand[64] = "unknown";

static void detect(void) {
    detected = best_of_machine();
    const char *wanted = getenv("LLS_CPU_LEVEL");
    if (wanted) {
        bool known = false;
        for (int level = LLS__CPU_PORTABLE; level <= LLS__CPU_AVX512; level++) {
            if (strcmp(wanted, lls__cpu_level_name((lls__cpu_level)level)) != 0) continue;
            known = true;
            if (level <= (int)detected) detected = (lls__cpu_level)level;
            else
                lls__log(LLS_LOG_WARN, "LLS_CPU_LEVEL=%s: this machine reaches only %s", wanted,
                         lls__cpu_level_name(detected));
        }
        if (!known) lls__log(LLS_LOG_WARN, "LLS_CPU_LEVEL=%s is none of portable, avx2, avx512: ignored", wanted);
    }
#if defined(__x86_64__)
    unsigned regs[12];
    for (unsigned i = 0; i < 3; i++) {
        if (!__get_cpuid(0x80000002u + i, &regs[4 * i], &regs[4 * i + 1], &regs[4 * i + 2], &regs[4 * i + 3])) return;
    }
    memcpy(brand, regs, sizeof regs);
    brand[sizeof regs] = 0;
#endif
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

lls__cpu_level lls__cpu_level_detect(void) {
    pthread_once(&once, detect);
    return detected;
}

const char *lls__cpu_brand(void) {
    pthread_once(&once, detect);
    return brand + strspn(brand, " ");
}
