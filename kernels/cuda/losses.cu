// The sum of all rows' losses, by one block and in a fixed order, so that a run's figures repeat themselves bit by
// bit.
//
// Bytes an element: 4 read.

#include "device.cuh"

// Threads of the block.
constexpr u32 THREADS = 1024;

struct Shared {
    float partial[THREADS / WARP];
};
static_assert(sizeof(Shared) == 128);

// The sum of losses times `scale`; with `accumulate` not 0 it is added to what stands there. Shapes: losses (N) ->
// sum (1).
KERNEL losses_sum(float* sum, const float* losses, u32 n, float scale, u32 accumulate) {
    Shared& shared = shared_memory<Shared>();
    float total = 0.0f;
    for (u32 i = threadIdx.x; i < n; i += THREADS) {
        total += losses[i];
    }
    total = block_sum<THREADS>(total, shared.partial) * scale;
    if (threadIdx.x == 0) {
        sum[0] = accumulate != 0 ? sum[0] + total : total;
    }
}
