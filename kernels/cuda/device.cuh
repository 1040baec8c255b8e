// What every kernel is written with: numbers, copies, matrix products and reductions, each once.
//
// There are two bodies. On a card they are PTX for sm_80 and above. In the emulator (`kernels/emulator`) the same kernels
// are plain C++, and these names belong to a card that is simulated: it knows who reads and writes what, and when.
// Kernels include this file and nothing else, and use nothing of CUDA's that is not named here or there.
//
// Names of CUDA's own: threadIdx, blockIdx, blockDim, gridDim, __syncthreads(), __syncwarp(), __shfl_sync(),
// __shfl_xor_sync(), float2, float4, uint2, uint4, and fmaf, fmaxf, fminf, fabsf, sqrtf of the mathematics.

#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// A bfloat16 as it is stored: the upper half of a float.
struct bf16 {
    u16 bits;
};

// Threads of a warp.
constexpr u32 WARP = 32;
// All lanes of a warp, for what takes a mask.
constexpr u32 ALL_LANES = 0xffffffffu;

#ifdef HEADROOM_EMULATOR
#include "emulator.h"
#else

#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__
// Threads of a block at most, and blocks that have to fit a multiprocessor: what registers are shared out by. Between
// KERNEL and the name. Their product is 1536 at most, what multiprocessors of GeForces hold.
#define BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#define UNROLL _Pragma("unroll")

// The block's shared memory, as the launch sized it: a struct of the kernel's own.
template <typename Shared>
DEVICE Shared& shared_memory() {
    extern __shared__ __align__(128) u8 shared_bytes[];
    return *reinterpret_cast<Shared*>(shared_bytes);
}

DEVICE float float_of_bits(u32 bits) { return __uint_as_float(bits); }
DEVICE u32 bits_of_float(float value) { return __float_as_uint(value); }

// To the nearest, ties to even.
DEVICE bf16 to_bf16(float value) {
    bf16 out;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(value));
    return out;
}

// Two of them in one register, the first in the lower half.
DEVICE u32 pack(float first, float second) {
    u32 out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(second), "f"(first));
    return out;
}

// 2^x, of two bits less than a float has.
DEVICE float fast_exp2(float x) {
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

// log2(x), likewise.
DEVICE float fast_log2(float x) {
    float out;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

// tanh(x), of an error below 2^-10.9: what a bfloat16 keeps.
DEVICE float fast_tanh(float x) {
    float out;
    asm("tanh.approx.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

// 1 / sqrt(x).
DEVICE float reciprocal_sqrt(float x) { return rsqrtf(x); }

// 1 / x, of one bit less than a float has.
DEVICE float fast_reciprocal(float x) {
    float out;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

// 16 bytes that are read once, or written and not read before much else is: they make room for others in the caches
// first. The address is a multiple of 16.
DEVICE uint4 load_once(const uint4* from) {
    uint4 out;
    asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
                 : "l"(from)
                 : "memory");
    return out;
}
DEVICE void store_once(uint4* to, uint4 value) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x), "r"(value.y), "r"(value.z),
                 "r"(value.w)
                 : "memory");
}

// Hides from the compiler that these are the bits of before, so that it unpacks them anew where they are used again
// instead of holding what it unpacked, which takes twice the registers.
DEVICE void held_packed(uint4& packed) {
    asm volatile("" : "+r"(packed.x), "+r"(packed.y), "+r"(packed.z), "+r"(packed.w));
}

// An address of shared memory as instructions take it.
DEVICE u32 shared_address(const void* pointer) { return static_cast<u32>(__cvta_generic_to_shared(pointer)); }

// Begins to copy 16 bytes from global to shared memory, past the first cache; with `valid` false 16 bytes of 0. Both
// addresses are multiples of 16. Nothing has arrived before `cp_async_wait`, and for other threads not before a barrier
// after it.
DEVICE void cp_async_16(void* to_shared, const void* from_global, bool valid = true) {
    const u32 bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to_shared)), "l"(from_global),
                 "r"(bytes)
                 : "memory");
}

