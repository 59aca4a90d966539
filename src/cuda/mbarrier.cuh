/* Barriers in shared memory (sm_90): a phase ends when all arrivals and all announced bytes have come.
 * Addresses are 32-bit shared-memory addresses. */
#pragma once

#include <stdint.h>

__device__ __forceinline__ uint32_t lls__shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void lls__mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/* Makes initialised barriers visible to the other blocks of the cluster and to TMA. */
__device__ __forceinline__ void lls__mbarrier_fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void lls__mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* On the barrier at the same place in block `rank` of the cluster. Says that something was read, so it orders no writes: a
 * release for the whole cluster would be a memory barrier for the GPU. */
__device__ __forceinline__ void lls__mbarrier_arrive_at(uint32_t barrier, uint32_t rank) {
    asm volatile("{\n"
                 ".reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
                 "}" ::"r"(barrier),
                 "r"(rank)
                 : "memory");
}

/* Arrives, and announces bytes that TMA will bring. */
__device__ __forceinline__ void lls__mbarrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Until the phase of this parity has ended. A fresh barrier is in phase 0: waiting for parity 1 returns at once. */
__device__ __forceinline__ void lls__mbarrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}
