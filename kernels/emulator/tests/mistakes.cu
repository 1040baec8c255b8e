// Kernels with one mistake each, and the same without it: what the emulator has to find, and what it has to let pass.

#include "device.cuh"

constexpr u32 THREADS = 64;

struct Shared {
    float values[THREADS];
    alignas(16) bf16 tile[16][16];
};

// Each thread reads what its neighbour wrote.
KERNEL neighbour(float* out, const float* inp, u32 barrier) {
    Shared& shared = shared_memory<Shared>();
    shared.values[threadIdx.x] = inp[threadIdx.x];
    if (barrier == 2) {
        __syncthreads();
    } else if (barrier == 1) {
        __syncwarp();
    }
    out[threadIdx.x] = shared.values[(threadIdx.x + 1) % THREADS];
}

// Each thread reads what its neighbour in the warp wrote.
KERNEL neighbour_in_warp(float* out, const float* inp, u32 barrier) {
    Shared& shared = shared_memory<Shared>();
    shared.values[threadIdx.x] = inp[threadIdx.x];
    if (barrier == 1) {
        __syncwarp();
    }
    out[threadIdx.x] = shared.values[threadIdx.x ^ 1];
}

// A loop that writes before all have read what was there.
KERNEL overwritten(float* out, u32 barrier) {
    Shared& shared = shared_memory<Shared>();
    float sum = 0.0f;
    for (u32 i = 0; i < 3; i++) {
        shared.values[threadIdx.x] = static_cast<float>(i);
        __syncthreads();
        sum += shared.values[(threadIdx.x + 1) % THREADS];
        if (barrier) {
            __syncthreads();
        }
    }
    out[threadIdx.x] = sum;
}

// Blocks that write the same element.
KERNEL two_blocks(float* out) {
    if (threadIdx.x == 0) {
        out[0] = static_cast<float>(blockIdx.x);
    }
}

// Reads an element that is `at` further than its own.
KERNEL further(float* out, const float* inp, u32 at) { out[threadIdx.x] = inp[threadIdx.x + at]; }

// Two floats at once, `at` bytes into the array.
KERNEL pair_at(float* out, const u8* inp, u32 at) {
    const float2 pair = *reinterpret_cast<const float2*>(inp + at);
    out[threadIdx.x] = pair.x + pair.y;
}

// Half of the block comes to the barrier, and half has another one.
KERNEL divergent(float* out, u32 how) {
    if (threadIdx.x < THREADS / 2) {
        __syncthreads();
    } else if (how == 1) {
        __syncthreads();
    }
    out[threadIdx.x] = 1.0f;
}

// Lanes that left are named in a shuffle.
KERNEL gone(float* out, u32 leave) {
    if (leave && threadIdx.x % WARP == 3) {
        return;
    }
    out[threadIdx.x] = warp_sum(1.0f);
}

// A tile comes by asynchronous copies.
KERNEL copied(float* out, const bf16* inp, u32 wait, u32 barrier) {
    Shared& shared = shared_memory<Shared>();
    const u32 row = threadIdx.x / 2 % 16, column = threadIdx.x % 2 * 8;
    if (threadIdx.x < WARP) {
        cp_async_16(&shared.tile[row][column], inp + row * 16 + column);
    }
    cp_async_commit();
    if (wait) {
        cp_async_wait<0>();
    }
    if (barrier) {
        __syncthreads();
    }
    u32 matrices[4];
    const u32 lane = lane_of_thread();
    ldmatrix_x4(matrices, &shared.tile[lane % 16][lane / 16 * 8]);
    out[threadIdx.x] = first_of(matrices[0]) + second_of(matrices[3]);
}

// A row of a matrix that does not begin at a multiple of 16 bytes.
KERNEL crooked(float* out) {
    Shared& shared = shared_memory<Shared>();
    for (u32 i = threadIdx.x; i < 256; i += THREADS) {
        shared.tile[i / 16][i % 16] = to_bf16(1.0f);
    }
    __syncthreads();
    u32 matrices[2];
    ldmatrix_x2(matrices, &shared.tile[lane_of_thread() % 8][4]);
    out[threadIdx.x] = first_of(matrices[0]);
}

// d = a x b by one warp: a (16, 16), b (8, 16), so that both are read along their rows.
KERNEL product(float* out, const bf16* a, const bf16* b) {
    const u32 lane = lane_of_thread(), g = lane / 4, t = lane % 4;
    const u32* a_pairs = reinterpret_cast<const u32*>(a);
    const u32* b_pairs = reinterpret_cast<const u32*>(b);
    const u32 a_registers[4] = {a_pairs[g * 8 + t], a_pairs[(g + 8) * 8 + t], a_pairs[g * 8 + t + 4],
                                a_pairs[(g + 8) * 8 + t + 4]};
    const u32 b_registers[2] = {b_pairs[g * 8 + t], b_pairs[g * 8 + t + 4]};
    float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    mma_m16n8k16(d, a_registers, b_registers);
    out[g * 8 + 2 * t] = d[0];
    out[g * 8 + 2 * t + 1] = d[1];
    out[(g + 8) * 8 + 2 * t] = d[2];
    out[(g + 8) * 8 + 2 * t + 1] = d[3];
}
