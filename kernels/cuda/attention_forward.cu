// Causal attention forward, with scores and weights never in memory: FlashAttention-2's order (arXiv:2307.08691).
//
// A block has 128 queries of one head, and a warp 32 of them; keys and values come in tiles, two stages of each, so
// that the next is on its way while this one is used. Rows of a warp keep their maximum and sum as they go; weights
// stay in the registers that scores came in, as the layout of a product's result is that of the next one's first
// operand. Blocks begin with the last queries of a head, which have the most keys.
//
// Heads of HS channels, a multiple of 8, lie in tiles of the next WIDTH of 32, 64, 96 and 128, filled up with zeros.

#include "device.cuh"

constexpr u32 THREADS = 128;
constexpr u32 WARPS = THREADS / WARP;
// A score that is masked, and a row's maximum before its first: finite, so that differences are too.
constexpr float MASKED = -1e30f;
constexpr float LOG2_E = 1.44269504f;
constexpr float LN_2 = 0.69314718f;

// How a head size is worked on: rows of 16 queries of a warp, and keys of a tile.
template <u32 WIDTH>
struct Shape {
    static constexpr u32 PARTS = 2;
    static constexpr u32 KEYS = WIDTH <= 64 ? 64 : 32;
    static constexpr u32 WARP_ROWS = PARTS * 16;
    static constexpr u32 QUERIES = WARPS * WARP_ROWS;
};

template <u32 WIDTH>
struct Shared {
    bf16 q[Shape<WIDTH>::QUERIES * WIDTH];
    bf16 k[2][Shape<WIDTH>::KEYS * WIDTH];
    bf16 v[2][Shape<WIDTH>::KEYS * WIDTH];
};
static_assert(sizeof(Shared<32>) == 24576 && sizeof(Shared<64>) == 49152, "what the host launches with");
static_assert(sizeof(Shared<96>) == 49152 && sizeof(Shared<128>) == 65536, "what the host launches with");

// 16 queries of a warp, of which a lane has parts of two: row lane / 4 and the one 8 further.
template <u32 WIDTH>
struct Rows {
    // The largest score so far.
    float most[2];
    // This lane's share of the sum of exponentials.
    float total[2];
    // The sum of values by weight, not divided by `total` yet.
    float sums[WIDTH / 8][4];
};

// Turns scores of keys `key` on into weights relative to the rows' new maxima, and the sums so far with them. `query`
// is the first of the 16.
template <u32 WIDTH, u32 KEYS>
DEVICE void weigh(Rows<WIDTH>& rows, float (&scores)[KEYS / 8][4], u32 query, u32 key, float scale, bool masked) {
    const u32 lane = lane_of_thread();
    UNROLL
    for (u32 half = 0; half < 2; half++) {
        const u32 of_row = query + lane / 4 + half * 8;
        float most = rows.most[half];
        UNROLL
        for (u32 j = 0; j < KEYS / 8; j++) {
            UNROLL
            for (u32 e = 0; e < 2; e++) {
                float& score = scores[j][half * 2 + e];
                if (masked && key + j * 8 + lane % 4 * 2 + e > of_row) {
                    score = MASKED;
                }
                most = fmaxf(most, score);
            }
        }
        most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 1));
        most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 2));
        const float rescale = fast_exp2((rows.most[half] - most) * scale);
        rows.most[half] = most;
        float total = rows.total[half] * rescale;
        UNROLL
        for (u32 j = 0; j < KEYS / 8; j++) {
            UNROLL
            for (u32 e = 0; e < 2; e++) {
                float& score = scores[j][half * 2 + e];
                score = fast_exp2(fmaf(score, scale, -most * scale));
                total += score;
            }
        }
        rows.total[half] = total;
        UNROLL
        for (u32 j = 0; j < WIDTH / 8; j++) {
            rows.sums[j][half * 2] *= rescale;
            rows.sums[j][half * 2 + 1] *= rescale;
        }
    }
}

// Drops weights. `row` is (b * NH + h) * T + the first query of the 16.
template <u32 KEYS>
DEVICE void drop(float (&weights)[KEYS / 8][4], Dropout dropout, u32 row, u32 key, u32 t) {
    const u32 lane = lane_of_thread();
    UNROLL
    for (u32 j = 0; j < KEYS / 8; j++) {
        UNROLL
        for (u32 e = 0; e < 4; e++) {
            const u32 of_row = row + lane / 4 + e / 2 * 8;
            weights[j][e] *= dropout_factor(dropout, of_row * t + key + j * 8 + lane % 4 * 2 + e % 2);
        }
    }
}

