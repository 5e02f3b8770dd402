#include "primitives/amax.h"

#include <cmath>
#include <limits>

#include "tests/support/op_testing.h"

namespace temper::primitives {
namespace {

using namespace op_testing;

struct Example {
  Shape shape, amax;
  std::optional<Padding> padding = {};
};

const std::vector<Example> kExamples{
    {{5, 64}, {1, 1}},          {{6, 96}, {6, 1}},
    {{4, 128}, {4, 4}},         {{8, 64}, {2, 2}},
    {{3, 4, 64}, {3, 1, 1}},    {{4, 2, 30}, {4, 2, 1}},
    {{300, 320}, {1, 1}},       {{3, 4, 64}, {3, 1, 1}, Padding{1, 1, 2}},
    {{700, 520}, {700, 1}},     {{5, 64}, {5, 2}, Padding{1, 3, 4}},
    {{40, 33, 256}, {8, 1, 2}},
};

double beyond(quant::Extreme extreme, double most, double value) {
  return extreme == quant::Extreme::kHigh  ? std::max(most, value)
         : extreme == quant::Extreme::kLow ? std::min(most, value)
                                           : std::max(most, std::fabs(value));
}

Doubles reference(const Example& example, const Doubles& values, quant::Extreme extreme) {
  const quant::Groups groups = quant::groups_of("x", example.shape, example.amax);
  Doubles amax(static_cast<size_t>(example.amax.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    double& most =
        amax[static_cast<size_t>(groups.first(at / groups.columns) + at % groups.columns / groups.width())];
    most = beyond(extreme, most, values[i]);
  }
  return amax;
}

constexpr quant::Extreme kExtremes[] = {quant::Extreme::kMagnitude, quant::Extreme::kHigh,
                                        quant::Extreme::kLow};

TEST(Amax, ExtremesOfGroupsOnEveryDevice) {
  for (const HardwareFacts& machine : machines())
    for (const Example& example : kExamples)
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        SCOPED_TRACE(fmt::format("{} {} {}", machine.name, to_string(example.shape), to_string(dtype)));
        const Doubles values = normal(3, example.shape);
        const Padding none;
        const Tensor x =
            padded_tensor_of(values, example.shape, dtype, example.padding.value_or(none), machine.device);
        for (const quant::Extreme extreme : kExtremes)
          EXPECT_EQ(values_of(primitives::amax_of(x, example.amax, extreme)),
                    reference(example, values_of(x), extreme));
      }
}

TEST(Amax, GrowsAndKeepsWhatIsNoNumber) {
  for (const HardwareFacts& machine : machines()) {
    const Tensor x = Tensor::from<float>(std::vector<float>{1, -3, INFINITY, 0, NAN, 2, 0, 0}, {4, 2});
    const Tensor amax = Tensor::from<float>(std::vector<float>{5, 2, 1, 0.5f}, {4, 1}).on(machine.device);
    grow_amax(x.on(machine.device), amax);
    const Doubles found = values_of(amax);
    EXPECT_EQ(found[0], 5);
    EXPECT_EQ(found[1], INFINITY);
    EXPECT_TRUE(std::isnan(found[2]));
    EXPECT_EQ(found[3], 0.5);
    grow_amax(Tensor::zeros({4, 2}, DType::kF32, MemoryTag::kData, machine.device), amax);
    EXPECT_TRUE(std::isnan(values_of(amax)[2]));
  }
}

// What is on the other side of zero does not count, but NaN of either sign does.
TEST(Amax, EndsOfRanges) {
  for (const HardwareFacts& machine : machines())
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Tensor x = Tensor::from<float>(
          std::vector<float>{1, -3, INFINITY, -2, -INFINITY, 2, -NAN, 1, NAN, -1, -0.f, 0}, {6, 2});
      const auto grown = [&](quant::Extreme extreme, const std::vector<float>& from) {
        const Tensor ends = Tensor::from<float>(from, {6, 1}).on(machine.device);
        grow_amax(x.to(dtype).on(machine.device), ends, extreme);
        return values_of(ends);
      };
      const Doubles high = grown(quant::Extreme::kHigh, {5, 0.5f, 0, 0, 0, 0}),
                    low = grown(quant::Extreme::kLow, {-1, -4, 0, 0, 0, 0});
      EXPECT_EQ(Doubles(high.begin(), high.begin() + 3), (Doubles{5, INFINITY, 2}));
      EXPECT_EQ(Doubles(low.begin(), low.begin() + 3), (Doubles{-3, -4, -INFINITY}));
      for (const Doubles& ends : {high, low}) {
        EXPECT_TRUE(std::isnan(ends[3]) && std::isnan(ends[4]));
        EXPECT_EQ(ends[5], 0);
      }
    }
}

}  // namespace
}  // namespace temper::primitives
