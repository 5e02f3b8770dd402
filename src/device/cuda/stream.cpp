#include "device/cuda/stream.h"

#include <algorithm>

#include "base/error.h"

namespace temper::device {
namespace {

constexpr int kLowestCapability = 80;

}  // namespace

int num_gpus() {
  driver();
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  return std::min(count, kMaxGpus);
}

void require_supported(int index) {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index), "cudaDeviceGetAttribute");
  if (const std::string why = why_unsupported(index, major, minor); !why.empty()) fail_resources("{}", why);
}

std::string why_unsupported(int gpu, int major, int minor) {
  if (10 * major + minor >= kLowestCapability) return "";
  return fmt::format(
      "[cuda] GPU {} has compute capability {}.{}; Temper needs {}.{} or later: use another device", gpu,
      major, minor, kLowestCapability / 10, kLowestCapability % 10);
}

int multiprocessors(Device device) {
  if (only_counts(device)) return 132;  // schedules need a number; the memory that they take does not
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device.index),
        "cudaDeviceGetAttribute");
  return count;
}

void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace temper::device
