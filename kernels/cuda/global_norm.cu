// The sum of squares of all gradients, for clipping by their norm: two launches, both of a fixed order, so that a run
// repeats itself bit by bit.
//
// Bytes an element: 4 read.

#include "device.cuh"

// Threads of a block of both.
constexpr u32 THREADS = 512;
// Elements of an access, and accesses that a thread has on their way at once: one at a time leaves most of the memory's
// bandwidth unused.
constexpr u32 FOUR = 4;
constexpr u32 IN_FLIGHT = 4;

struct Shared {
    float partial[THREADS / WARP];
};
static_assert(sizeof(Shared) == 64);

DEVICE float add_square(float sum, u32 bits) { return fmaf(float_of_bits(bits), float_of_bits(bits), sum); }

// Each block's share of the sum of squares. Shapes: grads (N) -> sums (gridDim.x); grads begins at a multiple of 16
// bytes.
KERNEL BOUNDS(THREADS, 3) global_norm_squared_forward(float* sums, const float* grads, u64 n) {
    Shared& shared = shared_memory<Shared>();
    float sum = 0.0f;
    const uint4* fours = reinterpret_cast<const uint4*>(grads);
    const u64 stride = static_cast<u64>(gridDim.x) * THREADS;
    const u64 mine = static_cast<u64>(blockIdx.x) * THREADS + threadIdx.x;
    for (u64 first = mine; first < n / FOUR; first += stride * IN_FLIGHT) {
        uint4 loaded[IN_FLIGHT];
        UNROLL
        for (u32 i = 0; i < IN_FLIGHT; i++) {
            const u64 at = first + i * stride;
            loaded[i] = at < n / FOUR ? load_once(fours + at) : uint4{0, 0, 0, 0};
        }
        UNROLL
        for (u32 i = 0; i < IN_FLIGHT; i++) {
            sum = add_square(sum, loaded[i].x);
            sum = add_square(sum, loaded[i].y);
            sum = add_square(sum, loaded[i].z);
            sum = add_square(sum, loaded[i].w);
        }
    }
    // What is left of the last four.
    if (mine < n % FOUR) {
        sum = fmaf(grads[n - n % FOUR + mine], grads[n - n % FOUR + mine], sum);
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
