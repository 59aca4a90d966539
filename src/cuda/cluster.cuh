/* Blocks that run together on neighbouring multiprocessors (sm_90) and see each other's shared memory. */
#pragma once

#include <stdint.h>

__device__ __forceinline__ uint32_t lls__cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* All threads of all blocks; what was written before is visible after. In two halves, for work in between. */
__device__ __forceinline__ void lls__cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void lls__cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void lls__cluster_sync() {
    lls__cluster_arrive();
    lls__cluster_wait();
}

/* The same without the memory: for threads that only wait for each other. */
__device__ __forceinline__ void lls__cluster_meet() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/* Four floats at this shared-memory address in block `rank`. */
__device__ __forceinline__ float4 lls__cluster_load(uint32_t address, uint32_t rank) {
    float4 v;
    asm volatile("{\n"
                 ".reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %4, %5;\n"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n"
                 "}"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address), "r"(rank));
    return v;
}
