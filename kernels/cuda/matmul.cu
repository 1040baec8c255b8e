// Matrix products of bfloat16 with sums of float: a linear layer forward, and the gradients of its input and weight.
//
// A block computes 128 x 128 of the product, and each of its four warps 64 x 64 of that, in steps of 32 along the
// dimension that is summed over (k). Three stages of copies are on their way while tensor cores work; a warp's operands
// of the next step are loaded from shared memory before it multiplies this one's. What follows a product (bias, GELU,
// residual) is done on its floats, which are rounded once.
//
// Contiguous dimensions (C, OC) are multiples of 8, so that every row begins at a multiple of 16 bytes: the host pads a
// vocabulary. N is any number. Source: arXiv:1804.06826 for banks, the PTX manual for the layout of mma.sync.

#include "device.cuh"

constexpr u32 THREADS = 128;
// Rows and columns of a block's part of the product.
constexpr u32 TILE = 128;
// Of a warp's part.
constexpr u32 WARP_TILE = 64;
// Elements of k of a stage, and of one mma.
constexpr u32 DEPTH = 32;
constexpr u32 STEP = 16;
constexpr u32 STAGES = 3;
// Rows of tiles that are worked on together, column by column, so that what they read is still in the second cache.
constexpr u32 GROUP = 8;
// Floats from one row to the next where a warp turns its sums into rows: the 8 rows that one instruction writes then
// begin 8 banks apart.
constexpr u32 PITCH = WARP_TILE + 8;

struct Stage {
    bf16 a[TILE * DEPTH];
    bf16 b[TILE * DEPTH];
};

struct Shared {
    union {
        Stage stages[STAGES];
        float rows[THREADS / WARP][16 * PITCH];
    };
};
static_assert(sizeof(Shared) == 49152, "what the host launches with");

// An operand of the product. Its side is the dimension that the product keeps: rows of the first, columns of the
// second.
// ALONG: shape (side, k), else (k, side).
template <bool ALONG>
struct Operand {
    const bf16* data;
    u32 side;
    // Elements of k in memory, and where this block stops.
    u32 k;
    u32 k_end;
};

// Begins to copy a stage's tile.
template <bool ALONG>
DEVICE void copy(bf16* tile, Operand<ALONG> from, u32 side_first, u32 k_first) {
    constexpr u32 WIDTH = ALONG ? DEPTH : TILE;
    UNROLL
    for (u32 i = 0; i < TILE * DEPTH / 8 / THREADS; i++) {
        const u32 piece = i * THREADS + threadIdx.x;
        const u32 row = piece / (WIDTH / 8);
        const u32 column = piece % (WIDTH / 8) * 8;
        const u32 side = side_first + (ALONG ? row : column);
        const u32 k = k_first + (ALONG ? column : row);
        const u64 at = ALONG ? static_cast<u64>(side) * from.k + k : static_cast<u64>(k) * from.side + side;
        cp_async_16(tile + swizzled<WIDTH>(row, column), from.data + at, side < from.side && k < from.k_end);
    }
}

// What a warp multiplies in one step: 64 x 16 by 16 x 64.
struct Fragments {
    u32 a[4][4];
    u32 b[4][2][2];
};

// A warp's part of the product: 4 x 8 parts of 16 x 8.
struct Sums {
    float of[4][8][4];
};

// Where this block's part of the product begins.
struct Place {
    u32 row;
    u32 column;
};

DEVICE Place place_of_block(u32 rows, u32 columns) {
    const u32 tile_rows = (rows + TILE - 1) / TILE;
    const u32 tile_columns = (columns + TILE - 1) / TILE;
    const u32 first = blockIdx.x / (GROUP * tile_columns) * GROUP;
    const u32 within = blockIdx.x % (GROUP * tile_columns);
    const u32 together = tile_rows - first < GROUP ? tile_rows - first : GROUP;
    return Place{(first + within % together) * TILE, within / together * TILE};
}

DEVICE u32 warp_row() { return warp_of_thread() / 2 * WARP_TILE; }
DEVICE u32 warp_column() { return warp_of_thread() % 2 * WARP_TILE; }

