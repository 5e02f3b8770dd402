#include "ops/measure.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/files.h"
#include "device/facts.h"

namespace temper::ops {
namespace {

class Measure : public testing::Test {
 protected:
  void SetUp() override { ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }
  TemporaryDirectory folder_;
};

TEST_F(Measure, EveryKernelOfThisMachineComputesWhatTheCompositionDoes) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto measured = measure_kernels(dtype, detect_cpu(), false);
    EXPECT_GE(measured.size(), 2 * 9u);
    for (const Measurement& m : measured) {
      const bool is_for_it = m.provider != "onednn_invariant" || dtype == DType::kF32;
      EXPECT_EQ(m.correct(), is_for_it) << m.op << " by " << m.provider << " in " << to_string(dtype) << ": "
                                        << m.error << m.refusal.value_or("");
      if (!is_for_it) {
        EXPECT_NE(m.refusal.value_or("").find("dtype must be float32"), std::string::npos) << m.op;
      }
    }
  }
}

TEST_F(Measure, OnlyAGuessedOrderIsReplaced) {
  const std::vector<Measurement> measured{
      {.op = "a", .field = "rms_norm", .provider = "one", .milliseconds = 3},
      {.op = "a", .field = "rms_norm", .provider = "two", .milliseconds = 2},
      {.op = "a", .field = "rms_norm", .provider = "eager", .milliseconds = 9},
      {.op = "b", .field = "swiglu_mlp", .provider = "one", .milliseconds = 1},
      {.op = "b", .field = "swiglu_mlp", .provider = "eager", .milliseconds = 1},
      {.op = "c", .field = "linear", .provider = "one", .milliseconds = 5},
      {.op = "c", .field = "linear", .provider = "wrong", .error = 1}};
  EXPECT_EQ(fastest(measured), (FieldValues{{"rms_norm", "two"}}));
}

TEST_F(Measure, PreferencesAreKeptPerDevice) {
  HardwareFacts a, b;
  a.name = "device a";
  b.name = "device b";
  EXPECT_TRUE(remembered(a, DType::kF32).empty());
  remember({{"rms_norm", "two"}}, a, DType::kF32);
  remember({{"linear", "x"}}, b, DType::kF32);
  EXPECT_EQ(remembered(a, DType::kF32), (FieldValues{{"rms_norm", "two"}}));
  EXPECT_TRUE(remembered(a, DType::kBF16).empty());
  write_file(preferences_file(), "{");
  EXPECT_TRUE(remembered(a, DType::kF32).empty());  // a warning, not an error
  remember({{"rms_norm", "one"}}, a, DType::kF32);
  EXPECT_EQ(remembered(a, DType::kF32), (FieldValues{{"rms_norm", "one"}}));
}

// As two processes remember at once.
TEST_F(Measure, WhatTwoProcessesRememberIsMerged) {
  HardwareFacts a, b;
  a.name = "device a";
  b.name = "device b";
  const pid_t child = ::fork();
  for (int i = 0; i < 50; ++i) remember({{"rms_norm", std::to_string(i)}}, child == 0 ? a : b, DType::kF32);
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  for (const HardwareFacts& facts : {a, b})
    EXPECT_EQ(remembered(facts, DType::kF32), (FieldValues{{"rms_norm", "49"}}));
}

}  // namespace
}  // namespace temper::ops
