// GELU alone, for what is computed again in backward and where a library's product has no such epilogue. Both compute
// from the bfloat16 that are stored, as the products' epilogue does, so that the same bits come out.
//
// Bytes an element: 2 read and 2 written forward, 4 and 2 backward.

#include "device.cuh"

// Threads of a block.
constexpr u32 THREADS = 256;

DEVICE u64 first_element() { return (static_cast<u64>(blockIdx.x) * THREADS + threadIdx.x) * EIGHT; }

// x Phi(x). Shapes: inp (N) -> out (N), N a multiple of 8.
KERNEL BOUNDS(THREADS, 4) gelu_forward(bf16* out, const bf16* inp, u64 n) {
    const u64 i = first_element();
    if (i < n) {
        float x[EIGHT];
        unpack_eight(x, load_eight(inp + i));
        UNROLL
        for (u32 j = 0; j < EIGHT; j++) {
            x[j] = gelu(x[j]);
        }
        store_eight(out + i, pack_eight(x));
    }
}

// The gradient of GELU's input from that of its result; dinp may be dout. Shapes: dout (N), inp (N) -> dinp (N), N a
// multiple of 8.
KERNEL BOUNDS(THREADS, 4) gelu_backward(bf16* dinp, const bf16* dout, const bf16* inp, u64 n) {
    const u64 i = first_element();
    if (i < n) {
        float d[EIGHT];
        float x[EIGHT];
        unpack_eight(d, load_eight(dout + i));
        unpack_eight(x, load_eight(inp + i));
        UNROLL
        for (u32 j = 0; j < EIGHT; j++) {
            d[j] *= gelu_derivative(x[j]);
        }
        store_eight(dinp + i, pack_eight(d));
    }
}
