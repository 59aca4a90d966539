/* Kernels that overlap (sm_90, "programmatic dependent launch"): one launched early (lls__grid.early) sets itself up while
 * the kernel before it in the stream still runs. */
#pragma once

/* Until the kernel before is complete and what it wrote can be read. Before any access to global memory. */
__device__ __forceinline__ void lls__grid_wait() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* The next kernel may start to set itself up, as far as there is room for it. */
__device__ __forceinline__ void lls__grid_release() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
