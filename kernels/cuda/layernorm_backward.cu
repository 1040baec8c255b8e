// Layer normalisation, backward: the rows' gradient is added to the residual stream's, and the weights' gradients are
// summed in two launches. In the first each block goes through its rows and leaves its sums; the second adds those up
// by the blocks' numbers. Both orders are fixed, so that runs repeat bit by bit.
//
// Bytes an element: 2 of dout, 2 of inp and 2 of dinp read, 2 of dinp written; besides, 8 a column and block.

#include "device.cuh"

// Threads of a block of both.
constexpr u32 THREADS = 384;
// Eights that a lane holds of its row at most: 768 columns a warp.
constexpr u32 EIGHTS = 3;
// Columns of a block of the second launch, and how many threads share one.
constexpr u32 COLUMNS = 32;
constexpr u32 PARTS = THREADS / COLUMNS;

struct Shared {
    // Of the rows in flight: a pass's and the next one's, so that one barrier a pass is enough.
    float2 sums[2][THREADS / WARP];
    // Of one eight of each thread.
    float tile[EIGHT][THREADS];
};
static_assert(sizeof(Shared) == 12480);

struct SumShared {
    float parts[PARTS][COLUMNS];
};
static_assert(sizeof(SumShared) == 1536);

// Adds one eight of every thread up over the block's rows in flight, and writes the columns' sums.
template <u32 WARPS>
DEVICE void write_columns(float* sums, float (&tile)[EIGHT][THREADS], const float (&mine)[EIGHT], u32 first, u32 c) {
    constexpr u32 LANES = WARPS * WARP;
    __syncthreads();  // What the eight before left has been read.
    UNROLL
    for (u32 j = 0; j < EIGHT; j++) {
        tile[j][threadIdx.x] = mine[j];
    }
    __syncthreads();  // All have written theirs.
    for (u32 i = threadIdx.x; i < LANES * EIGHT; i += THREADS) {
        const u32 lane = i % LANES;
        const u32 j = i / LANES;
        const u32 column = first + lane * EIGHT + j;
        if (column < c) {
            float sum = 0.0f;
            for (u32 row = 0; row < THREADS / LANES; row++) {
                sum += tile[j][row * LANES + lane];
            }
            sums[column] = sum;
        }
    }
}

template <u32 WARPS>
DEVICE void backward(bf16* dinp, float* sums, const bf16* dout, const bf16* inp, const float* mean, const float* rstd,
                     const bf16* weight, u32 n, u32 c, u32 accumulate) {
    constexpr u32 LANES = WARPS * WARP;
    constexpr u32 ROWS = THREADS / LANES;
    Shared& shared = shared_memory<Shared>();
    const u32 lane = threadIdx.x % LANES;
    const float share = 1.0f / static_cast<float>(c);
    const uint4 nothing = uint4{0, 0, 0, 0};
    uint4 weights[EIGHTS];
    float dweight[EIGHTS][EIGHT] = {};
    float dbias[EIGHTS][EIGHT] = {};
    UNROLL
    for (u32 i = 0; i < EIGHTS; i++) {
        const u32 column = (i * LANES + lane) * EIGHT;
        weights[i] = column < c ? load_eight(weight + column) : nothing;
    }
    u32 pass = 0;
    for (u32 first = blockIdx.x * ROWS; first < n; first += gridDim.x * ROWS) {
        const u32 row = first + threadIdx.x / LANES;
        const u64 start = static_cast<u64>(row) * c;
        uint4 douts[EIGHTS];
        uint4 inps[EIGHTS];
        UNROLL
        for (u32 i = 0; i < EIGHTS; i++) {
            const u32 column = (i * LANES + lane) * EIGHT;
            const bool valid = row < n && column < c;
            douts[i] = valid ? load_eight(dout + start + column) : nothing;
            inps[i] = valid ? load_eight(inp + start + column) : nothing;
        }
        const float m = row < n ? mean[row] : 0.0f;
        const float r = row < n ? rstd[row] : 0.0f;
        // Of g = dout * weight, and of g * xhat.
        float2 sum = float2{0.0f, 0.0f};
        UNROLL
        for (u32 i = 0; i < EIGHTS; i++) {
            float d[EIGHT];
            float x[EIGHT];
            float w[EIGHT];
            unpack_eight(d, douts[i]);
            unpack_eight(x, inps[i]);
            unpack_eight(w, weights[i]);
            UNROLL
            for (u32 j = 0; j < EIGHT; j++) {
                const float xhat = (x[j] - m) * r;
                sum.x = fmaf(d[j], w[j], sum.x);
                sum.y = fmaf(d[j] * w[j], xhat, sum.y);
                dweight[i][j] = fmaf(d[j], xhat, dweight[i][j]);
                dbias[i][j] += d[j];
            }
        }
        // On their way while the row's threads wait for one another.
        uint4 befores[EIGHTS];
        UNROLL
        for (u32 i = 0; i < EIGHTS; i++) {
            const u32 column = (i * LANES + lane) * EIGHT;
            const bool valid = row < n && column < c && accumulate != 0;
            befores[i] = valid ? load_eight(dinp + start + column) : nothing;
        }
        sum = group_sum<WARPS>(sum, shared.sums[pass % 2]);
        pass++;
        const float mean_g = sum.x * share;
        const float mean_g_xhat = sum.y * share;
        UNROLL
        for (u32 i = 0; i < EIGHTS; i++) {
            const u32 column = (i * LANES + lane) * EIGHT;
            held_packed(douts[i]);
            held_packed(inps[i]);
            held_packed(weights[i]);
            if (row < n && column < c) {
                float d[EIGHT];
                float x[EIGHT];
                float w[EIGHT];
                float before[EIGHT];
                unpack_eight(before, befores[i]);
                unpack_eight(d, douts[i]);
                unpack_eight(x, inps[i]);
                unpack_eight(w, weights[i]);
                UNROLL
                for (u32 j = 0; j < EIGHT; j++) {
                    const float xhat = (x[j] - m) * r;
                    d[j] = fmaf(r, d[j] * w[j] - mean_g - xhat * mean_g_xhat, before[j]);
                }
                store_eight(dinp + start + column, pack_eight(d));
            }
        }
    }
    float* dweight_sums = sums + static_cast<u64>(blockIdx.x) * c;
    float* dbias_sums = sums + static_cast<u64>(gridDim.x + blockIdx.x) * c;
    UNROLL
    for (u32 i = 0; i < EIGHTS; i++) {
        const u32 first = i * LANES * EIGHT;
        if (first < c) {
            write_columns<WARPS>(dweight_sums, shared.tile, dweight[i], first, c);
            write_columns<WARPS>(dbias_sums, shared.tile, dbias[i], first, c);
        }
    }
}