template <bool A_ALONG, bool B_ALONG>
DEVICE void load(Fragments& out, const Stage& stage, u32 k) {
    UNROLL
    for (u32 i = 0; i < 4; i++) {
        const u32 row = warp_row() + i * 16;
        const u32 column = warp_column() + i * 16;
        if (A_ALONG) {
            load_a<DEPTH>(out.a[i], stage.a, row, k);
        } else {
            load_a_transposed<TILE>(out.a[i], stage.a, k, row);
        }
        if (B_ALONG) {
            load_b_transposed<DEPTH>(out.b[i], stage.b, column, k);
        } else {
            load_b<TILE>(out.b[i], stage.b, k, column);
        }
    }
}

DEVICE void multiply(Sums& sums, const Fragments& fragments) {
    UNROLL
    for (u32 i = 0; i < 4; i++) {
        UNROLL
        for (u32 j = 0; j < 8; j++) {
            mma_m16n8k16(sums.of[i][j], fragments.a[i], fragments.b[j / 2][j % 2]);
        }
    }
}

// This block's part of a x b over k_begin to k_end, which begins at a multiple of 8 where k is contiguous.
template <bool A_ALONG, bool B_ALONG>
DEVICE void product(Sums& sums, Shared& shared, Operand<A_ALONG> a, Operand<B_ALONG> b, Place place, u32 k_begin) {
    UNROLL
    for (u32 i = 0; i < 4; i++) {
        UNROLL
        for (u32 j = 0; j < 8; j++) {
            UNROLL
            for (u32 e = 0; e < 4; e++) {
                sums.of[i][j][e] = 0.0f;
            }
        }
    }
    const u32 n_tiles = (a.k_end - k_begin + DEPTH - 1) / DEPTH;
    // An empty group counts as one too, so that what is waited for is always the same number of groups back.
    const auto begin_copies = [&](u32 tile) {
        if (tile < n_tiles) {
            Stage& stage = shared.stages[tile % STAGES];
            copy(stage.a, a, place.row, k_begin + tile * DEPTH);
            copy(stage.b, b, place.column, k_begin + tile * DEPTH);
        }
        cp_async_commit();
    };
    UNROLL
    for (u32 tile = 0; tile < STAGES - 1; tile++) {
        begin_copies(tile);
    }
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    Fragments fragments[2];
    load<A_ALONG, B_ALONG>(fragments[0], shared.stages[0], 0);
    for (u32 tile = 0; tile < n_tiles; tile++) {
        load<A_ALONG, B_ALONG>(fragments[1], shared.stages[tile % STAGES], STEP);
        // Into the stage of the tile before this one, which all warps have left at the last barrier.
        begin_copies(tile + STAGES - 1);
        multiply(sums, fragments[0]);
        cp_async_wait<STAGES - 2>();  // the next tile
        __syncthreads();  // all warps have it, and have left this one
        if (tile + 1 < n_tiles) {
            load<A_ALONG, B_ALONG>(fragments[0], shared.stages[(tile + 1) % STAGES], 0);
        }
        multiply(sums, fragments[1]);
    }
}

