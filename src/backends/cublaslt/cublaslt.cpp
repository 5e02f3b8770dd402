#include "backends/gpu_gemm/library.h"
#include "base/parts/libraries.h"

namespace temper::backends {
namespace {

LibraryState probe() {
  if (!cublaslt_missing().empty()) return {false, cublaslt_missing()};
  const size_t version = cublaslt().version();
  return {true, fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100)};
}

}  // namespace

void register_cublaslt() { registry<LibraryProbe>().add("cuBLASLt", probe); }

}  // namespace temper::backends
