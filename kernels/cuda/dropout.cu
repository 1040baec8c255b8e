// Dropout alone: the gradient of a branch from that of the residual stream, where a branch was dropped from. Forward,
// the kernels that add a branch or make the stream drop on their way.
//
// Bytes an element: 2 read and 2 written.

#include "device.cuh"

// Threads of a block.
constexpr u32 THREADS = 256;

// Each element times its factor, by its number; out may be inp. Shapes: inp (N) -> out (N), N a multiple of 8.
KERNEL BOUNDS(THREADS, 4) dropout(bf16* out, const bf16* inp, u64 n, u32 threshold, float scale, u32 key) {
    const u64 i = (static_cast<u64>(blockIdx.x) * THREADS + threadIdx.x) * EIGHT;
    if (i < n) {
        float x[EIGHT];
        unpack_eight(x, load_eight(inp + i));
        drop_eight(x, Dropout{threshold, scale, key}, i);
        store_eight(out + i, pack_eight(x));
    }
}
