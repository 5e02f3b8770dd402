#include <gtest/gtest.h>

#include "base/files.h"
#include "ops/report.h"

namespace temper::ops {
namespace {

TEST(Documentation, TheTableOfKernelsIsThatOfTheRegistry) {
  const std::string document = read_file(TEMPER_SOURCE_DIR "/docs/kernels.md");
  EXPECT_NE(document.find("\n" + kernel_table() + "\n"), std::string::npos)
      << "docs/kernels.md is stale; replace its table by the output of `temper ops --table`:\n"
      << kernel_table();
}

}  // namespace
}  // namespace temper::ops