// Ends a group of this thread's copies.
DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most so many of this thread's newest groups are still on their way.
template <int GROUPS>
DEVICE void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

// Loads four 8 x 8 matrices of bfloat16 from shared memory. Lane i gives the address of row i % 8 of matrix i / 8, a
// multiple of 16; lane i gets elements 2 * (i % 4) and the next of row i / 4 of each.
DEVICE void ldmatrix_x4(u32 (&out)[4], const bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// The same of their transposes: lane i gets elements of column i / 4.
DEVICE void ldmatrix_x4_trans(u32 (&out)[4], const bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Two matrices, by the addresses of lanes 0 to 15.
DEVICE void ldmatrix_x2(u32 (&out)[2], const bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(out[0]), "=r"(out[1])
                 : "r"(shared_address(row))
                 : "memory");
}

// The same of their transposes.
DEVICE void ldmatrix_x2_trans(u32 (&out)[2], const bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(out[0]), "=r"(out[1])
                 : "r"(shared_address(row))
                 : "memory");
}

// d += a x b of a warp: a (16, 16) and b (16, 8) of bfloat16, d (16, 8) of float. With g = lane / 4 and t = lane % 4:
// a holds rows g, g + 8, g, g + 8 at columns 2t and the next, the last two at columns 8 further; b rows 2t and the next,
// then 8 further, of column g; d row g at columns 2t and the next, then row g + 8.
DEVICE void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif

DEVICE float to_float(bf16 value) { return float_of_bits(static_cast<u32>(value.bits) << 16); }
// The two of a register.
DEVICE float first_of(u32 pair) { return float_of_bits(pair << 16); }
DEVICE float second_of(u32 pair) { return float_of_bits(pair & 0xffff0000u); }

// What one access moves: eight bfloat16, the first in the lower half of x. Addresses are multiples of 16.
constexpr u32 EIGHT = 8;

DEVICE uint4 load_eight(const bf16* from) { return *reinterpret_cast<const uint4*>(from); }
DEVICE void store_eight(bf16* to, uint4 packed) { *reinterpret_cast<uint4*>(to) = packed; }

DEVICE void unpack_eight(float (&out)[EIGHT], uint4 packed) {
    out[0] = first_of(packed.x);
    out[1] = second_of(packed.x);
    out[2] = first_of(packed.y);
    out[3] = second_of(packed.y);
    out[4] = first_of(packed.z);
    out[5] = second_of(packed.z);
    out[6] = first_of(packed.w);
    out[7] = second_of(packed.w);
}

DEVICE uint4 pack_eight(const float (&x)[EIGHT]) {
    return uint4{pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7])};
}

// The same of 32 bits each, in two accesses.
DEVICE void add_to_eight(float* to, const float (&x)[EIGHT]) {
    float4* pair = reinterpret_cast<float4*>(to);
    const float4 a = pair[0];
    const float4 b = pair[1];
    pair[0] = float4{a.x + x[0], a.y + x[1], a.z + x[2], a.w + x[3]};
    pair[1] = float4{b.x + x[4], b.y + x[5], b.z + x[6], b.w + x[7]};
}

DEVICE u32 lane_of_thread() { return threadIdx.x % WARP; }
DEVICE u32 warp_of_thread() { return threadIdx.x / WARP; }

// The sum over a warp, in every lane alike: the order is fixed.
DEVICE float warp_sum(float value) {
    UNROLL
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    }
    return value;
}

// The largest over a warp, in every lane.
DEVICE float warp_max(float value) {
    UNROLL
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    }
    return value;
}

// The sum over a block of THREADS threads, in every thread alike, by warps and then by their number. `partial` is shared
// and may be used again after the block's next barrier.
template <u32 THREADS>
DEVICE float block_sum(float value, float (&partial)[THREADS / WARP]) {
    value = warp_sum(value);
    if (lane_of_thread() == 0) {
        partial[warp_of_thread()] = value;
    }
    __syncthreads();
    float sum = 0.0f;
    UNROLL
    for (u32 warp = 0; warp < THREADS / WARP; warp++) {
        sum += partial[warp];
    }
    return sum;
}

