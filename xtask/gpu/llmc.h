// What llm.c is compiled with besides: cudaMemAdvise as it was before CUDA 13, with a card's number, -1 being the host.
#pragma once
#include <cuda_runtime_api.h>
#if CUDART_VERSION >= 13000
static inline cudaError_t cudaMemAdvise(const void* at, size_t bytes, cudaMemoryAdvise advice, int device) {
    cudaMemLocation place = {};
    place.type = device < 0 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
    place.id = device < 0 ? 0 : device;
    return cudaMemAdvise(at, bytes, advice, place);
}
#endif
