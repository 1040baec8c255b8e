// Layer normalisation, alone or of the residual stream to which a branch is added in the same pass. A row is the work
// of 1, 4 or 12 warps, which hold it in registers: it is read once, and its variance is that of what was kept.
//
// Bytes an element: 2 read and 2 written alone; 4 and 4 with a branch. The weights stay in the first cache.

#include "device.cuh"

// Threads of a block.
constexpr u32 THREADS = 384;
// Eights that a lane holds of its row at most: 768 columns a warp.
constexpr u32 EIGHTS = 3;
// What is added to the variance before its root is taken: PyTorch's default.
constexpr float EPS = 1e-5f;

struct Shared {
    float2 sums[THREADS / WARP];
    float2 squares[THREADS / WARP];
};
static_assert(sizeof(Shared) == 192);

// What a row's threads know: which they are, and where the row begins.
template <u32 WARPS>
struct Place {
    // Among the row's lanes.
    u32 lane;
    u32 row;
    bool valid;
    u64 start;
};

template <u32 WARPS>
DEVICE Place<WARPS> place(u32 n, u32 c) {
    const u32 lanes = WARPS * WARP;
    const u32 row = blockIdx.x * (THREADS / lanes) + threadIdx.x / lanes;
    return Place<WARPS>{threadIdx.x % lanes, row, row < n, static_cast<u64>(row) * c};
}

// Where a lane's eights begin; those past the row's end hold 0.
template <u32 WARPS>
DEVICE u32 column_of(const Place<WARPS>& at, u32 i) {
    return (i * WARPS * WARP + at.lane) * EIGHT;
}

// From a row in registers to the normalised one and its statistics.
template <u32 WARPS>
DEVICE void normalize(bf16* out, float* mean, float* rstd, const float (&x)[EIGHTS][EIGHT], const Place<WARPS>& at,
                      const bf16* weight, const bf16* bias, u32 c) {
    Shared& shared = shared_memory<Shared>();
    float2 sum = float2{0.0f, 0.0f};
    UNROLL
    for (u32 i = 0; i < EIGHTS; i++) {
        UNROLL
        for (u32 j = 0; j < EIGHT; j++) {
            sum.x += x[i][j];
        }
    }
    const float share = 1.0f / static_cast<float>(c);
    const float m = group_sum<WARPS>(sum, shared.sums).x * share;
    float2 squares = float2{0.0f, 0.0f};
    UNROLL
    for (u32 i = 0; i < EIGHTS; i++) {
        if (column_of(at, i) < c) {
            UNROLL
            for (u32 j = 0; j < EIGHT; j++) {
                squares.x = fmaf(x[i][j] - m, x[i][j] - m, squares.x);
            }
        }
    }
    const float r = reciprocal_sqrt(fmaf(group_sum<WARPS>(squares, shared.squares).x, share, EPS));
    if (!at.valid) {
        return;
    }
    UNROLL
    for (u32 i = 0; i < EIGHTS; i++) {
        const u32 column = column_of(at, i);
        if (column < c) {
            float w[EIGHT];
            float y[EIGHT] = {};
            unpack_eight(w, load_eight(weight + column));
            if (bias != nullptr) {
                unpack_eight(y, load_eight(bias + column));
            }
            UNROLL
            for (u32 j = 0; j < EIGHT; j++) {
                y[j] = fmaf((x[i][j] - m) * r, w[j], y[j]);
            }
            store_eight(out + at.start + column, pack_eight(y));
        }
    }
    if (at.lane == 0) {
        mean[at.row] = m;
        rstd[at.row] = r;
    }
}

template <u32 WARPS>
DEVICE void forward(bf16* out, float* mean, float* rstd, const bf16* inp, const bf16* weight, const bf16* bias, u32 n,
                    u32 c) {
    const Place<WARPS> at = place<WARPS>(n, c);
    float x[EIGHTS][EIGHT];
    UNROLL
    for (u32 i = 0; i < EIGHTS; i++) {
        const u32 column = column_of(at, i);
        const bool valid = at.valid && column < c;
        unpack_eight(x[i], valid ? load_eight(inp + at.start + column) : uint4{0, 0, 0, 0});
    }
    normalize(out, mean, rstd, x, at, weight, bias, c);
}

