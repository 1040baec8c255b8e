// The sum of squares of all gradients, for clipping by their norm: two launches, both of a fixed order, so that a run
// repeats itself bit by bit.

#include "device.cuh"

// Threads of a block of both.
constexpr u32 THREADS = 512;

struct Shared {
    float partial[THREADS / WARP];
};

// Each block's share of the sum of squares. Shapes: grads (N) -> sums (gridDim.x).
KERNEL global_norm_squared_forward(float* sums, const float* grads, u64 n) {
    Shared& shared = shared_memory<Shared>();
    float sum = 0.0f;
    const u64 stride = static_cast<u64>(gridDim.x) * THREADS;
    for (u64 i = static_cast<u64>(blockIdx.x) * THREADS + threadIdx.x; i < n; i += stride) {
        sum = fmaf(grads[i], grads[i], sum);
    }
    sum = block_sum<THREADS>(sum, shared.partial);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
    }
}

// The root of the sum of all shares, by one block. Shapes: sums (N) -> norm (1).
KERNEL global_norm_root(float* norm, const float* sums, u32 n) {
    Shared& shared = shared_memory<Shared>();
    float sum = 0.0f;
    for (u32 i = threadIdx.x; i < n; i += THREADS) {
        sum += sums[i];
    }
    sum = block_sum<THREADS>(sum, shared.partial);
    if (threadIdx.x == 0) {
        norm[0] = sqrtf(sum);
    }
}
