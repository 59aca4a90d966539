/* Tensor memory access (sm_90): one thread moves a box of a tensor between global and shared memory, elements outside the
 * tensor read as zero and are not written. The descriptor is made on the host (dispatch/tma.h) and passed as a
 * __grid_constant__ kernel argument. Coordinates: innermost axis first. */
#pragma once

#include <cuda.h>
#include <stdint.h>

__device__ __forceinline__ void lls__tma_prefetch(const CUtensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Into shared memory; the barrier receives the bytes. */
__device__ __forceinline__ void lls__tma_load(uint32_t to, const CUtensorMap *map, uint32_t barrier, int32_t x,
                                              int32_t y, int32_t z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
                 "%5}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/* Into the same place of every block of the cluster whose bit is set in `blocks`; the barrier at the same place in each of
 * them receives the bytes. */
__device__ __forceinline__ void lls__tma_load_multicast(uint32_t to, const CUtensorMap *map, uint32_t barrier,
                                                        int32_t x, int32_t y, int32_t z, uint16_t blocks) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(blocks)
                 : "memory");
}

/* From shared memory. Call lls__tma_fence in every thread that wrote it, and a barrier, before. */
__device__ __forceinline__ void lls__tma_store(const CUtensorMap *map, uint32_t from, int32_t x, int32_t y, int32_t z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(from), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/* Ordinary writes to shared memory become visible to TMA. */
__device__ __forceinline__ void lls__tma_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void lls__tma_store_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until at most `pending` of this thread's committed groups still read shared memory. */
template <int pending> __device__ __forceinline__ void lls__tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
