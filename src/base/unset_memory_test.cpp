#include "base/unset_memory.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/errors.h"
#include "tests/support/sanitizers.h"

namespace temper {
namespace {

TEST(UnsetMemory, IsAlignedAndWritable) {
  for (const int64_t count : {int64_t{1}, int64_t{1000}, (int64_t{2} << 20) - 1, int64_t{3} << 20}) {
    const UnsetArray<uint8_t> memory = unset_array<uint8_t>(count, "a test");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % 64, 0U);
    memory[0] = 1;
    memory[static_cast<size_t>(count - 1)] = 2;
  }
}

TEST(UnsetMemory, TooMuchOfItIsAnErrorThatSaysWhatFor) {
  if (kSanitizerTakesMemory) GTEST_SKIP() << "a sanitizer ends programs that ask for too much";
  expect_has(error_of([] { unset_array<float>(int64_t{1} << 60, "the values of a picture"); },
                      ErrorKind::kResources),
             "no memory for the values of a picture, which needs ");
}

}  // namespace
}  // namespace temper