// One tile of keys and values, which begins at `key`, for a warp whose first query is `query`.
template <u32 WIDTH>
DEVICE void attend(Rows<WIDTH> (&rows)[Shape<WIDTH>::PARTS], const bf16* q, const bf16* k, const bf16* v, u32 query,
                   u32 key, u32 row, u32 t, float scale, Dropout dropout) {
    constexpr u32 PARTS = Shape<WIDTH>::PARTS;
    constexpr u32 KEYS = Shape<WIDTH>::KEYS;
    float scores[PARTS][KEYS / 8][4] = {};
    UNROLL
    for (u32 channel = 0; channel < WIDTH; channel += 16) {
        u32 a[PARTS][4];
        UNROLL
        for (u32 part = 0; part < PARTS; part++) {
            load_a<WIDTH>(a[part], q, warp_of_thread() * PARTS * 16 + part * 16, channel);
        }
        UNROLL
        for (u32 j = 0; j < KEYS / 16; j++) {
            u32 b[2][2];
            load_b_transposed<WIDTH>(b, k, j * 16, channel);
            UNROLL
            for (u32 part = 0; part < PARTS; part++) {
                mma_m16n8k16(scores[part][2 * j], a[part], b[0]);
                mma_m16n8k16(scores[part][2 * j + 1], a[part], b[1]);
            }
        }
    }
    UNROLL
    for (u32 part = 0; part < PARTS; part++) {
        const bool masked = key + KEYS > query + part * 16;
        weigh<WIDTH, KEYS>(rows[part], scores[part], query + part * 16, key, scale, masked);
        if (dropout.threshold != 0) {
            drop<KEYS>(scores[part], dropout, row + part * 16, key, t);
        }
    }
    UNROLL
    for (u32 j = 0; j < KEYS / 16; j++) {
        u32 a[PARTS][4];
        UNROLL
        for (u32 part = 0; part < PARTS; part++) {
            operand_of_results(a[part], scores[part][2 * j], scores[part][2 * j + 1]);
        }
        UNROLL
        for (u32 channel = 0; channel < WIDTH; channel += 16) {
            u32 b[2][2];
            load_b<WIDTH>(b, v, j * 16, channel);
            UNROLL
            for (u32 part = 0; part < PARTS; part++) {
                mma_m16n8k16(rows[part].sums[channel / 8], a[part], b[0]);
                mma_m16n8k16(rows[part].sums[channel / 8 + 1], a[part], b[1]);
            }
        }
    }
}

// Divides the sums and writes them and the logsumexp. Sums go through the warp's own queries, to be whole rows.
template <u32 WIDTH>
DEVICE void finish(Rows<WIDTH> (&rows)[Shape<WIDTH>::PARTS], bf16* q, bf16* out, float* lse, u64 stride, u32 query,
                   u32 t, u32 hs, float scale) {
    constexpr u32 WARP_ROWS = Shape<WIDTH>::WARP_ROWS;
    const u32 lane = lane_of_thread();
    bf16* tile = q + warp_of_thread() * WARP_ROWS * WIDTH;
    __syncwarp();
    UNROLL
    for (u32 part = 0; part < Shape<WIDTH>::PARTS; part++) {
        UNROLL
        for (u32 half = 0; half < 2; half++) {
            float total = rows[part].total[half];
            total += __shfl_xor_sync(ALL_LANES, total, 1);
            total += __shfl_xor_sync(ALL_LANES, total, 2);
            const u32 row = part * 16 + lane / 4 + half * 8;
            if (lane % 4 == 0 && query + row < t) {
                lse[query + row] = (rows[part].most[half] * scale + fast_log2(total)) * LN_2;
            }
            const float share = 1.0f / total;
            UNROLL
            for (u32 j = 0; j < WIDTH / 8; j++) {
                const float first = rows[part].sums[j][half * 2];
                const float second = rows[part].sums[j][half * 2 + 1];
                u32* to = reinterpret_cast<u32*>(tile + swizzled<WIDTH>(row, j * 8) + lane % 4 * 2);
                *to = pack(first * share, second * share);
            }
        }
    }
    __syncwarp();
    UNROLL
    for (u32 i = 0; i < WARP_ROWS * WIDTH / 8 / WARP; i++) {
        const u32 piece = i * WARP + lane;
        const u32 row = piece / (WIDTH / 8);
        const u32 column = piece % (WIDTH / 8) * 8;
        if (query + row < t && column < hs) {
            const uint4 bits = *reinterpret_cast<const uint4*>(tile + swizzled<WIDTH>(row, column));
            *reinterpret_cast<uint4*>(out + (query + row) * stride + column) = bits;
        }
    }
}

