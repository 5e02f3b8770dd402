// Which errors of a GPU end the program with which exit code; no GPU is needed.
#include "device/cuda/failures.h"

#include <gtest/gtest.h>

#include "device/cuda/driver.h"
#include "device/graph.h"

namespace temper::device {
namespace {

template <class Thrown>
Thrown thrown_by(cudaError_t code) {
  try {
    check(code, "the GPU's work");
  } catch (const Thrown& error) {
    return error;
  }
  ADD_FAILURE() << name_of_failure(code) << " throws nothing";
  return Thrown("");
}

TEST(CudaFailures, TheTableHasEveryErrorOfTheRuntime) {
  const std::string unknown = cudaGetErrorName(static_cast<cudaError_t>(998));
  int known = 0;
  for (int code = 1; code < 1000; ++code) {
    const std::string name = cudaGetErrorName(static_cast<cudaError_t>(code));
    if (name == unknown) continue;
    EXPECT_TRUE(known_failure(code)) << name;
    EXPECT_EQ(name_of_failure(code), name) << code;
    ++known;
  }
  EXPECT_GT(known, 100);
  EXPECT_FALSE(known_failure(998));
}

TEST(CudaFailures, LibrariesThatFailWithoutFreeMemoryRanOutOfIt) {
  for (const Failure failure : {Failure::kUnexplained, Failure::kUnusable}) {
    EXPECT_EQ(failure_with_free(failure, 0), Failure::kOutOfMemory);
    EXPECT_EQ(failure_with_free(failure, size_t{1} << 20), Failure::kOutOfMemory);
    EXPECT_EQ(failure_with_free(failure, size_t{1} << 30), failure);
  }
  EXPECT_EQ(failure_with_free(Failure::kDefect, 0), Failure::kDefect);  // which says why
  EXPECT_EQ(kind_of(Failure::kUnexplained), ErrorKind::kDefect);
  EXPECT_EQ(advice(Failure::kUnexplained), advice(Failure::kDefect));
}

TEST(CudaFailures, DefectsExitWithOne) {
  for (const cudaError_t code :
       {cudaErrorIllegalAddress, cudaErrorMisalignedAddress, cudaErrorLaunchFailure, cudaErrorAssert,
        cudaErrorInvalidConfiguration, cudaErrorInvalidValue, cudaErrorLaunchOutOfResources,
        cudaErrorCooperativeLaunchTooLarge, cudaErrorNotSupported, static_cast<cudaError_t>(998)}) {
    const Error error = thrown_by<Error>(code);
    EXPECT_EQ(error.kind(), ErrorKind::kDefect) << error.what();
    EXPECT_NE(std::string(error.what()).find("please report it"), std::string::npos) << error.what();
  }
  EXPECT_NE(std::string(thrown_by<Error>(cudaErrorIllegalAddress).what()).find("lost the GPU"),
            std::string::npos);
}

TEST(CudaFailures, MemoryAndLostDevicesExitWithFour) {
  for (const cudaError_t code :
       {cudaErrorMemoryAllocation, cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable,
        cudaErrorContained, cudaErrorNoDevice, cudaErrorInvalidDevice, cudaErrorDevicesUnavailable,
        cudaErrorCudartUnloading, cudaErrorUnknown, cudaErrorNoKernelImageForDevice}) {
    const Error error = thrown_by<Error>(code);
    EXPECT_EQ(error.kind(), ErrorKind::kResources) << error.what();
    EXPECT_EQ(std::string(error.what()).find("a defect"), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find("[cuda] the GPU's work failed: "), 0u) << error.what();
  }
  EXPECT_EQ(thrown_by<OutOfMemory>(cudaErrorMemoryAllocation).kind(), ErrorKind::kResources);
  EXPECT_NE(
      std::string(thrown_by<Error>(cudaErrorNoKernelImageForDevice).what()).find("compiled for other GPUs"),
      std::string::npos);
  EXPECT_NE(std::string(thrown_by<Error>(cudaErrorECCUncorrectable).what()).find("nvidia-smi -q"),
            std::string::npos);
}

TEST(CudaFailures, WhatNoGraphHoldsIsDistinguished) {
  for (const cudaError_t code : {cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureInvalidated,
                                 cudaErrorStreamCaptureWrongThread})
    EXPECT_EQ(thrown_by<CannotCapture>(code).kind(), ErrorKind::kDefect);
}

}  // namespace
}  // namespace temper::device
