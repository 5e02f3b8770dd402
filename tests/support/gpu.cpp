#include "tests/support/gpu.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "device/facts.h"

namespace temper {

std::string why_no_gpu() {
  try {
    detect_hardware("cuda");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kResources) << error.what();
    return error.what();
  }
  return "";
}

}  // namespace temper