template <u32 WIDTH>
DEVICE void attention(bf16* out, float* lse, const bf16* qkv, u32 t, u32 nh, u32 hs, float scale, Dropout dropout) {
    constexpr u32 QUERIES = Shape<WIDTH>::QUERIES;
    constexpr u32 KEYS = Shape<WIDTH>::KEYS;
    Shared<WIDTH>& shared = shared_memory<Shared<WIDTH>>();
    const u32 n_blocks = (t + QUERIES - 1) / QUERIES;
    const u32 head = blockIdx.x / n_blocks;
    const u32 first = (n_blocks - 1 - blockIdx.x % n_blocks) * QUERIES;
    const u32 c = nh * hs;
    const u64 stride = static_cast<u64>(c) * 3;
    const u64 sequence = static_cast<u64>(head / nh) * t;
    const bf16* q = qkv + sequence * stride + head % nh * hs;
    const u32 end = first + QUERIES < t ? first + QUERIES : t;
    const u32 query = first + warp_of_thread() * Shape<WIDTH>::WARP_ROWS;

    Rows<WIDTH> rows[Shape<WIDTH>::PARTS];
    UNROLL
    for (u32 part = 0; part < Shape<WIDTH>::PARTS; part++) {
        rows[part] = Rows<WIDTH>{{MASKED, MASKED}, {}, {}};
    }
    copy_rows<WIDTH, QUERIES, THREADS>(shared.q, q, stride, first, t, hs);
    copy_rows<WIDTH, KEYS, THREADS>(shared.k[0], q + c, stride, 0, t, hs);
    copy_rows<WIDTH, KEYS, THREADS>(shared.v[0], q + 2 * c, stride, 0, t, hs);
    cp_async_commit();
    for (u32 key = 0; key < end; key += KEYS) {
        const u32 stage = key / KEYS % 2;
        cp_async_wait<0>();
        __syncthreads();
        // Into the stage of the tile before this one, which all warps have left.
        if (key + KEYS < end) {
            copy_rows<WIDTH, KEYS, THREADS>(shared.k[1 - stage], q + c, stride, key + KEYS, t, hs);
            copy_rows<WIDTH, KEYS, THREADS>(shared.v[1 - stage], q + 2 * c, stride, key + KEYS, t, hs);
            cp_async_commit();
        }
        // A warp's queries may all come before the tile.
        if (key < query + Shape<WIDTH>::WARP_ROWS) {
            attend<WIDTH>(rows, shared.q, shared.k[stage], shared.v[stage], query, key, head * t + query, t,
                          scale * LOG2_E, dropout);
        }
    }
    bf16* to = out + sequence * c + head % nh * hs;
    finish<WIDTH>(rows, shared.q, to, lse + static_cast<u64>(head) * t, c, query, t, hs, scale * LOG2_E);
}

// Shapes of all: qkv (B, T, 3, NH, HS) -> out (B, T, NH, HS), lse (B, NH, T) of the scaled scores. gridDim.x is B * NH
// times blocks of queries. `threshold`, `kept` and `key` are `Dropout`'s.
KERNEL BOUNDS(THREADS, 2) attention_forward_32(bf16* out, float* lse, const bf16* qkv, u32 t, u32 nh, u32 hs,
                                               float scale, u32 threshold, float kept, u32 key) {
    attention<32>(out, lse, qkv, t, nh, hs, scale, Dropout{threshold, kept, key});
}
KERNEL BOUNDS(THREADS, 2) attention_forward_64(bf16* out, float* lse, const bf16* qkv, u32 t, u32 nh, u32 hs,
                                               float scale, u32 threshold, float kept, u32 key) {
    attention<64>(out, lse, qkv, t, nh, hs, scale, Dropout{threshold, kept, key});
}
KERNEL BOUNDS(THREADS, 2) attention_forward_96(bf16* out, float* lse, const bf16* qkv, u32 t, u32 nh, u32 hs,
                                               float scale, u32 threshold, float kept, u32 key) {
    attention<96>(out, lse, qkv, t, nh, hs, scale, Dropout{threshold, kept, key});
}
KERNEL BOUNDS(THREADS, 2) attention_forward_128(bf16* out, float* lse, const bf16* qkv, u32 t, u32 nh, u32 hs,
                                                float scale, u32 threshold, float kept, u32 key) {
    attention<128>(out, lse, qkv, t, nh, hs, scale, Dropout{threshold, kept, key});
}
