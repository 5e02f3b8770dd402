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

}  // namespace
}  // namespace temper::device
