// Replays events from standard input in PyTorch's own caching allocator, and prints its figures.
//
// A line of the input is a tensor's number and its bytes, or -1 for a free. PYTORCH_ALLOC_CONF has the settings.
// The output is a line: the index of the event that failed or nothing, allocated and reserved bytes then or at the end,
// and the maxima of both, separated by commas. A second line has PyTorch's message of a failure.
// With the argument `settings`, prints the parsed settings instead.
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <exception>
#include <unordered_map>

using c10::CachingAllocator::AcceleratorAllocatorConfig;
namespace cuda = c10::cuda::CUDACachingAllocator;

static std::string first_line(const char* text) {
  const char* end = std::strchr(text, '\n');
  return end ? std::string(text, end) : std::string(text);
}

static int print_settings() {
  std::printf("%zu,%zu,%zu,%.17g,%d,%.17g", AcceleratorAllocatorConfig::large_segment_size(),
              AcceleratorAllocatorConfig::max_split_size(), AcceleratorAllocatorConfig::max_non_split_rounding_size(),
              AcceleratorAllocatorConfig::garbage_collection_threshold(),
              AcceleratorAllocatorConfig::use_expandable_segments(),
              cuda::CUDAAllocatorConfig::per_process_memory_fraction());
  for (size_t divisions : AcceleratorAllocatorConfig::roundup_power2_divisions()) std::printf(",%zu", divisions);
  std::printf("\n");
  return 0;
}

int main(int argc, char** argv) {
  try {
    // `import torch` reads the settings in this order.
    AcceleratorAllocatorConfig::instance();
    cuda::CUDAAllocatorConfig::instance();
    if (argc > 1 && !std::strcmp(argv[1], "settings")) return print_settings();
    cuda::init(1);
  } catch (const std::exception& error) {
    std::printf("refused: %s\n", first_line(error.what()).c_str());
    return 0;
  }
  std::unordered_map<uint64_t, void*> blocks;
  uint64_t tensor = 0;
  int64_t bytes = 0;
  long event = 0;
  std::string failure;
  for (; std::scanf("%" SCNu64 " %" SCNd64, &tensor, &bytes) == 2; ++event) {
    if (bytes < 0) {
      cuda::raw_delete(blocks.at(tensor));
      blocks.erase(tensor);
      continue;
    }
    try {
      blocks[tensor] = cuda::raw_alloc(static_cast<size_t>(bytes));
    } catch (const std::exception& error) {
      failure = first_line(error.what());
      break;
    }
  }
  const auto stats = cuda::getDeviceStats(0);
  const auto& allocated = stats.allocated_bytes[0];
  const auto& reserved = stats.reserved_bytes[0];
  const std::string failed = failure.empty() ? "" : std::to_string(event);
  std::printf("%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "\n", failed.c_str(), allocated.current,
              reserved.current, allocated.peak, reserved.peak);
  if (!failure.empty()) std::printf("%s\n", failure.c_str());
  return 0;
}
