/* Idea: Hopper's tensor cores read their operands from shared memory by themselves, and a single thread orders whole tiles.
 * Rung 05 spends its instructions on moving: each thread copies chunks of 16 bytes, keeps the addresses of all of them, and
 * reads every fragment into registers before mma.sync may use it. Here
 *   - TMA brings a box of 128 lines by one instruction of one thread: addresses, the edges of the matrix and the swizzle are
 *     its affair, and it tells a barrier in shared memory what has come;
 *   - wgmma multiplies 64 x 16 by 16 x 128 from shared memory, for four warps at once, while they go on: registers hold
 *     nothing but sums.
 * The same two warpgroups load and multiply. Two stages are on their way while one is multiplied, at step i:
 *
 *     wait full[i]; four wgmma; wait for those of step i - 1; __syncthreads; one thread loads step i + 2 where i - 1 was
 *
 * Gain expected: 1.2 times rung 05, whose mma.sync ends at 62 % of what wgmma does. Measured: 1.5 times, 4096 cubed.
 * Limited by: keeping step. At every stage all warps meet before the next load may begin, and the thread that orders it has
 * products of its own to wait for: a warp that is late holds up everybody. Rung 07 gives the loads to a warp of their own.
 * Needs: sm_90a, f16 or bf16, a and b contiguous along k with lines that begin at multiples of 16 bytes. Any sizes, batch. */
#include "ops/gemm/wgmma_tile.cuh"

template <lls__wgmma_type type>
__device__ __forceinline__ void gemm_tma_wgmma(const lls__gemm_problem &p, const CUtensorMap &a, const CUtensorMap &b) {
    extern __shared__ __align__(1024) char shared[];
    const lls__wgmma_block block(p, a, b, shared);
    const int32_t ahead = LLS__WGMMA_STAGES - 1;
    // From lane 0, so that the compiler sees that a warp goes one way.
    int32_t warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    bool loads = threadIdx.x == 0;
    if (loads) {
        for (int32_t s = 0; s < LLS__WGMMA_STAGES; s++) lls__mbarrier_init(block.full(s), 1);
        lls__mbarrier_fence_init();
    }
    __syncthreads();
    for (int32_t step = 0; loads && step < min(ahead, block.steps); step++) block.load(step);
    float sums[64];
    for (int32_t step = 0; step < block.steps; step++) {
        lls__mbarrier_wait(block.full(step), block.parity(step));
        block.multiply<type>(sums, step, warpgroup);
        lls__wgmma_wait<1>(); // for the step before
        __syncthreads();      // in all warps: its stage is free
        if (loads && step + ahead < block.steps) block.load(step + ahead);
    }
    lls__wgmma_wait<0>();
    block.finish(sums, threadIdx.x / 32);
}

extern "C" __global__ void __launch_bounds__(LLS__GEMM_06_THREADS, 2)
    lls_gemm_06_tma_wgmma_f16(lls__gemm_problem p, const __grid_constant__ CUtensorMap a,
                              const __grid_constant__ CUtensorMap b) {
    LLS_SM90A_BODY(gemm_tma_wgmma<LLS__WGMMA_F16>(p, a, b);)
}
extern "C" __global__ void __launch_bounds__(LLS__GEMM_06_THREADS, 2)
    lls_gemm_06_tma_wgmma_bf16(lls__gemm_problem p, const __grid_constant__ CUtensorMap a,
                               const __grid_constant__ CUtensorMap b) {
    LLS_SM90A_BODY(gemm_tma_wgmma<LLS__WGMMA_BF16>(p, a, b);)
}
