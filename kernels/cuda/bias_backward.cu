// The gradient of a linear layer's bias: sums of columns. Each block sums its rows of 256 columns into a plane of its
// own, and `sum_planes` adds the planes: a fixed order. Bytes moved: 2 an element.

#include "device.cuh"

constexpr u32 THREADS = 256;
constexpr u32 WARPS = THREADS / WARP;
// Columns of a lane: 16 bytes.
constexpr u32 WIDTH = 8;
constexpr u32 COLUMNS = WARP * WIDTH;
// Rows of a warp whose loads are on their way together.
constexpr u32 AHEAD = 4;

struct Shared {
    float sums[WARPS][COLUMNS];
};
static_assert(sizeof(Shared) == 8192, "what the host launches with");

DEVICE void add_two(float* sums, u32 pair) {
    sums[0] += first_of(pair);
    sums[1] += second_of(pair);
}

// Block (x, y) sums columns x * 256 on, over rows y * split to the next block's.
// Shapes: dout (N, OC) -> planes (gridDim.y, OC), OC a multiple of 8; gridDim.y is N / split, rounded up.
KERNEL BOUNDS(THREADS, 2) bias_backward(float* planes, const bf16* dout, u32 n, u32 oc, u32 split) {
    Shared& shared = shared_memory<Shared>();
    const u32 column = blockIdx.x * COLUMNS + lane_of_thread() * WIDTH;
    const u32 begin = blockIdx.y * split;
    const u32 end = n - begin < split ? n : begin + split;
    float sums[WIDTH] = {};
    if (column < oc) {
        for (u32 row = begin + warp_of_thread(); row < end; row += WARPS * AHEAD) {
            uint4 bits[AHEAD];
            UNROLL
            for (u32 i = 0; i < AHEAD; i++) {
                bits[i] = uint4{0, 0, 0, 0};
                if (row + i * WARPS < end) {
                    bits[i] = *reinterpret_cast<const uint4*>(dout + static_cast<u64>(row + i * WARPS) * oc + column);
                }
            }
            UNROLL
            for (u32 i = 0; i < AHEAD; i++) {
                add_two(sums, bits[i].x);
                add_two(sums + 2, bits[i].y);
                add_two(sums + 4, bits[i].z);
                add_two(sums + 6, bits[i].w);
            }
        }
    }
    float* mine = shared.sums[warp_of_thread()] + lane_of_thread() * WIDTH;
    *reinterpret_cast<float4*>(mine) = float4{sums[0], sums[1], sums[2], sums[3]};
    *reinterpret_cast<float4*>(mine + 4) = float4{sums[4], sums[5], sums[6], sums[7]};
    __syncthreads();
    const u32 of_thread = blockIdx.x * COLUMNS + threadIdx.x;
    if (of_thread < oc) {
        float sum = 0.0f;
        UNROLL
        for (u32 warp = 0; warp < WARPS; warp++) {
            sum += shared.sums[warp][threadIdx.x];
        }
        planes[static_cast<u64>(blockIdx.y) * oc + of_thread] = sum;
    }
}
