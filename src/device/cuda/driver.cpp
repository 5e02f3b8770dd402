#include "device/cuda/driver.h"

#include "base/error.h"

namespace temper::device {
namespace {

template <class Function>
void look_up(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSuccess;
  // 12.0: the oldest driver whose memory mapping this code uses.
  check(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result), name);
  if (result != cudaDriverEntryPointSuccess || found == nullptr)
    fail_resources("[cuda] the driver has no {}; install a driver for CUDA 12 or later", name);
  function = reinterpret_cast<Function>(found);
}

Driver load() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    int version = 0;
    cudaDriverGetVersion(&version);
    if (version == 0) fail_resources("[cuda] no NVIDIA driver is installed; use device: cpu, or install one");
    fail_resources(
        "[cuda] the NVIDIA driver supports CUDA {}.{}, this build needs {}.{}; update the driver, or use "
        "device: cpu",
        version / 1000, version % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  }
  if (error != cudaErrorNoDevice) check(error, "cudaGetDeviceCount");
  if (count == 0)
    fail_resources(
        "[cuda] no NVIDIA GPU is visible; check CUDA_VISIBLE_DEVICES and nvidia-smi, or use device: cpu");
  Driver found;
  look_up("cuMemAddressReserve", found.mem_address_reserve);
  look_up("cuMemAddressFree", found.mem_address_free);
  look_up("cuMemCreate", found.mem_create);
  look_up("cuMemRelease", found.mem_release);
  look_up("cuMemMap", found.mem_map);
  look_up("cuMemUnmap", found.mem_unmap);
  look_up("cuMemSetAccess", found.mem_set_access);
  look_up("cuGetErrorString", found.get_error_string);
  return found;
}

}  // namespace

const Driver& driver() {
  static const Driver loaded = load();
  return loaded;
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  driver().get_error_string(result, &text);
  fail_resources("[cuda] {} failed: {} ({})", what, text == nullptr ? "unknown error" : text,
                 static_cast<int>(result));
}

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  fail_resources("[cuda] {} failed: {} ({})", what, cudaGetErrorString(error), static_cast<int>(error));
}

}  // namespace temper::device
