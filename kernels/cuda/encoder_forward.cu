// Token and position embeddings, added: the residual stream's start, dropped from on the way.
//
// Bytes an element: 2 written and 2 read of the token's row; the positions' rows stay in the second cache.

#include "device.cuh"

// Threads of a block.
constexpr u32 THREADS = 256;

// Each token's row of wte plus its position's row of wpe. Token i stands at position first + i % t. A token that has
// no row gets NaN, which no loss hides. Shapes: inp (B, T), wte (V, C), wpe (maxT, C) -> out (B, T, C), C a multiple
// of 8; n is the eighths of out's elements.
KERNEL BOUNDS(THREADS, 4) encoder_forward(bf16* out, const u32* inp, const bf16* wte, const bf16* wpe, u32 n, u32 t,
                                          u32 first, u32 c, u32 v, u32 threshold, float scale, u32 key) {
    const u32 i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) {
        const u32 row = i / (c / EIGHT);
        const u32 column = i % (c / EIGHT) * EIGHT;
        const u32 token = inp[row];
        const u32 position = first + row % t;
        const bool known = token < v;
        float x[EIGHT];
        float y[EIGHT];
        unpack_eight(x, load_eight(wte + static_cast<u64>(known ? token : 0) * c + column));
        unpack_eight(y, load_eight(wpe + static_cast<u64>(position) * c + column));
        UNROLL
        for (u32 j = 0; j < EIGHT; j++) {
            x[j] = known ? x[j] + y[j] : float_of_bits(0x7fffffffu);
        }
        const u64 element = static_cast<u64>(i) * EIGHT;
        drop_eight(x, Dropout{threshold, scale, key}, element);
        store_eight(out + element, pack_eight(x));
    }
}
