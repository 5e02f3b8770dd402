#include "backends/gpu_gemm/library.h"

#include <gtest/gtest.h>

namespace temper::backends {
namespace {

using device::Failure;

// Every status of the library; the compiler names one that is missing in failure_of().
TEST(CublasLt, StatusesAreSortedByTheirCause) {
  EXPECT_EQ(failure_of(CUBLAS_STATUS_ALLOC_FAILED), Failure::kOutOfMemory);
  for (const cublasStatus_t status :
       {CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ARCH_MISMATCH, CUBLAS_STATUS_LICENSE_ERROR})
    EXPECT_EQ(failure_of(status), Failure::kUnusable) << status;
  for (const cublasStatus_t status : {CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_SUPPORTED})
    EXPECT_EQ(failure_of(status), Failure::kDefect) << status;
  for (const cublasStatus_t status :
       {CUBLAS_STATUS_MAPPING_ERROR, CUBLAS_STATUS_EXECUTION_FAILED, CUBLAS_STATUS_INTERNAL_ERROR})
    EXPECT_EQ(failure_of(status), Failure::kUnexplained) << status;
}

}  // namespace
}  // namespace temper::backends
