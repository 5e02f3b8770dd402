#include "tests/support/gpu.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text.h"
#include "device/facts.h"

namespace temper {

std::string why_no_gpu(int wanted) {
  try {
    detect_hardware("cuda");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kResources) << error.what();
    return error.what();
  }
  const int found = detectors().find("cuda")->count();
  return found < wanted ? fmt::format("needs {} GPUs, this machine has {}", wanted, found) : "";
}

}  // namespace temper