// The largest over a block, likewise.
template <u32 THREADS>
DEVICE float block_max(float value, float (&partial)[THREADS / WARP]) {
    value = warp_max(value);
    if (lane_of_thread() == 0) {
        partial[warp_of_thread()] = value;
    }
    __syncthreads();
    float most = partial[0];
    UNROLL
    for (u32 warp = 1; warp < THREADS / WARP; warp++) {
        most = fmaxf(most, partial[warp]);
    }
    return most;
}

// Reduces two values at once over each group of WARPS neighbouring warps, in every thread of the group alike, by warps
// and then by their number. A group of one warp needs no memory; else every thread of the block has to come here, and
// `partial` may be used again after the block's next barrier.
template <u32 WARPS, u32 ALL_WARPS>
DEVICE float2 group_sum(float2 value, float2 (&partial)[ALL_WARPS]) {
    value.x = warp_sum(value.x);
    value.y = warp_sum(value.y);
    if (WARPS == 1) {
        return value;
    }
    if (lane_of_thread() == 0) {
        partial[warp_of_thread()] = value;
    }
    __syncthreads();
    float2 sum = float2{0.0f, 0.0f};
    const u32 first = warp_of_thread() / WARPS * WARPS;
    UNROLL
    for (u32 warp = 0; warp < WARPS; warp++) {
        sum.x += partial[first + warp].x;
        sum.y += partial[first + warp].y;
    }
    return sum;
}

// Where `column` of `row` lies, in elements, in a tile of shared memory whose rows have WIDTH bfloat16, a multiple of
// 32. Pieces of 8 columns (16 bytes) change places within a row, so that the 8 rows of a matrix that ldmatrix reads, and
// the 8 pieces of a row that a copy writes, each lie in banks of their own. A piece's columns stay in order.
template <u32 WIDTH>
DEVICE u32 swizzled(u32 row, u32 column) {
    static_assert(WIDTH % 32 == 0);
    const u32 moved = WIDTH % 64 == 0 ? row % 8 : row / 2 % 4;
    return row * WIDTH + (column ^ (moved * 8));
}

// Operands of mma from such a tile: 16 rows and 16 columns from (row, column), which are multiples of 8. `load_a` gives
// the first operand as it stands, and `load_a_transposed` its transpose: the tile's columns are the operand's rows.
template <u32 WIDTH>
DEVICE void load_a(u32 (&out)[4], const bf16* tile, u32 row, u32 column) {
    const u32 lane = lane_of_thread();
    ldmatrix_x4(out, tile + swizzled<WIDTH>(row + lane % 16, column + lane / 16 * 8));
}
template <u32 WIDTH>
DEVICE void load_a_transposed(u32 (&out)[4], const bf16* tile, u32 row, u32 column) {
    const u32 lane = lane_of_thread();
    ldmatrix_x4_trans(out, tile + swizzled<WIDTH>(row + lane % 8 + lane / 16 * 8, column + lane / 8 % 2 * 8));
}

// Two second operands of 16 x 8 beside each other, as [operand][register]: `load_b` where the tile's rows are the
// operands' rows, and `load_b_transposed` where they are their columns.
template <u32 WIDTH>
DEVICE void load_b(u32 (&out)[2][2], const bf16* tile, u32 row, u32 column) {
    const u32 lane = lane_of_thread();
    u32 all[4];
    ldmatrix_x4_trans(all, tile + swizzled<WIDTH>(row + lane % 16, column + lane / 16 * 8));
    out[0][0] = all[0], out[0][1] = all[1], out[1][0] = all[2], out[1][1] = all[3];
}
template <u32 WIDTH>
DEVICE void load_b_transposed(u32 (&out)[2][2], const bf16* tile, u32 row, u32 column) {
    const u32 lane = lane_of_thread();
    u32 all[4];
    ldmatrix_x4(all, tile + swizzled<WIDTH>(row + lane % 8 + lane / 16 * 8, column + lane / 8 % 2 * 8));
    out[0][0] = all[0], out[0][1] = all[1], out[1][0] = all[2], out[1][1] = all[3];
}

