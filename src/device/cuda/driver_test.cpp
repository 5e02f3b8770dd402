// What drivers and GPUs are refused with, for those that are not here.
#include "device/cuda/driver.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace temper::device {
namespace {

TEST(CudaDriver, EachRefusalIsASentence) {
  EXPECT_EQ(why_unusable({cudaSuccess, 13000, 1}), "");
  EXPECT_EQ(why_unusable({cudaErrorInsufficientDriver, 0, 0}),
            "[cuda] no NVIDIA driver is installed; use device: cpu, or install one");
  EXPECT_EQ(why_unusable({cudaErrorInsufficientDriver, 11080, 0})
                .find("[cuda] the NVIDIA driver supports CUDA 11.8, this build needs "),
            0u);
  for (const DriverAnswer& none : {DriverAnswer{cudaErrorNoDevice, 13000, 0}, {cudaSuccess, 13000, 0}})
    EXPECT_EQ(
        why_unusable(none),
        "[cuda] no NVIDIA GPU is visible; check CUDA_VISIBLE_DEVICES and nvidia-smi, or use device: cpu");
  EXPECT_NE(why_unusable({cudaErrorSystemDriverMismatch, 13000, 0}).find("restart the machine"),
            std::string::npos);
  EXPECT_NE(why_unusable({cudaErrorSystemNotReady, 13000, 0}).find("(802); see nvidia-smi"),
            std::string::npos);
}

TEST(CudaDriver, OldGpusAreRefused) {
  EXPECT_EQ(why_unsupported(0, 8, 0), "");
  EXPECT_EQ(why_unsupported(0, 12, 1), "");
  EXPECT_EQ(why_unsupported(1, 7, 5),
            "[cuda] GPU 1 has compute capability 7.5; Temper needs 8.0 or later: use another device");
}

// An error that ends the process's use of the GPU is told apart from one that is only refused.
TEST(CudaDriver, ALostGpuSaysWhereToLook) {
  for (const cudaError_t lost : {cudaErrorIllegalAddress, cudaErrorECCUncorrectable, cudaErrorLaunchFailure,
                                 cudaErrorMisalignedAddress, cudaErrorDevicesUnavailable}) {
    EXPECT_TRUE(is_lost(lost));
    EXPECT_NE(describe(lost, "it broke", "the GPU's work").find("lost to this process"), std::string::npos);
  }
  for (const cudaError_t refused :
       {cudaErrorMemoryAllocation, cudaErrorInvalidValue, cudaErrorNotSupported}) {
    EXPECT_FALSE(is_lost(refused));
    EXPECT_EQ(describe(refused, "no", "cudaMalloc"),
              fmt::format("[cuda] cudaMalloc failed: no ({})", static_cast<int>(refused)));
  }
  try {
    check(cudaErrorIllegalAddress, "the GPU's work");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kResources);
    EXPECT_EQ(std::string(error.what()).find("[cuda] the GPU's work failed: "), 0u) << error.what();
  }
}

}  // namespace
}  // namespace temper::device
