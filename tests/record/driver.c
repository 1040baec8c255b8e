/* A CUDA runtime with one device whose memory has no end: what PyTorch's caching allocator calls, and nothing else.
 *
 * cc -shared -fPIC -O1 -o driver.so driver.c; loaded by LD_PRELOAD, its functions precede those of libcudart.
 * Addresses descend, as those of a GPU do in the first measurements (tests/golden/measured/models).
 */
#include <stdint.h>
#include <string.h>

typedef int status;

static uint64_t next_address = 1ull << 46;

status cudaGetDeviceCount(int *count) { *count = 1; return 0; }
status cudaGetDevice(int *device) { *device = 0; return 0; }
status cudaSetDevice(int device) { (void)device; return 0; }
status cudaDriverGetVersion(int *version) { *version = 13000; return 0; }
status cudaRuntimeGetVersion(int *version) { *version = 13000; return 0; }
status cudaGetLastError(void) { return 0; }
status cudaPeekAtLastError(void) { return 0; }
status cudaDeviceSynchronize(void) { return 0; }
status cudaStreamSynchronize(void *stream) { (void)stream; return 0; }
status cudaStreamIsCapturing(void *stream, int *capturing) { (void)stream; *capturing = 0; return 0; }
status cudaStreamGetCaptureInfo(void *stream, int *capturing, uint64_t *id) {
  (void)stream; *capturing = 0; if (id) *id = 0; return 0;
}
status cudaThreadExchangeStreamCaptureMode(int *mode) { (void)mode; return 0; }
status cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return 0; }
status cudaMemGetInfo(size_t *available, size_t *total) { *available = *total = 1ull << 45; return 0; }
/* Zeros are enough: the allocator reads no property. */
status cudaGetDeviceProperties(char *properties, int device) { (void)device; memset(properties, 0, 288); return 0; }

status cudaMalloc(void **address, size_t bytes) {
  next_address -= (bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20);
  *address = (void *)next_address;
  return 0;
}
status cudaFree(void *address) { (void)address; return 0; }

/* Of the driver, which PyTorch opens as libcuda.so.1: whether a context exists. */
status cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  (void)device;
  *flags = 0;
  *active = 1;
  return 0;
}
