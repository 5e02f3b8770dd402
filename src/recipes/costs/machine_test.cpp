#include "recipes/costs/machine.h"

#include <gtest/gtest.h>

#include "recipes/costs/known_machines.h"
#include "tests/support/errors.h"

namespace temper::recipes {
namespace {

Machine simple_machine() {
  Machine machine;
  machine.memory_bandwidth = 1e12;
  machine.launch = 1e-6;
  machine.ops[std::string(Machine::kProducts)] = {.of_flops = true, .curve = {{{1e9, 1e14}, {1e11, 5e14}}}};
  machine.ops[std::string(Machine::kMoves)] = {.curve = {{{1, 8e11}}}};
  return machine;
}

TEST(SpeedCurve, SpeedsChangeWithTheLogarithmOfTheAmount) {
  const SpeedCurve curve{{{1e9, 1e14}, {1e11, 5e14}}};
  EXPECT_DOUBLE_EQ(curve.per_second(1e8), 1e14);
  EXPECT_DOUBLE_EQ(curve.per_second(1e9), 1e14);
  EXPECT_DOUBLE_EQ(curve.per_second(1e10), 3e14);
  EXPECT_DOUBLE_EQ(curve.per_second(1e12), 5e14);
  EXPECT_DOUBLE_EQ(curve.seconds(1e12), 2e-3);
}

// The roofline: arithmetic, memory or the launch, whichever takes longest.
TEST(Machine, AnOpTakesAsLongAsItsLimit) {
  Machine machine = simple_machine();
  EXPECT_DOUBLE_EQ(machine.seconds("linear", {.flops = 1e12, .bytes = 1e6}), 2e-3);
  EXPECT_DOUBLE_EQ(machine.seconds("linear", {.flops = 1e12, .bytes = 4e9}), 4e-3);
  EXPECT_DOUBLE_EQ(machine.seconds("rms_norm", {.bytes = 8e8}), 1e-3);
  EXPECT_DOUBLE_EQ(machine.seconds("rms_norm", {.bytes = 8}), 1e-6);
  EXPECT_EQ(machine.seconds("step", {}), 0);
  EXPECT_EQ(machine.seconds("all_reduce", {.sent = 1e9}), 0);
  machine.step_share = 0.5;
  EXPECT_DOUBLE_EQ(machine.seconds("rms_norm", {.bytes = 8e8}), 2e-3);
}

TEST(Machine, AnOpHasItsOwnSpeedOrThatOfItsForwardPass) {
  Machine machine = simple_machine();
  machine.ops["attention"] = {.of_flops = true, .curve = {{{1, 1e15}}}};
  EXPECT_DOUBLE_EQ(machine.seconds("attention", {.flops = 1e12}), 1e-3);
  EXPECT_DOUBLE_EQ(machine.seconds("attention backward", {.flops = 1e12}), 1e-3);
  machine.ops["attention backward"] = {.of_flops = true, .curve = {{{1, 2.5e14}}}};
  EXPECT_DOUBLE_EQ(machine.seconds("attention backward", {.flops = 1e12}), 4e-3);
  // A call of it that only moves bytes.
  EXPECT_DOUBLE_EQ(machine.seconds("attention", {.bytes = 8e8}), 1e-3);
}

// No speed is above what is published, and what is published is what the step line's share refers to.
TEST(Machine, KnownOnesStayBelowTheirPeaks) {
  for (const std::string& name : known_machine_names()) {
    const Machine machine = known_machine(name);
    const double peak = published_bf16_peak(machine.facts.name);
    EXPECT_TRUE(peak == 0 || peak == machine.peak_flops) << name;
    for (const auto& [op, speed] : machine.ops)
      for (const SpeedCurve::Point& point : speed.curve.points)
        EXPECT_LT(point.per_second, speed.of_flops ? machine.peak_flops : machine.memory_bandwidth)
            << name << " " << op;
    EXPECT_GT(machine.host.bytes_per_second, 0) << name;
    EXPECT_GT(machine.facts.memory_bytes, int64_t{1} << 35) << name;
  }
  EXPECT_EQ(
      error_of([] { known_machine("h300"); }),
      "[--hardware] 'h300' is not known; use one of [a100, b200, h100, h200, l40s], or leave it out for "
      "the run's device");
}

}  // namespace
}  // namespace temper::recipes
