/* Idea: who loads does not multiply. In rung 06 the load of a stage waits until all warps have met, and its thread for its own
 * products. Here a ninth warp does nothing but load, and runs ahead as far as the ring is long; the two warpgroups do nothing
 * but multiply, and do not meet before the end. They talk by two barriers a stage:
 *
 *     loader       wait empty[s]; announce 32 KB at full[s]; TMA a and b into stage s
 *     multipliers  wait full[s]; four wgmma; when those of the step before are done, arrive at its stage's empty
 *
 * A warpgroup that is late no longer holds up the other one, nor the loads into stages that both have left behind.
 * Gain expected: 1.1 times rung 06. Measured: 0.94 times. Two blocks share a multiprocessor in both rungs, and each fills the
 * other's gaps already; the idea pays where a block has the multiprocessor, and its shared memory, for itself: rung 08.
 * Limited by: the ends of a tile. A block sets up its barriers, waits for its first stage through all of memory's latency, and
 * at last turns its sums around in shared memory and writes them, while its loader is gone; only the other block of the
 * multiprocessor fills these gaps, if it is not in one itself. And by the tile: a stage takes 512 cycles of the tensor cores
 * and brings 32 KB, which is all of the 64 bytes a cycle that a multiprocessor takes in. Rung 08 (sm90.cuh) keeps one block on
 * a multiprocessor for all of its tiles: the loader runs ahead into the next tile while out leaves by TMA, and the room of the
 * second block goes to tiles of 128 x 256, which need three quarters of those bytes.
 * Needs: as 06. */
#include "ops/gemm/wgmma_tile.cuh"

template <lls__wgmma_type type>
__device__ __forceinline__ void gemm_warp_specialised(const lls__gemm_problem &p, const CUtensorMap &a,
                                                      const CUtensorMap &b) {
    extern __shared__ __align__(1024) char shared[];
    const lls__wgmma_block block(p, a, b, shared);
    const int32_t multipliers = LLS__GEMM_07_THREADS / 32 - 1;
    // From lane 0, so that the compiler sees that a warp goes one way.
    int32_t warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int32_t s = 0; s < LLS__WGMMA_STAGES; s++) {
            lls__mbarrier_init(block.full(s), 1);
            lls__mbarrier_init(block.empty(s), multipliers);
        }
        lls__mbarrier_fence_init();
    }
    __syncthreads();
    if (warp == multipliers) {
        for (int32_t step = 0; lane == 0 && step < block.steps; step++) {
            lls__mbarrier_wait(block.empty(step), block.parity(step) ^ 1); // at once in the first round
            block.load(step);
        }
        return;
    }
    float sums[64];
    for (int32_t step = 0; step < block.steps; step++) {
        lls__mbarrier_wait(block.full(step), block.parity(step));
        block.multiply<type>(sums, step, warp / 4);
        lls__wgmma_wait<1>(); // for the step before
        if (step > 0 && lane == 0) lls__mbarrier_arrive(block.empty(step - 1));
    }
    lls__wgmma_wait<0>();
    block.finish(sums, warp);
}

extern "C" __global__ void __launch_bounds__(LLS__GEMM_07_THREADS, 2)
    lls_gemm_07_warp_specialised_f16(lls__gemm_problem p, const __grid_constant__ CUtensorMap a,
                                     const __grid_constant__ CUtensorMap b) {
    LLS_SM90A_BODY(gemm_warp_specialised<LLS__WGMMA_F16>(p, a, b);)
}
extern "C" __global__ void __launch_bounds__(LLS__GEMM_07_THREADS, 2)
    lls_gemm_07_warp_specialised_bf16(lls__gemm_problem p, const __grid_constant__ CUtensorMap a,
                                      const __grid_constant__ CUtensorMap b) {
    LLS_SM90A_BODY(gemm_warp_specialised<LLS__WGMMA_BF16>(p, a, b);)
}
