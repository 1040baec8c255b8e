// A CUDA runtime and driver with one device: what PyTorch's caching allocator calls, and nothing else.
//
// Memory is counted and has no contents. DEVICE_LIMIT is what the device hands out in all, DEVICE_TOTAL its reported
// size; both are in bytes and have a default without end. Addresses ascend.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <unordered_map>

namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

const uint64_t ENDLESS = uint64_t{1} << 45;
uint64_t limit() {
  static const uint64_t bytes = from_environment("DEVICE_LIMIT", ENDLESS);
  return bytes;
}
uint64_t total() {
  static const uint64_t bytes = from_environment("DEVICE_TOTAL", ENDLESS);
  return bytes;
}

uint64_t used = 0;
uint64_t next_address = uint64_t{1} << 40;
uint64_t next_handle = 1;
std::unordered_map<uint64_t, uint64_t> sizes;

bool take(uint64_t bytes) {
  if (used + bytes > limit()) return false;
  used += bytes;
  return true;
}

uint64_t reserve(uint64_t bytes) {
  const uint64_t step = uint64_t{2} << 20;
  const uint64_t address = next_address;
  next_address += (bytes + step - 1) / step * step;
  return address;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) { *count = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
  *status = cudaStreamCaptureStatusNone;
  if (id) *id = 0;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t) { return "error"; }
const char* cudaGetErrorString(cudaError_t) { return "error"; }
cudaError_t cudaMemGetInfo(size_t* available, size_t* all) {
  *all = total();
  *available = limit() - used;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  properties->totalGlobalMem = total();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** address, size_t bytes) {
  if (!take(bytes)) return cudaErrorMemoryAllocation;
  const uint64_t start = reserve(bytes);
  sizes[start] = bytes;
  *address = reinterpret_cast<void*>(start);
  return cudaSuccess;
}
cudaError_t cudaFree(void* address) {
  const auto found = sizes.find(reinterpret_cast<uint64_t>(address));
  if (found == sizes.end()) std::abort();
  used -= found->second;
  sizes.erase(found);
  return cudaSuccess;
}

CUresult cuDeviceGet(CUdevice* device, int) { *device = 0; return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) { *value = 1; return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult, const char** text) { *text = "error"; return CUDA_SUCCESS; }
CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *bytes = size_t{2} << 20;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  *address = reserve(bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp*,
                     unsigned long long) {
  if (!take(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = next_handle++;
  sizes[*handle] = bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  used -= sizes.at(handle);
  sizes.erase(handle);
  return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }

// A function that PyTorch does not reach while it replays events.
CUresult unreachable() { std::abort(); }

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned int, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  void* found = dlsym(RTLD_DEFAULT, name);
  *function = found ? found : reinterpret_cast<void*>(&unreachable);
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// Symbols that the library links and the replay does not call.
#define UNUSED(name) __asm__(".globl " #name "\n.type " #name ",@function\n.set " #name ", unreachable\n");
UNUSED(cudaDeviceCanAccessPeer)
UNUSED(cudaDeviceEnablePeerAccess)
UNUSED(cudaDeviceGetDefaultMemPool)
UNUSED(cudaEventCreateWithFlags)
UNUSED(cudaEventDestroy)
UNUSED(cudaEventElapsedTime)
UNUSED(cudaEventQuery)
UNUSED(cudaEventRecord)
UNUSED(cudaEventSynchronize)
UNUSED(cudaFreeAsync)
UNUSED(cudaGraphNodeGetDependencies)
UNUSED(cudaIpcCloseMemHandle)
UNUSED(cudaIpcGetMemHandle)
UNUSED(cudaIpcOpenMemHandle)
UNUSED(cudaMallocAsync)
UNUSED(cudaMemPoolGetAttribute)
UNUSED(cudaMemPoolSetAccess)
UNUSED(cudaMemPoolSetAttribute)
UNUSED(cudaMemPoolTrimTo)
UNUSED(cudaMemcpy)
UNUSED(cudaMemcpyAsync)
UNUSED(cudaMemcpyPeerAsync)
UNUSED(cudaStreamCreateWithPriority)
UNUSED(cudaStreamWaitEvent)
}
