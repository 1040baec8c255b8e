// Adds planes of equal shape, by their number: the last step of sums that many blocks have parts of, so that a run
// repeats itself bit by bit. Bytes moved: 4 a number and plane, and 4 or 8 for the result.

#include "device.cuh"

constexpr u32 THREADS = 256;
// Planes whose loads are on their way together.
constexpr u32 AHEAD = 8;

DEVICE float4 sum_of(float4 a, float4 b) { return float4{a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// With `accumulate` not 0 the sum is added to what is there. Shapes: planes (P, N) -> out (N), N a multiple of 4.
KERNEL BOUNDS(THREADS, 2) sum_planes(float* out, const float* planes, u64 n, u32 n_planes, u32 accumulate) {
    const u64 at = (static_cast<u64>(blockIdx.x) * THREADS + threadIdx.x) * 4;
    if (at < n) {
        float4 sum = {0, 0, 0, 0};
        for (u32 first = 0; first < n_planes; first += AHEAD) {
            float4 part[AHEAD];
            UNROLL
            for (u32 i = 0; i < AHEAD; i++) {
                part[i] = float4{0, 0, 0, 0};
                if (first + i < n_planes) {
                    part[i] = *reinterpret_cast<const float4*>(planes + (first + i) * n + at);
                }
            }
            UNROLL
            for (u32 i = 0; i < AHEAD; i++) {
                sum = sum_of(sum, part[i]);
            }
        }
        float4* to = reinterpret_cast<float4*>(out + at);
        *to = accumulate == 0 ? sum : sum_of(*to, sum);
    }
}
