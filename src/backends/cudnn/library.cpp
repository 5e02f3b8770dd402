#include "backends/cudnn/library.h"

#include <cudnn.h>
#include <dlfcn.h>
#include <fmt/core.h>

#include <array>

#include "base/error.h"
#include "base/parts/dynamic_library.h"
#include "base/parts/libraries.h"
#include "device/cuda/stream.h"

namespace temper::backends::cudnn {
namespace {

constexpr size_t kOldest = 91200;  // 9.12.0: earlier ones err on what this room asks for

template <class Function>
Function* find(const char* name) {
  auto* found = reinterpret_cast<Function*>(dlsym(library().opened, name));
  if (found == nullptr) fail_resources("[cudnn] libcudnn.so.9 has no {}", name);
  return found;
}

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  device::throw_failure_of_library(
      failure_of(status), what,
      fmt::format("[cudnn] {} failed: {}", what,
                  find<decltype(cudnnGetErrorString)>("cudnnGetErrorString")(status)));
}

Library open() {
  // cuDNN opens the run-time compiler by its name alone: from another folder it has to be here first.
  static const DynamicLibrary compiler({"libnvrtc.so.13", "libnvrtc.so.12"}, cuda_folders());
  static const DynamicLibrary cudnn({"libcudnn.so.9"}, cuda_folders());
  void* opened = cudnn.handle();
  if (opened == nullptr)
    return {nullptr,
            "libcudnn.so.9 was not found; install cuDNN 9 (its folder in LD_LIBRARY_PATH if that is not a "
            "standard one), or choose another attn_implementation"};
  const auto version = reinterpret_cast<decltype(&cudnnGetVersion)>(dlsym(opened, "cudnnGetVersion"));
  const size_t found = version == nullptr ? 0 : version();
  const std::string written = fmt::format("{}.{}.{}", found / 10000, found / 100 % 100, found % 100);
  if (found < kOldest)
    return {nullptr, fmt::format("libcudnn.so.9 is version {}; install {}.{} or later, or choose another "
                                 "attn_implementation",
                                 written, kOldest / 10000, kOldest / 100 % 100)};
  return {opened, "", written};
}

void start(Session& made, Device device) {
  int major = 0, minor = 0;
  device::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index),
                "cudaDeviceGetAttribute");
  device::check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index),
                "cudaDeviceGetAttribute");
  made.capability = 10 * major + minor;
  cudnnHandle_t handle = nullptr;
  check(find<decltype(cudnnCreate)>("cudnnCreate")(&handle), "cudnnCreate");
  made.handle = handle;
  made.device = device;
}

}  // namespace

device::Failure failure_of(int status) {
  switch (status) {
    case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
    case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED:
      return device::Failure::kOutOfMemory;
    case CUDNN_STATUS_NOT_INITIALIZED:
    case CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH:
    case CUDNN_STATUS_LICENSE_ERROR:
    case CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED:
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER:
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART:
    case CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH:
    case CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING:
    case CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE:
      return device::Failure::kUnusable;
    default:  // internal errors and failed executions; below them bad parameters and what is not supported
      return status >= CUDNN_STATUS_INTERNAL_ERROR ? device::Failure::kUnexplained : device::Failure::kDefect;
  }
}

const Library& library() {
  static const Library opened = open();
  return opened;
}

Session& session(Device device) {
  // Never destroyed: the driver may be gone when static objects go.
  static auto& sessions = *new std::array<Session, 8>;
  if (library().opened == nullptr) fail_resources("[cudnn] {}", library().refusal);
  device::stream(device);  // makes the device current: the handle belongs to it
  Session& found = sessions.at(static_cast<size_t>(device.index));
  const std::lock_guard lock(found.mutex);
  if (found.handle == nullptr) start(found, device);
  return found;
}

void use_current_stream(const Session& session) {
  check(find<decltype(cudnnSetStream)>("cudnnSetStream")(session.handle, device::stream(session.device)),
        "cudnnSetStream");
}

}  // namespace temper::backends::cudnn
