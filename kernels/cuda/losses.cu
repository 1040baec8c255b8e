// The sum of all rows' losses, by one block and in a fixed order, so that a run's figures repeat themselves bit by
// bit.
//
// Bytes an element: 4 read.

#include "device.cuh"

// Threads of the block.
constexpr u32 THREADS = 1024;
// Losses that a thread has on their way at once: with one block, waiting for memory is all that takes time.
constexpr u32 IN_FLIGHT = 8;

struct Shared {
    float partial[THREADS / WARP];
};
static_assert(sizeof(Shared) == 128);

// The sum of losses times `scale`; with `accumulate` not 0 it is added to what stands there. Shapes: losses (N) ->
// sum (1).
KERNEL losses_sum(float* sum, const float* losses, u32 n, float scale, u32 accumulate) {
    Shared& shared = shared_memory<Shared>();
    float total = 0.0f;
    for (u32 first = threadIdx.x; first < n; first += THREADS * IN_FLIGHT) {
        float loaded[IN_FLIGHT];
        UNROLL
        for (u32 i = 0; i < IN_FLIGHT; i++) {
            loaded[i] = first + i * THREADS < n ? losses[first + i * THREADS] : 0.0f;
        }
        UNROLL
        for (u32 i = 0; i < IN_FLIGHT; i++) {
            total += loaded[i];
        }
    }
    total = block_sum<THREADS>(total, shared.partial) * scale;
    if (threadIdx.x == 0) {
        sum[0] = accumulate != 0 ? sum[0] + total : total;
    }
}
