#include "device/cuda/driver.h"

#include "base/error.h"
#include "device/cuda/failures.h"

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

DriverAnswer ask_driver() {
  DriverAnswer answer;
  answer.error = cudaGetDeviceCount(&answer.gpus);
  cudaDriverGetVersion(&answer.version);
  return answer;
}

Driver load() {
  if (const std::string why = why_unusable(ask_driver()); !why.empty()) fail_resources("{}", why);
  Driver found;
  look_up("cuMemAddressReserve", found.mem_address_reserve);
  look_up("cuMemAddressFree", found.mem_address_free);
  look_up("cuMemCreate", found.mem_create);
  look_up("cuMemRelease", found.mem_release);
  look_up("cuMemMap", found.mem_map);
  look_up("cuMemUnmap", found.mem_unmap);
  look_up("cuMemSetAccess", found.mem_set_access);
  look_up("cuMemExportToShareableHandle", found.mem_export);
  look_up("cuMemImportFromShareableHandle", found.mem_import);
  look_up("cuDeviceGetAttribute", found.device_get_attribute);
  look_up("cuTensorMapEncodeTiled", found.tensor_map_encode_tiled);
  look_up("cuGetErrorString", found.get_error_string);
  return found;
}

}  // namespace

const Driver& driver() {
  static const Driver loaded = load();
  return loaded;
}

std::string why_unusable(const DriverAnswer& answer) {
  const auto written = [](int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); };
  switch (answer.error) {
    case cudaSuccess:
      if (answer.gpus > 0) return "";
      [[fallthrough]];
    case cudaErrorNoDevice:
      return "[cuda] no NVIDIA GPU is visible; check CUDA_VISIBLE_DEVICES and nvidia-smi, or use device: cpu";
    case cudaErrorInsufficientDriver:
      if (answer.version == 0) return "[cuda] no NVIDIA driver is installed; use device: cpu, or install one";
      return fmt::format(
          "[cuda] the NVIDIA driver supports CUDA {}, this build needs {}; update the driver, or use device: "
          "cpu",
          written(answer.version), written(CUDART_VERSION));
    case cudaErrorSystemDriverMismatch:
      return "[cuda] the NVIDIA driver in the kernel and its library are of different versions; restart the "
             "machine after an update of the driver, or use device: cpu";
    default:
      return fmt::format(
          "[cuda] the NVIDIA driver cannot be used: {} ({}); see nvidia-smi, or use device: cpu",
          cudaGetErrorString(answer.error), static_cast<int>(answer.error));
  }
}

namespace {

[[noreturn]] void fail_call(int code, const char* what, const char* text) {
  throw_failure(known_failure(code).value_or(Failure::kDefect),
                fmt::format("[cuda] {} failed: {} ({})", what, text, code));
}

}  // namespace

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  driver().get_error_string(result, &text);
  fail_call(result, what, text == nullptr ? "unknown error" : text);
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail_call(error, what, cudaGetErrorString(error));
}

void throw_failure_of_library(Failure failure, const char* call, const std::string& what) {
  check(cudaGetLastError(), call);
  size_t free = 0, total = 0;
  const bool known = cudaMemGetInfo(&free, &total) == cudaSuccess;
  cudaGetLastError();
  throw_failure(known ? failure_with_free(failure, free) : failure, what);
}

}  // namespace temper::device
