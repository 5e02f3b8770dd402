#include "backends/gpu_gemm/library.h"

#include <array>
#include <mutex>

#include "base/parts/dynamic_library.h"
#include "base/parts/libraries.h"
#include "device/cuda/stream.h"

namespace temper::backends {
namespace {

const DynamicLibrary& library() {
  static const DynamicLibrary opened({"libcublasLt.so.13", "libcublasLt.so.12"}, cuda_folders());
  return opened;
}

CublasLt load() {
  if (!cublaslt_missing().empty()) fail_resources("{}", cublaslt_missing());
  CublasLt found;
  const DynamicLibrary& from = library();
  from.look_up("cublasLtCreate", found.create);
  from.look_up("cublasLtGetVersion", found.version);
  from.look_up("cublasLtGetStatusString", found.status_string);
  from.look_up("cublasLtMatmul", found.matmul);
  from.look_up("cublasLtMatmulDescCreate", found.desc_create);
  from.look_up("cublasLtMatmulDescDestroy", found.desc_destroy);
  from.look_up("cublasLtMatmulDescSetAttribute", found.desc_set);
  from.look_up("cublasLtMatrixLayoutCreate", found.layout_create);
  from.look_up("cublasLtMatrixLayoutDestroy", found.layout_destroy);
  from.look_up("cublasLtMatmulPreferenceCreate", found.preference_create);
  from.look_up("cublasLtMatmulPreferenceDestroy", found.preference_destroy);
  from.look_up("cublasLtMatmulPreferenceSetAttribute", found.preference_set);
  from.look_up("cublasLtMatmulAlgoGetHeuristic", found.heuristic);
  from.look_up("cublasLtMatmulAlgoCheck", found.check);
  return found;
}

}  // namespace

const std::string& cublaslt_missing() {
  static const std::string sentence =
      library().opened() ? std::string()
                         : fmt::format(
                               "cuBLASLt was not found ({}); install CUDA's libraries, or add their "
                               "folder to LD_LIBRARY_PATH",
                               library().error());
  return sentence;
}

ops::Refusal refuse_without_cublaslt(const HardwareFacts& facts) {
  const bool here = facts.device.type == DeviceType::kCuda;
  if (here && !cublaslt_missing().empty()) return cublaslt_missing();
  return std::nullopt;
}

const CublasLt& cublaslt() {
  static const CublasLt loaded = load();
  return loaded;
}

cublasLtHandle_t cublaslt_handle(Device device) {
  static std::array<cublasLtHandle_t, 8> handles{};
  static std::mutex mutex;
  device::stream(device);  // makes the device current: the handle belongs to it
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles.at(static_cast<size_t>(device.index));
  if (handle == nullptr) check(cublaslt().create(&handle), "cublasLtCreate");
  return handle;
}

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  device::throw_failure_of_library(
      failure_of(status), what,
      fmt::format("[cublaslt] {} failed: {}", what, cublaslt().status_string(status)));
}

device::Failure failure_of(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_ALLOC_FAILED:
      return device::Failure::kOutOfMemory;
    case CUBLAS_STATUS_NOT_INITIALIZED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_LICENSE_ERROR:
      return device::Failure::kUnusable;
    case CUBLAS_STATUS_MAPPING_ERROR:
    case CUBLAS_STATUS_EXECUTION_FAILED:
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return device::Failure::kUnexplained;
    case CUBLAS_STATUS_SUCCESS:
    case CUBLAS_STATUS_INVALID_VALUE:
    case CUBLAS_STATUS_NOT_SUPPORTED:
      break;
  }
  return device::Failure::kDefect;
}

}  // namespace temper::backends
