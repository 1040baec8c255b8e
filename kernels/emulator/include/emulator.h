// CUDA C++ on the CPU: the names that `kernels/cuda/device.cuh` and CUDA itself have, for kernels that the emulator runs.
//
// Each thread of a block is a fiber. It runs until it waits: at a barrier, in an operation of its warp, or for a copy.
// Kernels are compiled with the compiler's instrumentation for races, so that each load and store is told too; what is
// told is judged in `src/`. Nothing here is to be fast or clever: it is to be what the PTX in device.cuh does.

#pragma once

#include <cmath>
#include <cstddef>
#include <utility>

#define KERNEL extern "C" void
#define DEVICE static inline __attribute__((always_inline))
#define BOUNDS(threads, blocks)
#define UNROLL

struct dim3 {
    u32 x, y, z;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    u32 x, y;
};
struct alignas(16) uint4 {
    u32 x, y, z, w;
};

// What the emulator does, in Rust. `line` and `file` are where the kernel says it.
extern "C" {
dim3 emulator_thread_index();
dim3 emulator_block_index();
dim3 emulator_block_size();
dim3 emulator_grid_size();
void* emulator_shared_memory(u64 bytes, const char* file, u32 line);
void emulator_sync_threads(const char* file, u32 line);
void emulator_sync_warp(u32 mask, const char* file, u32 line);
u32 emulator_shuffle(u32 mask, u32 value, u32 from_lane, const char* file, u32 line);
void emulator_ldmatrix(u32* out, u32 n, u32 transposed, const void* row, const char* file, u32 line);
void emulator_mma_m16n8k16(float* d, const u32* a, const u32* b, const char* file, u32 line);
void emulator_copy_begin(void* to_shared, const void* from_global, u32 valid, const char* file, u32 line);
void emulator_copy_commit();
void emulator_copy_wait(u32 groups, const char* file, u32 line);
}

#define threadIdx (emulator_thread_index())
#define blockIdx (emulator_block_index())
#define blockDim (emulator_block_size())
#define gridDim (emulator_grid_size())

// Where the caller is, as arguments that no caller gives.
#define WHERE const char *file = __builtin_FILE(), u32 line = __builtin_LINE()

template <typename Shared>
DEVICE Shared& shared_memory(WHERE) {
    return *static_cast<Shared*>(emulator_shared_memory(sizeof(Shared), file, line));
}

DEVICE float float_of_bits(u32 bits) { return __builtin_bit_cast(float, bits); }
DEVICE u32 bits_of_float(float value) { return __builtin_bit_cast(u32, value); }

DEVICE bf16 to_bf16(float value) {
    const u32 bits = bits_of_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return bf16{0x7fff};
    }
    return bf16{static_cast<u16>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

DEVICE u32 pack(float first, float second) {
    return static_cast<u32>(to_bf16(first).bits) | static_cast<u32>(to_bf16(second).bits) << 16;
}

// A result with no more bits than the card's approximation has, so that a tolerance which holds here holds there.
DEVICE float rounded_to_bits(float value, u32 bits) {
    if (value != value) {
        return value;
    }
    const u32 dropped = 23 - bits;
    return float_of_bits((bits_of_float(value) + (1u << (dropped - 1))) & ~((1u << dropped) - 1));
}

DEVICE float flushed(float value) { return std::fabs(value) < 1.17549435e-38f ? 0.0f : value; }
DEVICE float fast_exp2(float x) { return rounded_to_bits(flushed(exp2f(flushed(x))), 21); }
DEVICE float fast_log2(float x) { return rounded_to_bits(log2f(flushed(x)), 21); }
DEVICE float fast_tanh(float x) { return rounded_to_bits(tanhf(x), 11); }
DEVICE float reciprocal_sqrt(float x) { return 1.0f / sqrtf(x); }
DEVICE float fast_reciprocal(float x) { return rounded_to_bits(flushed(1.0f / flushed(x)), 22); }

DEVICE uint4 load_once(const uint4* from) { return *from; }
DEVICE void store_once(uint4* to, uint4 value) { *to = value; }
DEVICE void held_packed(uint4&) {}

DEVICE void __syncthreads(WHERE) { emulator_sync_threads(file, line); }
DEVICE void __syncwarp(u32 mask = 0xffffffffu, WHERE) { emulator_sync_warp(mask, file, line); }

// Of 32 bits, as kernels use them.
template <typename T>
DEVICE T __shfl_sync(u32 mask, T value, u32 lane, WHERE) {
    static_assert(sizeof(T) == 4);
    return __builtin_bit_cast(T, emulator_shuffle(mask, __builtin_bit_cast(u32, value), lane % 32, file, line));
}

template <typename T>
DEVICE T __shfl_xor_sync(u32 mask, T value, u32 lanes, WHERE) {
    static_assert(sizeof(T) == 4);
    const u32 lane = (threadIdx.x % 32) ^ lanes;
    return __builtin_bit_cast(T, emulator_shuffle(mask, __builtin_bit_cast(u32, value), lane, file, line));
}

DEVICE void cp_async_16(void* to_shared, const void* from_global, bool valid = true, WHERE) {
    emulator_copy_begin(to_shared, from_global, valid, file, line);
}
DEVICE void cp_async_commit() { emulator_copy_commit(); }
template <int GROUPS>
DEVICE void cp_async_wait(WHERE) {
    emulator_copy_wait(GROUPS, file, line);
}

// A fiber's registers lie on its stack, and what is read and written there is no access.
#define LDMATRIX(name, n, transposed)                                    \
    DEVICE void name(u32(&out)[n], const bf16* row, WHERE) {             \
        emulator_ldmatrix(out, n, transposed, row, file, line);          \
    }
LDMATRIX(ldmatrix_x4, 4, 0)
LDMATRIX(ldmatrix_x4_trans, 4, 1)
LDMATRIX(ldmatrix_x2, 2, 0)
LDMATRIX(ldmatrix_x2_trans, 2, 1)

DEVICE void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], WHERE) {
    emulator_mma_m16n8k16(d, a, b, file, line);
}

// How the emulator calls a kernel, whose arguments come as the driver's API has them: an array of their addresses.
template <typename... Parameters, size_t... I>
__attribute__((no_sanitize("thread"))) void call_kernel(void (*kernel)(Parameters...), void* const* arguments,
                                                       std::index_sequence<I...>) {
    kernel(*static_cast<Parameters*>(arguments[I])...);
}

template <typename... Parameters>
__attribute__((no_sanitize("thread"))) void call_kernel(void (*kernel)(Parameters...), void* const* arguments) {
    call_kernel(kernel, arguments, std::index_sequence_for<Parameters...>{});
}

// Bytes of each parameter, ended by a 0; returns how many there are.
template <typename... Parameters>
__attribute__((no_sanitize("thread"))) u32 parameter_bytes(void (*)(Parameters...), u32* out, u32 n_max) {
    const u32 all[] = {static_cast<u32>(sizeof(Parameters))..., 0u};
    for (u32 i = 0; i < sizeof...(Parameters) && i < n_max; i++) {
        out[i] = all[i];
    }
    return sizeof...(Parameters);
}
