// AdamW over every tensor of a model in one launch: moments and masters of 32 bits, the weights that the model
// computes with of 16. Clipping needs nothing of the host: the gradients' norm is read where it was computed.
//
// Bytes an element: 4 of its gradient, its master and each moment read, 4 of master and moments and 2 of its weight
// written; without masters 22 instead of 30.

#include "device.cuh"

// Threads of a block, and elements of one tensor that are its work.
constexpr u32 THREADS = 256;
constexpr u32 CHUNK = 8192;
// Elements that a thread moves at once.
constexpr u32 FOUR = 4;

// A tensor's row of the table, as numbers of 64 bits: addresses of its weight (bf16), master (float, or 0), moments
// and gradient (float), its elements, the first one's number among all, and the number of its first block with what
// decays in the upper half. Addresses are multiples of 16 and elements of 4.
constexpr u32 ROW = 8;
constexpr u32 ELEMENTS = 5;
constexpr u32 FIRST_ELEMENT = 6;
constexpr u32 FIRST_BLOCK = 7;

struct Settings {
    float gradient_scale;
    float beta1;
    float rest1;
    float beta2;
    float rest2;
    float step_size;
    float inverse_root;
    float eps;
    float decay;
};

DEVICE void unpack_four(float (&out)[FOUR], uint4 bits) {
    out[0] = float_of_bits(bits.x);
    out[1] = float_of_bits(bits.y);
    out[2] = float_of_bits(bits.z);
    out[3] = float_of_bits(bits.w);
}

DEVICE uint4 pack_four(const float (&x)[FOUR]) {
    return uint4{bits_of_float(x[0]), bits_of_float(x[1]), bits_of_float(x[2]), bits_of_float(x[3])};
}

// What is done to one element; source: arXiv:1711.05101, in the order of torch.optim.AdamW.
DEVICE void update(float& param, float& m, float& v, float grad, const Settings& by) {
    grad *= by.gradient_scale;
    m = by.beta1 * m + by.rest1 * grad;
    v = by.beta2 * v + by.rest2 * grad * grad;
    param = param * by.decay - by.step_size * m / (sqrtf(v) * by.inverse_root + by.eps);
}

// To one of the two neighbours, the nearer the likelier: what lies below a bfloat16's last bit carries into it where
// random bits push it over. Infinity and NaN stay what they are.
DEVICE float rounded_stochastically(float value, u32 random) {
    const u32 bits = bits_of_float(value);
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    return finite ? float_of_bits((bits + (random & 0xffffu)) & 0xffff0000u) : value;
}

// The row whose work this block is: the last that begins at it or before.
DEVICE const u64* row_of_block(const u64* tensors, u32 n_tensors) {
    u32 first = 0;
    u32 end = n_tensors;
    while (end - first > 1) {
        const u32 middle = (first + end) / 2;
        if (static_cast<u32>(tensors[middle * ROW + FIRST_BLOCK]) <= blockIdx.x) {
            first = middle;
        } else {
            end = middle;
        }
    }
    return tensors + first * ROW;
}

// Updates every tensor's moments, master and weight from its gradient, times `gradient_scale`. With `grad_clip` above
// 0 it is also scaled so that a norm of norm[0] becomes at most that; else norm may be null. With `stochastic` not 0
// weights are rounded by random bits, which are a hash of `key`, another one each step, and the element's number;
// else to the nearest. rest1 and rest2 are what the betas lack to 1, step_size the learning rate by the first
// moment's correction, inverse_root the inverse of the second one's root, and decay what decaying tensors are
// multiplied with. Shapes: tensors (n_tensors, 8), norm (1).
KERNEL BOUNDS(THREADS, 4) adamw_update(const u64* tensors, u32 n_tensors, const float* norm, float grad_clip,
                                       float gradient_scale, float beta1, float rest1, float beta2, float rest2,
                                       float step_size, float inverse_root, float eps, float decay, u32 stochastic,
                                       u32 key) {
    const u64* row = row_of_block(tensors, n_tensors);
    bf16* weight = reinterpret_cast<bf16*>(row[0]);
    float* master = reinterpret_cast<float*>(row[1]);
    float* m = reinterpret_cast<float*>(row[2]);
    float* v = reinterpret_cast<float*>(row[3]);
    const float* grad = reinterpret_cast<const float*>(row[4]);
    const u64 n = row[ELEMENTS];
    const u64 first_element = row[FIRST_ELEMENT];
    const bool decays = row[FIRST_BLOCK] >> 32 != 0;
    const float clip = grad_clip > 0.0f ? fminf(grad_clip / (norm[0] + 1e-6f), 1.0f) : 1.0f;
    const Settings settings = Settings{gradient_scale * clip, beta1,        rest1, beta2, rest2,
                                       step_size,             inverse_root, eps,   decays ? decay : 1.0f};
    const u64 start = static_cast<u64>(blockIdx.x - static_cast<u32>(row[FIRST_BLOCK])) * CHUNK;
    const u64 end = n - start < CHUNK ? n : start + CHUNK;
    for (u64 i = start + threadIdx.x * FOUR; i < end; i += THREADS * FOUR) {
        float params[FOUR];
        float ms[FOUR];
        float vs[FOUR];
        float grads[FOUR];
        unpack_four(grads, load_once(reinterpret_cast<const uint4*>(grad + i)));
        unpack_four(ms, load_once(reinterpret_cast<const uint4*>(m + i)));
        unpack_four(vs, load_once(reinterpret_cast<const uint4*>(v + i)));
        if (master != nullptr) {
            unpack_four(params, load_once(reinterpret_cast<const uint4*>(master + i)));
        } else {
            const uint2 pairs = *reinterpret_cast<const uint2*>(weight + i);
            params[0] = first_of(pairs.x);
            params[1] = second_of(pairs.x);
            params[2] = first_of(pairs.y);
            params[3] = second_of(pairs.y);
        }
        float rounded[FOUR];
        UNROLL
        for (u32 j = 0; j < FOUR; j++) {
            update(params[j], ms[j], vs[j], grads[j], settings);
            rounded[j] = params[j];
            if (stochastic != 0) {
                rounded[j] = rounded_stochastically(params[j], hash(key, static_cast<u32>(first_element + i) + j));
            }
        }
        store_once(reinterpret_cast<uint4*>(m + i), pack_four(ms));
        store_once(reinterpret_cast<uint4*>(v + i), pack_four(vs));
        if (master != nullptr) {
            store_once(reinterpret_cast<uint4*>(master + i), pack_four(params));
        }
        *reinterpret_cast<uint2*>(weight + i) = uint2{pack(rounded[0], rounded[1]), pack(rounded[2], rounded[3])};
    }
}
