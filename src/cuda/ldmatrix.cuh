/* ldmatrix: four 8 x 8 matrices of 16-bit elements from shared memory into the registers that mma wants. Matrix i has
 * its eight rows of 16 bytes at the addresses of threads 8 i to 8 i + 7, and lands in r[i]: thread t gets elements
 * 2 (t % 4) and the next of row t / 4. Elements of other sizes travel alike: a row is 16 bytes, a thread gets four of
 * them. */
#pragma once

#include <stdint.h>

__device__ __forceinline__ void lls__ldmatrix_x4(uint32_t (&r)[4], uint32_t shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared)
                 : "memory");
}

/* Each matrix transposed: thread t gets column t / 4 of rows 2 (t % 4) and the next. 16-bit elements only. */
__device__ __forceinline__ void lls__ldmatrix_x4_transposed(uint32_t (&r)[4], uint32_t shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared)
                 : "memory");
}