DEVICE float4 unpack_four(uint2 bits) {
    return float4{first_of(bits.x), second_of(bits.x), first_of(bits.y), second_of(bits.y)};
}
DEVICE uint2 pack_four(float4 v) { return uint2{pack(v.x, v.y), pack(v.z, v.w)}; }
DEVICE uint2 load_four(const bf16* from) { return *reinterpret_cast<const uint2*>(from); }
DEVICE void store_four(bf16* to, uint2 bits) { *reinterpret_cast<uint2*>(to) = bits; }
DEVICE float4 sum_of(float4 a, float4 b) { return float4{a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// The first of the four neighbouring columns of the product that this lane finishes, in each of its rows.
DEVICE u32 column_of_lane(Place place) { return place.column + warp_column() + lane_of_thread() % 16 * 4; }

// Their bias; with `bias` null there is none.
DEVICE float4 bias_of_lane(const bf16* bias, Place place, u32 columns) {
    const u32 column = column_of_lane(place);
    const bool valid = bias != nullptr && column < columns;
    return unpack_four(valid ? load_four(bias + column) : uint2{0, 0});
}

// Gives `store(at, values, loaded)` every four neighbours of the block's part that the product (rows, columns) has, and
// what `load(at)` gave. A warp's lanes hold parts of many rows, which go through shared memory to be whole; loads of
// 16 rows begin before that, as nothing else hides how long they take.
template <typename Load, typename Store>
DEVICE void finish(const Sums& sums, Shared& shared, Place place, u32 rows, u32 columns, Load load, Store store) {
    const u32 lane = lane_of_thread();
    const u32 column = column_of_lane(place);
    // No warp reads a stage after the product's last barrier, and nothing is on its way to one.
    float* part = shared.rows[warp_of_thread()];
    UNROLL
    for (u32 i = 0; i < 4; i++) {
        const u32 first_row = place.row + warp_row() + i * 16 + lane / 16;
        const u64 first = static_cast<u64>(first_row) * columns + column;
        decltype(load(first)) loaded[8];
        UNROLL
        for (u32 pair = 0; pair < 8; pair++) {
            if (first_row + pair * 2 < rows && column < columns) {
                loaded[pair] = load(first + static_cast<u64>(pair * 2) * columns);
            }
        }
        __syncwarp();
        UNROLL
        for (u32 j = 0; j < 8; j++) {
            const float(&sum)[4] = sums.of[i][j];
            float* to = part + lane / 4 * PITCH + j * 8 + lane % 4 * 2;
            *reinterpret_cast<float2*>(to) = float2{sum[0], sum[1]};
            *reinterpret_cast<float2*>(to + 8 * PITCH) = float2{sum[2], sum[3]};
        }
        __syncwarp();
        UNROLL
        for (u32 pair = 0; pair < 8; pair++) {
            const float* from = part + (pair * 2 + lane / 16) * PITCH + lane % 16 * 4;
            const float4 values = *reinterpret_cast<const float4*>(from);
            if (first_row + pair * 2 < rows && column < columns) {
                store(first + static_cast<u64>(pair * 2) * columns, values, loaded[pair]);
            }
        }
    }
}

// For products that need nothing more.
DEVICE u32 nothing(u64) { return 0; }

// inp x weight^T of this block, before what follows it.
DEVICE void layer(Sums& sums, Shared& shared, const bf16* inp, const bf16* weight, Place place, u32 n, u32 c, u32 oc) {
    product(sums, shared, Operand<true>{inp, n, c, c}, Operand<true>{weight, oc, c, c}, place, 0);
}

// A linear layer over rows. Shapes: inp (N, C), weight (OC, C), bias (OC) or null -> out (N, OC).
KERNEL BOUNDS(THREADS, 2) matmul_forward(
    bf16* out, const bf16* inp, const bf16* weight, const bf16* bias, u32 n, u32 c, u32 oc) {
    Shared& shared = shared_memory<Shared>();
    const Place place = place_of_block(n, oc);
    Sums sums;
    layer(sums, shared, inp, weight, place, n, c, oc);
    const float4 shift = bias_of_lane(bias, place, oc);
    finish(sums, shared, place, n, oc, nothing,
           [&](u64 at, float4 values, u32) { store_four(out + at, pack_four(sum_of(values, shift))); });
}

// The same and GELU of it, which is that of the rounded layer: what backward and a recomputed GELU begin with.
// Shapes: as above -> gelu_out (N, OC), out (N, OC).
KERNEL BOUNDS(THREADS, 2) matmul_gelu_forward(
    bf16* gelu_out, bf16* out, const bf16* inp, const bf16* weight, const bf16* bias, u32 n, u32 c, u32 oc) {
    Shared& shared = shared_memory<Shared>();
    const Place place = place_of_block(n, oc);
    Sums sums;
    layer(sums, shared, inp, weight, place, n, c, oc);
    const float4 shift = bias_of_lane(bias, place, oc);
    finish(sums, shared, place, n, oc, nothing, [&](u64 at, float4 values, u32) {
        const uint2 kept = pack_four(sum_of(values, shift));
        store_four(out + at, kept);
        const float4 x = unpack_four(kept);
        store_four(gelu_out + at, pack_four(float4{gelu(x.x), gelu(x.y), gelu(x.z), gelu(x.w)}));
    });
}

// The same as the first, added to the residual stream. Shapes: as above, residual (N, OC) -> out (N, OC), which may be
// `residual` itself.
KERNEL BOUNDS(THREADS, 2) matmul_residual_forward(
    bf16* out, const bf16* inp, const bf16* weight, const bf16* bias, const bf16* residual, u32 n, u32 c, u32 oc) {
    Shared& shared = shared_memory<Shared>();
    const Place place = place_of_block(n, oc);
    Sums sums;
    layer(sums, shared, inp, weight, place, n, c, oc);
    const float4 shift = bias_of_lane(bias, place, oc);
    finish(sums, shared, place, n, oc, [&](u64 at) { return load_four(residual + at); },
           [&](u64 at, float4 values, uint2 stream) {
               store_four(out + at, pack_four(sum_of(sum_of(values, shift), unpack_four(stream))));
           });
}

// The gradient of the rows, written. Shapes: dout (N, OC), weight (OC, C) -> dinp (N, C).
KERNEL BOUNDS(THREADS, 2) matmul_backward_inp(bf16* dinp, const bf16* dout, const bf16* weight, u32 n, u32 c, u32 oc) {
    Shared& shared = shared_memory<Shared>();
    const Place place = place_of_block(n, c);
    Sums sums;
    product(sums, shared, Operand<true>{dout, n, oc, oc}, Operand<false>{weight, c, oc, oc}, place, 0);
    finish(sums, shared, place, n, c, nothing,
           [&](u64 at, float4 values, u32) { store_four(dinp + at, pack_four(values)); });
}

// The same through the GELU that made the rows. Shapes: as above, pre (N, C) what GELU was taken of -> dinp (N, C).
KERNEL BOUNDS(THREADS, 2) matmul_gelu_backward_inp(
    bf16* dinp, const bf16* dout, const bf16* weight, const bf16* pre, u32 n, u32 c, u32 oc) {
    Shared& shared = shared_memory<Shared>();
    const Place place = place_of_block(n, c);
    Sums sums;
    product(sums, shared, Operand<true>{dout, n, oc, oc}, Operand<false>{weight, c, oc, oc}, place, 0);
    finish(sums, shared, place, n, c, [&](u64 at) { return load_four(pre + at); },
           [&](u64 at, float4 values, uint2 bits) {
               const float4 x = unpack_four(bits);
               const float4 through = {values.x * gelu_derivative(x.x), values.y * gelu_derivative(x.y),
                                       values.z * gelu_derivative(x.z), values.w * gelu_derivative(x.w)};
               store_four(dinp + at, pack_four(through));
           });
}

// The gradient of the weight: dout^T x inp over rows blockIdx.z * split to the next block's, into plane blockIdx.z of
// `planes`; with `accumulate` not 0, which is for one plane, added to what is there. One plane is the gradient itself,
// and more are added by `sum_planes`. Shapes: dout (N, OC), inp (N, C) -> planes (gridDim.z, OC, C); gridDim.z is
// N / split, rounded up.
KERNEL BOUNDS(THREADS, 2) matmul_backward_weight(
    float* planes, const bf16* dout, const bf16* inp, u32 n, u32 c, u32 oc, u32 split, u32 accumulate) {
    Shared& shared = shared_memory<Shared>();
    const Place place = place_of_block(oc, c);
    const u32 begin = blockIdx.z * split;
    const u32 end = n - begin < split ? n : begin + split;
    float* plane = planes + static_cast<u64>(blockIdx.z) * oc * c;
    Sums sums;
    product(sums, shared, Operand<false>{dout, oc, n, end}, Operand<false>{inp, c, n, end}, place, begin);
    finish(sums, shared, place, oc, c,
           [&](u64 at) {
               return accumulate == 0 ? float4{0, 0, 0, 0} : *reinterpret_cast<const float4*>(plane + at);
           },
           [&](u64 at, float4 values, float4 before) {
               *reinterpret_cast<float4*>(plane + at) = sum_of(values, before);
           });
}
