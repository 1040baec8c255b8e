// The embeddings' gradients. No two threads add to one element and none is atomic, so that runs repeat bit by bit:
// every position sums its own over the batch, and tokens come sorted, each with a list of the rows where it stands. A
// token of few rows is a warp's work; one of many, as a character is or "the", a block's, whose threads share the
// rows.
//
// Bytes an element of dout: 2 read for positions and 2 for tokens; besides, 8 for each element of a gradient's row
// that is added to.

#include "device.cuh"

// Threads of a block.
constexpr u32 THREADS = 256;
// Columns of a block of `encoder_backward_wte_many`: its lanes of eight times eight.
constexpr u32 COLUMNS = 64;
constexpr u32 LANES = COLUMNS / EIGHT;
// Rows that such a block adds up side by side.
constexpr u32 ROWS = THREADS / LANES;
// Rows that a thread has on their way at once.
constexpr u32 IN_FLIGHT = 4;

struct Shared {
    float sums[ROWS][COLUMNS];
};
static_assert(sizeof(Shared) == 8192);

// Adds up `n` rows' eights. The i-th row's is at element_of(i) of dout; the order is theirs.
template <typename ElementOf>
DEVICE void add_rows(float (&sum)[EIGHT], const bf16* dout, u32 n, Dropout dropout, ElementOf element_of) {
    for (u32 first = 0; first < n; first += IN_FLIGHT) {
        u64 elements[IN_FLIGHT];
        uint4 rows[IN_FLIGHT];
        UNROLL
        for (u32 i = 0; i < IN_FLIGHT; i++) {
            elements[i] = first + i < n ? element_of(first + i) : 0;
            rows[i] = first + i < n ? load_eight(dout + elements[i]) : uint4{0, 0, 0, 0};
        }
        UNROLL
        for (u32 i = 0; i < IN_FLIGHT; i++) {
            float x[EIGHT];
            unpack_eight(x, rows[i]);
            drop_eight(x, dropout, elements[i]);
            UNROLL
            for (u32 j = 0; j < EIGHT; j++) {
                sum[j] += x[j];
            }
        }
    }
}

// Adds each position's gradients. Shapes: dout (B, T, C) -> adds to rows first to first + T of dwpe (maxT, C), C a
// multiple of 8. `n` is the eighths of (T, C).
KERNEL BOUNDS(THREADS, 4) encoder_backward_wpe(float* dwpe, const bf16* dout, u32 n, u32 b, u32 first, u32 c,
                                               u32 threshold, float scale, u32 key) {
    const u32 i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) {
        const Dropout dropout = Dropout{threshold, scale, key};
        float sum[EIGHT] = {};
        add_rows(sum, dout, b, dropout, [=](u32 sequence) { return (static_cast<u64>(sequence) * n + i) * EIGHT; });
        add_to_eight(dwpe + static_cast<u64>(first) * c + static_cast<u64>(i) * EIGHT, sum);
    }
}

// Adds the gradients of tokens that stand in few rows, a warp each token and 256 columns. Shapes: dout (B, T, C),
// order (B, T): rows by token; buckets (n, 4): a token, where in `order` its rows begin, and how many there are; ->
// adds to dwte (V, C), C a multiple of 8.
KERNEL BOUNDS(THREADS, 4) encoder_backward_wte_few(float* dwte, const bf16* dout, const u32* order,
                                                   const uint4* buckets, u32 n, u32 c, u32 threshold, float scale,
                                                   u32 key) {
    const u32 i = blockIdx.x * (THREADS / WARP) + warp_of_thread();
    const u32 column = (blockIdx.y * WARP + lane_of_thread()) * EIGHT;
    if (i < n && column < c) {
        const Dropout dropout = Dropout{threshold, scale, key};
        const uint4 bucket = buckets[i];
        float sum[EIGHT] = {};
        const u32* rows = order + bucket.y;
        add_rows(sum, dout, bucket.z, dropout, [=](u32 at) { return static_cast<u64>(rows[at]) * c + column; });
        add_to_eight(dwte + static_cast<u64>(bucket.x) * c + column, sum);
    }
}

// The same of tokens that stand in many rows, a block each token and 64 columns.
KERNEL BOUNDS(THREADS, 4) encoder_backward_wte_many(float* dwte, const bf16* dout, const u32* order,
                                                    const uint4* buckets, u32 c, u32 threshold, float scale,
                                                    u32 key) {
    Shared& shared = shared_memory<Shared>();
    const Dropout dropout = Dropout{threshold, scale, key};
    const uint4 bucket = buckets[blockIdx.x];
    const u32 lane = threadIdx.x % LANES;
    const u32 row = threadIdx.x / LANES;
    const u32 first = blockIdx.y * COLUMNS;
    const u32 column = first + lane * EIGHT;
    // Each thread has every ROWS-th of the token's rows.
    const u32* rows = order + bucket.y + row;
    const u32 mine = row < bucket.z ? (bucket.z - row + ROWS - 1) / ROWS : 0;
    float sum[EIGHT] = {};
    if (column < c) {
        add_rows(sum, dout, mine, dropout, [=](u32 at) { return static_cast<u64>(rows[at * ROWS]) * c + column; });
    }
    UNROLL
    for (u32 j = 0; j < EIGHT; j++) {
        shared.sums[row][lane * EIGHT + j] = sum[j];
    }
    __syncthreads();
    if (threadIdx.x < COLUMNS && first + threadIdx.x < c) {
        float total = 0.0f;
        for (u32 i = 0; i < ROWS; i++) {
            total += shared.sums[i][threadIdx.x];
        }
        dwte[static_cast<u64>(bucket.x) * c + first + threadIdx.x] += total;
    }
}
