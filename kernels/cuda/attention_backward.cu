// Causal attention backward, with scores and weights computed anew (arXiv:2205.14135, appendix B): with P the weights
// and D the rows' sums of dout * out, dS = P * (dP - D).
//
// Two kernels, both a product of "own" rows that stay with "other" rows that pass: for dk and dv a block owns keys and
// values and queries pass, for dq it owns queries and keys pass. Scores are computed in both, which is 7 products
// where one kernel has 5, but then nothing is added from many blocks: no atomics, no workspace, and a fixed order. A
// warp's own rows are the rows of its scores, so that these stay in registers and are the next product's first
// operand. Bytes moved: 10 an element of dqkv at least, and what passes comes out of the second cache.
//
// Heads of HS channels, a multiple of 8, lie in tiles of the next WIDTH of 32, 64, 96 and 128, filled up with zeros.

#include "device.cuh"

constexpr u32 THREADS = 128;
constexpr u32 WARPS = THREADS / WARP;
// A score that is masked: finite, so that differences are too.
constexpr float MASKED = -1e30f;
constexpr float LOG2_E = 1.44269504f;

// How a head size is worked on. OWN_KEYS: for dk and dv, else for dq.
template <u32 WIDTH, bool OWN_KEYS>
struct Shape {
    // Of a warp's own rows, parts of 16.
    static constexpr u32 PARTS = WIDTH <= 64 ? 2 : 1;
    static constexpr u32 WARP_ROWS = PARTS * 16;
    static constexpr u32 OWN = WARPS * WARP_ROWS;
    // Rows of a tile that passes.
    static constexpr u32 OTHER = 32;
    // Queries whose logsumexp and D are at hand: those that pass, in two stages, or the block's own.
    static constexpr u32 ROWS = OWN_KEYS ? OTHER : OWN;
    static constexpr u32 STAGES = OWN_KEYS ? 2 : 1;
};

// What scores are a product of stands first (queries, keys), and then what dP is (dout, values).
template <u32 WIDTH, bool OWN_KEYS>
struct Shared {
    bf16 own[2][Shape<WIDTH, OWN_KEYS>::OWN * WIDTH];
    bf16 other[2][2][Shape<WIDTH, OWN_KEYS>::OTHER * WIDTH];
    // The logsumexp in units of log 2, then D.
    float rows[Shape<WIDTH, OWN_KEYS>::STAGES][2][Shape<WIDTH, OWN_KEYS>::ROWS];
};
static_assert(sizeof(Shared<32, true>) == 25088 && sizeof(Shared<32, false>) == 25600, "what the host launches with");
static_assert(sizeof(Shared<64, true>) == 49664 && sizeof(Shared<64, false>) == 50176, "what the host launches with");
static_assert(sizeof(Shared<96, true>) == 49664 && sizeof(Shared<96, false>) == 49664, "what the host launches with");
static_assert(sizeof(Shared<128, true>) == 66048 && sizeof(Shared<128, false>) == 66048, "what the host launches with");

// One head of one sequence.
struct Head {
    // Queries, keys and values of a token are C apart, and tokens 3C.
    const bf16* qkv;
    const bf16* dout;
    const float* lse;
    const float* d;
    u32 t;
    u32 c;
    u32 hs;
    // b * NH + h.
    u32 number;
    float scale;
    Dropout dropout;
};

// The logsumexp (`which` 0) or D (1) of a query; 0 past the last, whose dout and query are 0 and whose share then is,
// too.
DEVICE float row_of(Head head, u32 which, u32 query) {
    if (query >= head.t) {
        return 0.0f;
    }
    return which == 0 ? head.lse[query] * LOG2_E : head.d[query];
}

// Begins to copy rows of queries and dout, or of keys and values.
template <u32 WIDTH, u32 ROWS, bool KEYS>
DEVICE void copy_pair(bf16 (&to)[2][ROWS * WIDTH], Head head, u32 first) {
    // 32 bits hold it. Heads of 64 channels take all registers that there are, and lack the one of a wider stride.
    const u64 stride = WIDTH == 64 ? head.c * 3 : static_cast<u64>(head.c) * 3;
    if (KEYS) {
        copy_rows<WIDTH, ROWS, THREADS>(to[0], head.qkv + head.c, stride, first, head.t, head.hs);
        copy_rows<WIDTH, ROWS, THREADS>(to[1], head.qkv + 2 * head.c, stride, first, head.t, head.hs);
    } else {
        copy_rows<WIDTH, ROWS, THREADS>(to[0], head.qkv, stride, first, head.t, head.hs);
        copy_rows<WIDTH, ROWS, THREADS>(to[1], head.dout, head.c, first, head.t, head.hs);
    }
}