// The rows' gradient, and each block's share of the weights'. With `accumulate` 0 dinp is written, else added to.
// Shapes: dout (N, C), inp (N, C), mean (N), rstd (N), weight (C) -> dinp (N, C), sums (2, gridDim.x, C): the scale's
// and the shift's; C a multiple of 8 up to 768 a warp. A row is the work of 1, 4 or 12 warps.
KERNEL BOUNDS(THREADS, 1) layernorm_backward_1(bf16* dinp, float* sums, const bf16* dout, const bf16* inp,
                                               const float* mean, const float* rstd, const bf16* weight, u32 n, u32 c,
                                               u32 accumulate) {
    backward<1>(dinp, sums, dout, inp, mean, rstd, weight, n, c, accumulate);
}

KERNEL BOUNDS(THREADS, 1) layernorm_backward_4(bf16* dinp, float* sums, const bf16* dout, const bf16* inp,
                                               const float* mean, const float* rstd, const bf16* weight, u32 n, u32 c,
                                               u32 accumulate) {
    backward<4>(dinp, sums, dout, inp, mean, rstd, weight, n, c, accumulate);
}

KERNEL BOUNDS(THREADS, 1) layernorm_backward_12(bf16* dinp, float* sums, const bf16* dout, const bf16* inp,
                                                const float* mean, const float* rstd, const bf16* weight, u32 n, u32 c,
                                                u32 accumulate) {
    backward<12>(dinp, sums, dout, inp, mean, rstd, weight, n, c, accumulate);
}

// Adds up what all blocks left. With blockIdx.y 0 it is the scale's, with 1 the shift's. Shapes: sums (2, blocks, C)
// -> adds to dweight (C), dbias (C).
KERNEL layernorm_backward_sum(float* dweight, float* dbias, const float* sums, u32 blocks, u32 c) {
    SumShared& shared = shared_memory<SumShared>();
    const u32 column = blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
    const u32 part = threadIdx.x / COLUMNS;
    float sum = 0.0f;
    if (column < c) {
        for (u32 block = part; block < blocks; block += PARTS) {
            sum += sums[static_cast<u64>(blockIdx.y * blocks + block) * c + column];
        }
    }
    shared.parts[part][threadIdx.x % COLUMNS] = sum;
    __syncthreads();  // All parts are there.
    if (part == 0 && column < c) {
        float total = 0.0f;
        for (u32 i = 0; i < PARTS; i++) {
            total += shared.parts[i][threadIdx.x];
        }
        float* out = blockIdx.y == 0 ? dweight : dbias;
        out[column] += total;
    }
}