// A block of THREADS threads begins to copy ROWS x WIDTH into such a tile, from row `first` of rows that lie `stride`
// elements apart. Of these there are `rows`, of `columns` elements each, a multiple of 8; what is past them is 0.
template <u32 WIDTH, u32 ROWS, u32 THREADS>
DEVICE void copy_rows(bf16* tile, const bf16* from, u64 stride, u32 first, u32 rows, u32 columns) {
    static_assert(ROWS * WIDTH / 8 % THREADS == 0);
    UNROLL
    for (u32 i = 0; i < ROWS * WIDTH / 8 / THREADS; i++) {
        const u32 piece = i * THREADS + threadIdx.x;
        const u32 row = piece / (WIDTH / 8);
        const u32 column = piece % (WIDTH / 8) * 8;
        const bf16* address = from + (first + row) * stride + column;
        cp_async_16(tile + swizzled<WIDTH>(row, column), address, first + row < rows && column < columns);
    }
}

// The first operand of mma that two results beside each other are, 16 x 8 each: a lane has the same places of both.
DEVICE void operand_of_results(u32 (&a)[4], const float (&left)[4], const float (&right)[4]) {
    a[0] = pack(left[0], left[1]);
    a[1] = pack(left[2], left[3]);
    a[2] = pack(right[0], right[1]);
    a[3] = pack(right[2], right[3]);
}

// The normal distribution at x.
struct Normal {
    // The probability of what is below x.
    float below;
    float density;
};

// Its tail is a polynomial of 1 / (1 + 0.39 |x|) times the density's exponential, fitted for the smallest relative
// error: below 6.1e-5 wherever it is a float, which is a sixtieth of what rounding to bfloat16 adds.
DEVICE Normal normal_distribution(float x) {
    const float size = fabsf(x);
    const float t = fast_reciprocal(fmaf(0.39f, size, 1.0f));
    const float bell = fast_exp2(size * size * -0.72134752f);
    float tail = fmaf(-0.08722582f, t, 0.16513658f);
    tail = fmaf(tail, t, 0.10806109f);
    tail = fmaf(tail, t, 0.15852675f);
    tail = fmaf(tail, t, 0.15547151f) * t;
    // Said as one operation, so that the compiler has no choice in one kernel to do what it does not in another: they
    // have to give the same bits.
    const float below = fmaf(x < 0.0f ? tail : -tail, bell, x < 0.0f ? 0.0f : 1.0f);
    return Normal{below, 0.39894228f * bell};
}

// x Phi(x): `cpu::gelu::gelu_forward`.
DEVICE float gelu(float x) { return x * normal_distribution(x).below; }

// Its derivative.
DEVICE float gelu_derivative(float x) {
    const Normal normal = normal_distribution(x);
    return fmaf(x, normal.density, normal.below);
}

// `rng::hash`: two rounds of MurmurHash3's finaliser with the key between.
DEVICE u32 hash_mixed(u32 h) {
    h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
    h = (h ^ (h >> 13)) * 0xC2B2AE35u;
    return h ^ (h >> 16);
}
DEVICE u32 hash(u32 key, u32 index) {
    return hash_mixed(hash_mixed((index * 0x9E3779B9u) ^ key) + (key << 16 | key >> 16));
}

// `cpu::dropout`: an element whose hash is below `threshold` is dropped, and the rest multiplied with `scale`. With a
// threshold of 0 there is no dropout, and `scale` is 1.
struct Dropout {
    u32 threshold;
    float scale;
    u32 key;
};

// What element `index` is multiplied with.
DEVICE float dropout_factor(Dropout dropout, u32 index) {
    return hash(dropout.key, index) < dropout.threshold ? 0.0f : dropout.scale;
}

// The same of eight neighbouring elements, `index` being the first's. A mask of more than 2^32 elements repeats itself.
DEVICE void drop_eight(float (&x)[EIGHT], Dropout dropout, u64 index) {
    if (dropout.threshold == 0) {
        return;
    }
    UNROLL
    for (u32 i = 0; i < EIGHT; i++) {
        x[i] *= dropout_factor(dropout, static_cast<u32>(index) + i);
    }
}