// own x other^T of a warp's rows.
template <u32 WIDTH, u32 PARTS, u32 OTHER>
DEVICE void multiply(float (&out)[PARTS][OTHER / 8][4], const bf16* own, const bf16* other) {
    UNROLL
    for (u32 channel = 0; channel < WIDTH; channel += 16) {
        u32 a[PARTS][4];
        UNROLL
        for (u32 part = 0; part < PARTS; part++) {
            load_a<WIDTH>(a[part], own, (warp_of_thread() * PARTS + part) * 16, channel);
        }
        UNROLL
        for (u32 j = 0; j < OTHER / 16; j++) {
            u32 b[2][2];
            load_b_transposed<WIDTH>(b, other, j * 16, channel);
            UNROLL
            for (u32 part = 0; part < PARTS; part++) {
                mma_m16n8k16(out[part][2 * j], a[part], b[0]);
                mma_m16n8k16(out[part][2 * j + 1], a[part], b[1]);
            }
        }
    }
}

// sums += weights x other.
template <u32 WIDTH, u32 PARTS, u32 OTHER>
DEVICE void accumulate(float (&sums)[PARTS][WIDTH / 8][4], const float (&weights)[PARTS][OTHER / 8][4],
                       const bf16* other) {
    UNROLL
    for (u32 j = 0; j < OTHER / 16; j++) {
        u32 a[PARTS][4];
        UNROLL
        for (u32 part = 0; part < PARTS; part++) {
            operand_of_results(a[part], weights[part][2 * j], weights[part][2 * j + 1]);
        }
        UNROLL
        for (u32 channel = 0; channel < WIDTH; channel += 16) {
            u32 b[2][2];
            load_b<WIDTH>(b, other, j * 16, channel);
            UNROLL
            for (u32 part = 0; part < PARTS; part++) {
                mma_m16n8k16(sums[part][channel / 8], a[part], b[0]);
                mma_m16n8k16(sums[part][channel / 8 + 1], a[part], b[1]);
            }
        }
    }
}

// Scores become weights, and dP becomes dS. `own` and `other` are the first rows, and `rows` the logsumexp and D of
// the queries among them.
template <bool OWN_KEYS, u32 PARTS, u32 OTHER, u32 ROWS>
DEVICE void differentiate(float (&scores)[PARTS][OTHER / 8][4], float (&dweights)[PARTS][OTHER / 8][4],
                          const float (&rows)[2][ROWS], u32 own, u32 own_of_block, u32 other, Head head) {
    const u32 lane = lane_of_thread();
    const bool masked = OWN_KEYS ? other < own + PARTS * 16 : other + OTHER > own;
    UNROLL
    for (u32 part = 0; part < PARTS; part++) {
        UNROLL
        for (u32 j = 0; j < OTHER / 8; j++) {
            UNROLL
            for (u32 e = 0; e < 4; e++) {
                const u32 of_own = part * 16 + lane / 4 + e / 2 * 8;
                const u32 of_other = j * 8 + lane % 4 * 2 + e % 2;
                const u32 query = OWN_KEYS ? other + of_other : own + of_own;
                const u32 key = OWN_KEYS ? own + of_own : other + of_other;
                const u32 row = OWN_KEYS ? of_other : own_of_block + of_own;
                float& score = scores[part][j][e];
                float& dweight = dweights[part][j][e];
                const float of_key = masked && key > query ? MASKED : score;
                const float weight = fast_exp2(fmaf(of_key, head.scale * LOG2_E, -rows[0][row]));
                float factor = 1.0f;
                if (head.dropout.threshold != 0) {
                    factor = dropout_factor(head.dropout, (head.number * head.t + query) * head.t + key);
                }
                dweight = weight * (dweight * factor - rows[1][row]);
                score = weight * factor;
            }
        }
    }
}

// Writes a warp's rows, through its own tile, to be whole rows.
template <u32 WIDTH, u32 PARTS>
DEVICE void store(bf16* out, bf16* tile, const float (&sums)[PARTS][WIDTH / 8][4], float scale, u32 first, Head head) {
    const u32 lane = lane_of_thread();
    bf16* of_warp = tile + warp_of_thread() * PARTS * 16 * WIDTH;
    __syncwarp();
    UNROLL
    for (u32 part = 0; part < PARTS; part++) {
        UNROLL
        for (u32 j = 0; j < WIDTH / 8; j++) {
            UNROLL
            for (u32 half = 0; half < 2; half++) {
                bf16* to = of_warp + swizzled<WIDTH>(part * 16 + lane / 4 + half * 8, j * 8) + lane % 4 * 2;
                const float(&sum)[4] = sums[part][j];
                *reinterpret_cast<u32*>(to) = pack(sum[half * 2] * scale, sum[half * 2 + 1] * scale);
            }
        }
    }
    __syncwarp();
    UNROLL
    for (u32 i = 0; i < PARTS * 16 * WIDTH / 8 / WARP; i++) {
        const u32 piece = i * WARP + lane;
        const u32 row = piece / (WIDTH / 8);
        const u32 column = piece % (WIDTH / 8) * 8;
        if (first + row < head.t && column < head.hs) {
            const uint4 bits = load_eight(of_warp + swizzled<WIDTH>(row, column));
            store_eight(out + static_cast<u64>(first + row) * head.c * 3 + column, bits);
        }
    }
}

