#pragma once
#include <cublasLt.h>

#include <string>

#include "device/cuda/failures.h"
#include "device/device.h"
#include "ops/kernel.h"

namespace temper::backends {

// cuBLASLt's functions, found when they are first needed.
struct CublasLt {
  decltype(&::cublasLtCreate) create = nullptr;
  decltype(&::cublasLtGetVersion) version = nullptr;
  decltype(&::cublasLtGetStatusString) status_string = nullptr;
  decltype(&::cublasLtMatmul) matmul = nullptr;
  decltype(&::cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&::cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&::cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&::cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&::cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&::cublasLtMatmulAlgoCheck) check = nullptr;
};

// Empty when the library opens; otherwise the sentence that says what is missing.
const std::string& cublaslt_missing();
// Why cuBLASLt cannot serve here; nothing when it can, or when the GPU is not of this machine.
ops::Refusal refuse_without_cublaslt(const HardwareFacts& facts);
const CublasLt& cublaslt();  // throws that sentence
cublasLtHandle_t cublaslt_handle(Device device);
void check(cublasStatus_t status, const char* what);
device::Failure failure_of(cublasStatus_t status);

}  // namespace temper::backends
