// Softmax and cross-entropy of a chunk of rows: each row's loss, and in the same pass the logits' gradient in place
// of the logits, so that the logits of a batch are never held whole. The products around it are others' work.
//
// Bytes an element: 2 read for the loss; with the gradient 2 more read, which the second cache still has, and 2
// written.

#include "device.cuh"

// Threads of a block of both.
constexpr u32 THREADS = 512;
constexpr float LOG2_E = 1.4426950409f;
constexpr float LN_2 = 0.6931471806f;
// Below every logit, and still finite where it is subtracted from one.
constexpr float LOWEST = -1e37f;
// The target of a row that does not count.
constexpr u32 IGNORED = 0xffffffffu;

struct Shared {
    float2 partial[THREADS / WARP];
};
static_assert(sizeof(Shared) == 128);

// The largest of some numbers in units of log 2, and the sum of 2^(number - largest).
struct Sum {
    float largest;
    float sum;
};

DEVICE Sum merged(Sum a, Sum b) {
    const float largest = fmaxf(a.largest, b.largest);
    return Sum{largest, a.sum * fast_exp2(a.largest - largest) + b.sum * fast_exp2(b.largest - largest)};
}

// Over each group of WARPS warps, in every thread alike and always in one order.
template <u32 WARPS>
DEVICE Sum group_merged(Sum mine) {
    UNROLL
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        const float largest = __shfl_xor_sync(ALL_LANES, mine.largest, distance);
        const float sum = __shfl_xor_sync(ALL_LANES, mine.sum, distance);
        mine = merged(mine, Sum{largest, sum});
    }
    if (WARPS == 1) {
        return mine;
    }
    Shared& shared = shared_memory<Shared>();
    if (lane_of_thread() == 0) {
        shared.partial[warp_of_thread()] = float2{mine.largest, mine.sum};
    }
    __syncthreads();
    const u32 first = warp_of_thread() / WARPS * WARPS;
    Sum all = Sum{LOWEST, 0.0f};
    UNROLL
    for (u32 warp = 0; warp < WARPS; warp++) {
        all = merged(all, Sum{shared.partial[first + warp].x, shared.partial[first + warp].y});
    }
    return all;
}

template <u32 WARPS>
DEVICE void classify(float* losses, bf16* logits, const u32* targets, u32 n, u32 v, u32 padded, float dloss,
                     u32 with_gradient) {
    constexpr u32 LANES = WARPS * WARP;
    const u32 lane = threadIdx.x % LANES;
    const u32 row = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    const bool valid = row < n;
    const u32 target = valid ? targets[row] : IGNORED;
    bf16* mine = logits + static_cast<u64>(row) * padded;
    Sum sum = Sum{LOWEST, 0.0f};
    float at_target = 0.0f;
    for (u32 column = lane * EIGHT; valid && column < v; column += LANES * EIGHT) {
        float x[EIGHT];
        unpack_eight(x, load_eight(mine + column));
        float largest = sum.largest;
        UNROLL
        for (u32 j = 0; j < EIGHT; j++) {
            at_target = column + j == target ? x[j] : at_target;
            // What stands behind the vocabulary is no logit.
            x[j] = column + j < v ? x[j] * LOG2_E : LOWEST;
            largest = fmaxf(largest, x[j]);
        }
        sum.sum *= fast_exp2(sum.largest - largest);
        sum.largest = largest;
        UNROLL
        for (u32 j = 0; j < EIGHT; j++) {
            sum.sum += fast_exp2(x[j] - largest);
        }
    }
    const Sum all = group_merged<WARPS>(sum);
    const float lse = all.largest + fast_log2(all.sum);
    // The thread that saw the target's logit; an ignored row counts 0, and a target that is no column gives NaN.
    if (valid && target < v && target / EIGHT % LANES == lane) {
        losses[row] = fmaf(lse, LN_2, -at_target);
    }
    if (valid && target >= v && lane == 0) {
        losses[row] = target == IGNORED ? 0.0f : float_of_bits(0x7fffffffu);
    }
    if (with_gradient != 0) {
        const float scale = target == IGNORED ? 0.0f : dloss;
        for (u32 column = lane * EIGHT; valid && column < padded; column += LANES * EIGHT) {
            float x[EIGHT];
            unpack_eight(x, load_eight(mine + column));
            UNROLL
            for (u32 j = 0; j < EIGHT; j++) {
                const float onehot = column + j == target ? 1.0f : 0.0f;
                const float d = (fast_exp2(fmaf(x[j], LOG2_E, -lse)) - onehot) * scale;
                x[j] = column + j < v && scale != 0.0f ? d : 0.0f;
            }
            store_eight(mine + column, pack_eight(x));
        }
    }
}

// Each row's loss, the negative logarithm of its target's probability, and with `with_gradient` not 0 the gradient
// (softmax - onehot) * dloss in place of the logits, 0 behind the vocabulary. A row whose target is 2^32 - 1 has loss
// and gradient 0. Shapes: targets (N), logits (N, Vp) of which the first V columns count -> losses (N), logits (N,
// Vp), Vp a multiple of 8. A row is the work of a warp.
KERNEL BOUNDS(THREADS, 2) classifier_1(float* losses, bf16* logits, const u32* targets, u32 n, u32 v, u32 padded,
                                       float dloss, u32 with_gradient) {
    classify<1>(losses, logits, targets, n, v, padded, dloss, with_gradient);
}

// The same for a vocabulary of thousands: a row is the work of a block.
KERNEL BOUNDS(THREADS, 2) classifier_16(float* losses, bf16* logits, const u32* targets, u32 n, u32 v, u32 padded,
                                        float dloss, u32 with_gradient) {
    classify<16>(losses, logits, targets, n, v, padded, dloss, with_gradient);
}
