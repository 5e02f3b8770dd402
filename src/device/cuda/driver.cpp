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

bool is_lost(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorContained:
    case cudaErrorDevicesUnavailable:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

std::string describe(cudaError_t error, const std::string& text, const char* what) {
  const std::string found = fmt::format("[cuda] {} failed: {} ({})", what, text, static_cast<int>(error));
  if (!is_lost(error)) return found;
  // Work is asked for ahead of time: whoever meets the error need not have caused it.
  return fmt::format(
      "{}; the GPU is lost to this process, where this or earlier work failed. See dmesg for Xid errors and "
      "nvidia-smi -q for ECC errors; without any it is a defect of Temper, please report it",
      found);
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  driver().get_error_string(result, &text);
  // The runtime's errors have the driver's numbers.
  fail_resources("{}",
                 describe(static_cast<cudaError_t>(result), text == nullptr ? "unknown error" : text, what));
}

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  fail_resources("{}", describe(error, cudaGetErrorString(error), what));
}

}  // namespace temper::device
