/* Builds without CUDA: no context on a GPU can exist, so nothing asks for its time. */
#include "timer.h"

lls_status bench_time_cuda(int32_t device, int32_t rotation, double budget, bench_launch launch, void *user,
                           bench_samples *out) {
    (void)device, (void)rotation, (void)budget, (void)launch, (void)user, (void)out;
    return LLS_ERR_NO_DEVICE;
}