template <u32 WARPS>
DEVICE void residual_forward(bf16* residual, bf16* out, float* mean, float* rstd, const bf16* inp, const bf16* branch,
                             const bf16* weight, const bf16* bias, u32 n, u32 c, Dropout dropout) {
    const Place<WARPS> at = place<WARPS>(n, c);
    // Every load is on its way before the first store, which the compiler could not move them over.
    uint4 inps[EIGHTS];
    uint4 branches[EIGHTS];
    UNROLL
    for (u32 i = 0; i < EIGHTS; i++) {
        const u32 column = column_of(at, i);
        const bool valid = at.valid && column < c;
        inps[i] = valid ? load_eight(inp + at.start + column) : uint4{0, 0, 0, 0};
        branches[i] = valid ? load_eight(branch + at.start + column) : uint4{0, 0, 0, 0};
    }
    float x[EIGHTS][EIGHT];
    UNROLL
    for (u32 i = 0; i < EIGHTS; i++) {
        const u32 column = column_of(at, i);
        float y[EIGHT];
        unpack_eight(x[i], inps[i]);
        unpack_eight(y, branches[i]);
        drop_eight(y, dropout, at.start + column);
        UNROLL
        for (u32 j = 0; j < EIGHT; j++) {
            x[i][j] += y[j];
        }
        const uint4 sum = pack_eight(x[i]);
        // Backward and a second forward have the stream as it is stored, so it is that which is normalised.
        unpack_eight(x[i], sum);
        if (at.valid && column < c) {
            store_eight(residual + at.start + column, sum);
        }
    }
    normalize(out, mean, rstd, x, at, weight, bias, c);
}

// Normalises each row, then scales and shifts it; bias may be null. Shapes: inp (N, C), weight (C), bias (C) -> out
// (N, C), mean (N), rstd (N), C a multiple of 8 up to 768 a warp. Blocks are 384 threads and 12, 3 or 1 rows.
KERNEL BOUNDS(THREADS, 2) layernorm_forward_1(bf16* out, float* mean, float* rstd, const bf16* inp,
                                              const bf16* weight, const bf16* bias, u32 n, u32 c) {
    forward<1>(out, mean, rstd, inp, weight, bias, n, c);
}

KERNEL BOUNDS(THREADS, 2) layernorm_forward_4(bf16* out, float* mean, float* rstd, const bf16* inp,
                                              const bf16* weight, const bf16* bias, u32 n, u32 c) {
    forward<4>(out, mean, rstd, inp, weight, bias, n, c);
}

KERNEL BOUNDS(THREADS, 2) layernorm_forward_12(bf16* out, float* mean, float* rstd, const bf16* inp,
                                               const bf16* weight, const bf16* bias, u32 n, u32 c) {
    forward<12>(out, mean, rstd, inp, weight, bias, n, c);
}

// Adds a branch, dropped from, to the residual stream and normalises the sum; residual may be inp. Shapes: inp (N,
// C), branch (N, C), weight (C), bias (C) -> residual (N, C), out (N, C), mean (N), rstd (N).
KERNEL BOUNDS(THREADS, 2) residual_layernorm_forward_1(bf16* residual, bf16* out, float* mean, float* rstd,
                                                       const bf16* inp, const bf16* branch, const bf16* weight,
                                                       const bf16* bias, u32 n, u32 c, u32 threshold, float scale,
                                                       u32 key) {
    residual_forward<1>(residual, out, mean, rstd, inp, branch, weight, bias, n, c, Dropout{threshold, scale, key});
}

KERNEL BOUNDS(THREADS, 2) residual_layernorm_forward_4(bf16* residual, bf16* out, float* mean, float* rstd,
                                                       const bf16* inp, const bf16* branch, const bf16* weight,
                                                       const bf16* bias, u32 n, u32 c, u32 threshold, float scale,
                                                       u32 key) {
    residual_forward<4>(residual, out, mean, rstd, inp, branch, weight, bias, n, c, Dropout{threshold, scale, key});
}

KERNEL BOUNDS(THREADS, 2) residual_layernorm_forward_12(bf16* residual, bf16* out, float* mean, float* rstd,
                                                        const bf16* inp, const bf16* branch, const bf16* weight,
                                                        const bf16* bias, u32 n, u32 c, u32 threshold, float scale,
                                                        u32 key) {
    residual_forward<12>(residual, out, mean, rstd, inp, branch, weight, bias, n, c, Dropout{threshold, scale, key});
}