// The gradients of a block's own rows. `dqkv` is the head's, as `head.qkv`.
template <u32 WIDTH, bool OWN_KEYS>
DEVICE void backward(bf16* dqkv, Head head, u32 first) {
    typedef Shape<WIDTH, OWN_KEYS> S;
    Shared<WIDTH, OWN_KEYS>& shared = shared_memory<Shared<WIDTH, OWN_KEYS>>();
    // Of keys the queries from the first of them on, and of queries the keys up to the last of them.
    const u32 begin = OWN_KEYS ? first : 0;
    const u32 end = OWN_KEYS || head.t - first < S::OWN ? head.t : first + S::OWN;
    const u32 own_of_block = warp_of_thread() * S::WARP_ROWS;
    const u32 own = first + own_of_block;

    copy_pair<WIDTH, S::OWN, OWN_KEYS>(shared.own, head, first);
    copy_pair<WIDTH, S::OTHER, !OWN_KEYS>(shared.other[0], head, begin);
    cp_async_commit();
    for (u32 i = threadIdx.x; i < 2 * S::ROWS; i += THREADS) {
        shared.rows[0][i / S::ROWS][i % S::ROWS] = row_of(head, i / S::ROWS, first + i % S::ROWS);
    }
    float first_sums[S::PARTS][WIDTH / 8][4] = {};
    float second_sums[S::PARTS][WIDTH / 8][4] = {};
    for (u32 other = begin; other < end; other += S::OTHER) {
        const u32 stage = (other - begin) / S::OTHER % 2;
        cp_async_wait<0>();
        __syncthreads();
        // Into the stage of the tile before this one, which all warps have left. What passes the rows is loaded now and
        // stored at the end, so that nothing waits for it.
        const u32 next = other + S::OTHER;
        const u32 which = threadIdx.x / S::ROWS;
        const bool has_row = OWN_KEYS && next < end && threadIdx.x < 2 * S::ROWS;
        if (next < end) {
            copy_pair<WIDTH, S::OTHER, !OWN_KEYS>(shared.other[1 - stage], head, next);
            cp_async_commit();
        }
        const float of_next = has_row ? row_of(head, which, next + threadIdx.x % S::ROWS) : 0.0f;
        // All of the tile may come before a warp's keys, or after its queries.
        if (OWN_KEYS ? next > own : other < own + S::WARP_ROWS) {
            float scores[S::PARTS][S::OTHER / 8][4] = {};
            float dweights[S::PARTS][S::OTHER / 8][4] = {};
            multiply<WIDTH, S::PARTS, S::OTHER>(scores, shared.own[0], shared.other[stage][0]);
            multiply<WIDTH, S::PARTS, S::OTHER>(dweights, shared.own[1], shared.other[stage][1]);
            differentiate<OWN_KEYS, S::PARTS, S::OTHER, S::ROWS>(scores, dweights, shared.rows[OWN_KEYS ? stage : 0],
                                                                 own, own_of_block, other, head);
            accumulate<WIDTH, S::PARTS, S::OTHER>(first_sums, dweights, shared.other[stage][0]);
            if (OWN_KEYS) {
                accumulate<WIDTH, S::PARTS, S::OTHER>(second_sums, scores, shared.other[stage][1]);
            }
        }
        if (has_row) {
            shared.rows[OWN_KEYS ? 1 - stage : 0][which][threadIdx.x % S::ROWS] = of_next;
        }
    }
    store<WIDTH, S::PARTS>(dqkv + (OWN_KEYS ? head.c : 0), shared.own[0], first_sums, head.scale, own, head);
    if (OWN_KEYS) {
        store<WIDTH, S::PARTS>(dqkv + 2 * head.c, shared.own[1], second_sums, 1.0f, own, head);
    }
}

template <u32 WIDTH, bool OWN_KEYS>
DEVICE void attention_backward(bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* d, u32 t,
                               u32 nh, u32 hs, float scale, Dropout dropout) {
    constexpr u32 OWN = Shape<WIDTH, OWN_KEYS>::OWN;
    const u32 n_blocks = (t + OWN - 1) / OWN;
    const u32 number = blockIdx.x / n_blocks;
    const u32 block = blockIdx.x % n_blocks;
    // The blocks with the most to do come first.
    const u32 first = (OWN_KEYS ? block : n_blocks - 1 - block) * OWN;
    const u32 c = nh * hs;
    const u64 at = static_cast<u64>(number / nh) * t * c;
    const u32 of_token = number % nh * hs;
    const u64 of_rows = static_cast<u64>(number) * t;
    const Head head = {qkv + at * 3 + of_token, dout + at + of_token, lse + of_rows, d + of_rows, t, c, hs, number,
                       scale, dropout};
    backward<WIDTH, OWN_KEYS>(dqkv + at * 3 + of_token, head, first);
}

