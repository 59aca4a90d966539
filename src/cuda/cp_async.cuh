/* Copies from global to shared memory that pass by the registers (sm_80): a thread starts them, goes on computing, and
 * waits for them a few steps later. Copies started between two commits are a group; groups finish in order.
 * A wait covers the thread's own copies; a barrier after it those of the whole block. */
#pragma once

#include <stdint.h>

/* A pointer into shared memory as the 32-bit address that PTX takes. */
__device__ __forceinline__ uint32_t lls__shared_address(const void *pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* 16 bytes from registers, not a copy of any group: a barrier is what the other threads wait for. */
__device__ __forceinline__ void lls__store_shared_16(uint32_t shared, const uint32_t (&words)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                 "r"(words[3])
                 : "memory");
}

/* 16 bytes, both ends aligned to 16. */
__device__ __forceinline__ void lls__cp_async_16(uint32_t shared, const void *global) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

/* Reads the first `bytes` (0 to 16) of the 16 and writes zeros for the others. */
__device__ __forceinline__ void lls__cp_async_16(uint32_t shared, const void *global, int bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes)
                 : "memory");
}

/* 4 bytes, both ends aligned to 4; or a zero for `bytes` 0. */
__device__ __forceinline__ void lls__cp_async_4(uint32_t shared, const void *global, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}

__device__ __forceinline__ void lls__cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until at most `PENDING` of the latest groups are under way. */
template <int PENDING> __device__ __forceinline__ void lls__cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