// The sum of dout * out of each row of a head. Four lanes have a row, and each of them every fourth piece of 8
// channels. Shapes: dout, out (B, T, NH, HS) -> d (B, NH, T). Bytes moved: 4 an element.
KERNEL BOUNDS(THREADS, 4) attention_backward_rows(
    float* d, const bf16* dout, const bf16* out, u64 rows, u32 t, u32 nh, u32 hs) {
    const u64 row = (static_cast<u64>(blockIdx.x) * THREADS + threadIdx.x) / 4;
    float sum = 0.0f;
    if (row < rows) {
        for (u32 column = threadIdx.x % 4 * 8; column < hs; column += 32) {
            float a[EIGHT];
            float b[EIGHT];
            unpack_eight(a, load_eight(dout + row * hs + column));
            unpack_eight(b, load_eight(out + row * hs + column));
            UNROLL
            for (u32 i = 0; i < EIGHT; i++) {
                sum = fmaf(a[i], b[i], sum);
            }
        }
    }
    sum += __shfl_xor_sync(ALL_LANES, sum, 1);
    sum += __shfl_xor_sync(ALL_LANES, sum, 2);
    if (row < rows && threadIdx.x % 4 == 0) {
        const u64 token = row / nh;
        d[(token / t * nh + row % nh) * t + token % t] = sum;
    }
}

// The gradients of keys and values, written to their places in dqkv. Shapes of all: dout (B, T, NH, HS),
// qkv (B, T, 3, NH, HS), lse and d (B, NH, T) -> dqkv as qkv. gridDim.x is B * NH times blocks of own rows.
// `threshold`, `kept` and `key` are `Dropout`'s.
KERNEL BOUNDS(THREADS, 2) attention_backward_keys_32(
    bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* d, u32 t, u32 nh, u32 hs, float scale,
    u32 threshold, float kept, u32 key) {
    attention_backward<32, true>(dqkv, dout, qkv, lse, d, t, nh, hs, scale, Dropout{threshold, kept, key});
}
KERNEL BOUNDS(THREADS, 2) attention_backward_keys_64(
    bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* d, u32 t, u32 nh, u32 hs, float scale,
    u32 threshold, float kept, u32 key) {
    attention_backward<64, true>(dqkv, dout, qkv, lse, d, t, nh, hs, scale, Dropout{threshold, kept, key});
}
KERNEL BOUNDS(THREADS, 2) attention_backward_keys_96(
    bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* d, u32 t, u32 nh, u32 hs, float scale,
    u32 threshold, float kept, u32 key) {
    attention_backward<96, true>(dqkv, dout, qkv, lse, d, t, nh, hs, scale, Dropout{threshold, kept, key});
}
KERNEL BOUNDS(THREADS, 2) attention_backward_keys_128(
    bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* d, u32 t, u32 nh, u32 hs, float scale,
    u32 threshold, float kept, u32 key) {
    attention_backward<128, true>(dqkv, dout, qkv, lse, d, t, nh, hs, scale, Dropout{threshold, kept, key});
}

// The gradient of queries, likewise.
KERNEL BOUNDS(THREADS, 2) attention_backward_queries_32(
    bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* d, u32 t, u32 nh, u32 hs, float scale,
    u32 threshold, float kept, u32 key) {
    attention_backward<32, false>(dqkv, dout, qkv, lse, d, t, nh, hs, scale, Dropout{threshold, kept, key});
}
KERNEL BOUNDS(THREADS, 2) attention_backward_queries_64(
    bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* d, u32 t, u32 nh, u32 hs, float scale,
    u32 threshold, float kept, u32 key) {
    attention_backward<64, false>(dqkv, dout, qkv, lse, d, t, nh, hs, scale, Dropout{threshold, kept, key});
}
KERNEL BOUNDS(THREADS, 2) attention_backward_queries_96(
    bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* d, u32 t, u32 nh, u32 hs, float scale,
    u32 threshold, float kept, u32 key) {
    attention_backward<96, false>(dqkv, dout, qkv, lse, d, t, nh, hs, scale, Dropout{threshold, kept, key});
}
KERNEL BOUNDS(THREADS, 2) attention_backward_queries_128(
    bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* d, u32 t, u32 nh, u32 hs, float scale,
    u32 threshold, float kept, u32 key) {
    attention_backward<128, false>(dqkv, dout, qkv, lse, d, t, nh, hs, scale, Dropout{threshold, kept, key});
}
