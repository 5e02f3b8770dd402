#include <cmath>
#include <limits>

#include "ops/fake_quantize/fake_quantize.h"
#include "tests/support/decoded.h"
#include "tests/support/op_testing.h"

namespace temper::ops::zero_points_test {
namespace {

using namespace op_testing;
using quant::Bounds;
using quant::Format;

// With zero points, of integers of every kind.
std::vector<Format> formats() {
  std::vector<Format> all;
  for (const int bits : {2, 3, 4, 5, 6, 7, 8})
    for (const auto& [narrow, is_unsigned] : {std::pair{false, false}, {true, false}, {false, true}})
      all.push_back(quant::by_zero_points(quant::integer_element(bits, narrow, is_unsigned)));
  return all;
}

struct Example {
  Shape shape, groups;
  std::optional<Padding> padding = {};
};

const std::vector<Example>& examples() {
  static const std::vector<Example> all{
      {{5, 64}, {1, 1}},
      {{6, 96}, {6, 1}},
      {{4, 128}, {4, 4}},
      {{8, 64}, {2, 2}},
      {{3, 4, 64}, {3, 1, 1}},
      {{3, 4, 64}, {1, 1, 1}},
      {{4, 2, 32}, {4, 2, 1}},
      {{6, 30}, {6, 2}},
      {{300, 320}, {1, 1}},
      {{3, 4, 64}, {3, 1, 1}, Padding{1, 1, 2}},
      {{5, 64}, {5, 1}, Padding{1, 3, 4}},
  };
  return all;
}

// Of groups that lie on one side of zero, too.
Doubles values_for(const Shape& shape) {
  Doubles values = normal(4, shape, 0.3);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t row = i / static_cast<size_t>(shape[shape.ndim() - 1]);
    if (row % 3 == 1) values[i] = std::fabs(values[i]) + 0.1;
    if (row % 3 == 2) values[i] = -0.6 * std::fabs(values[i]);
  }
  for (size_t i = 0; i < 30; ++i) values[i] = i < 25 ? 0 : -0.0;
  return values;
}

Bounds part_of(const Bounds& bounds, float share) {
  const Bounds own{bounds.low.clone(), bounds.high.clone()};
  for (const Tensor* ends : {&own.low, &own.high})
    for (float& end : ends->values<float>()) end *= share;
  return own;
}

Bounds on(const Bounds& bounds, Device device) { return {bounds.low.on(device), bounds.high.on(device)}; }

Tensor fake(const BoundKernel& kernel, const Tensor& x, const Bounds& bounds, const Format& format) {
  Tape tape(false);
  return fake_quantize(tape, kernel.ops, tape.constant(x.on(kernel.device)), on(bounds, kernel.device),
                       format)
      .value.on({});
}

// Integers and zero points found in double precision: what is rounded in float32 may be a step away, for few
// elements.
TEST(FakeQuantizeZeroPoints, NearestStepsInDoublePrecision) {
  for (const Format& format : formats())
    for (const Example& example : examples()) {
      const quant::Element& element = format.element;
      SCOPED_TRACE(
          fmt::format("{} bits from {}, {}", element.bits, element.lowest, to_string(example.shape)));
      const Tensor x = tensor_of(values_for(example.shape), example.shape, DType::kF32);
      const Bounds bounds = part_of(quant::bounds_of(x, example.groups), 0.8f);
      const quant::Groups groups = quant::groups_of("x", example.shape, example.groups);
      Doubles wanted;
      for (int64_t i = 0; i < x.numel(); ++i) {
        const int64_t group = groups.first(i / groups.columns) + i % groups.columns / groups.width();
        const double low = bounds.low.data<float>()[group], high = bounds.high.data<float>()[group],
                     step = (high - low) / (element.largest - element.lowest),
                     zero = std::min<double>(element.largest, element.lowest - std::nearbyint(low / step)),
                     code = std::nearbyint(x.data<float>()[i] / step) + zero;
        wanted.push_back((std::clamp<double>(code, element.lowest, element.largest) - zero) * step);
      }
      for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({DType::kF32, format})) {
        const Doubles found = values_of(fake(kernel, x, bounds, format));
        int apart = 0;
        for (size_t i = 0; i < found.size(); ++i)
          apart += std::fabs(found[i] - wanted[i]) > 1e-6 * std::fabs(wanted[i]) ? 1 : 0;
        EXPECT_LE(apart, static_cast<int>(found.size() / 2000)) << kernel.provider;
      }
    }
}

// What fakes integers is what encodes them: bit by bit, in every dtype and layout.
TEST(FakeQuantizeZeroPoints, HaveTheBitsOfDecodedCodes) {
  for (const Format& format : formats())
    for (const Example& example : examples())
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
        for (const float share : {1.f, 0.6f}) {
          const quant::Element& element = format.element;
          if (example.shape[example.shape.ndim() - 1] % 4 != 0 && element.bits % 2 == 0 && element.bits < 8)
            continue;  // codes fill bytes
          SCOPED_TRACE(fmt::format("{} bits from {}, {} {}", element.bits, element.lowest,
                                   to_string(example.shape), to_string(dtype)));
          const Doubles values = values_for(example.shape);
          const Tensor x = tensor_of(values, example.shape, dtype);
          const Bounds bounds = part_of(quant::bounds_of(x, example.groups), share);
          const auto encoded = quant::encode_with_zeros("x", element, x, bounds);
          const auto wanted = bits_of(quant::decode_with_zeros(element, encoded, dtype));
          for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({dtype, format})) {
            const Tensor laid_out = example.padding ? padded_tensor_of(values, example.shape, dtype,
                                                                       *example.padding, kernel.device)
                                                    : x;
            EXPECT_EQ(bits_of(fake(kernel, laid_out, bounds, format)), wanted) << kernel.provider;
          }
        }
}

TEST(FakeQuantizeZeroPoints, TinyHugeAndInfiniteValuesHaveTheSameBitsInEveryKernel) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> scales{0, 1e-44f, 1e-38f, 0x1p-24f, 1, 1e30f, 3e38f, kInfinity, NAN};
  Doubles values;
  for (const float scale : scales)
    for (const double value : normal(5, {64})) values.push_back(static_cast<float>(value / 4) * scale);
  values[3] = kInfinity;
  values[7] = -kInfinity;
  values[40] = NAN;
  const Shape shape{static_cast<int64_t>(scales.size()), 64};
  const auto compare = [&](const Format& format, const Shape& groups, DType dtype) {
    const Tensor x = tensor_of(values, shape, dtype);
    std::vector<Bounds> all{quant::bounds_of(x, groups)};
    for (const float low : {0.f, -0x1p-24f, -1.f, -1e30f, -2e38f, -kInfinity, NAN})
      for (const float high : {0.f, 0x1p-25f, 0x1p-22f, 1.f, 1e15f, 1e28f, 2e38f, kInfinity, NAN}) {
        all.push_back({Tensor::zeros(groups, DType::kF32), Tensor::zeros(groups, DType::kF32)});
        for (float& end : all.back().low.values<float>()) end = low;
        for (float& end : all.back().high.values<float>()) end = high;
      }
    for (const Bounds& bounds : all) {
      const auto wanted =
          bits_of(fake({"eager", bind_kernel<FakeQuantize>("eager", {dtype, format})}, x, bounds, format));
      for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({dtype, format}))
        EXPECT_EQ(bits_of(fake(kernel, x, bounds, format)), wanted)
            << kernel.provider << " " << format.element.bits << " " << to_string(dtype) << " from "
            << *bounds.low.data<float>() << " to " << *bounds.high.data<float>();
    }
  };
  for (const Format& format : formats())
    for (const Shape& groups : {Shape{1, 1}, Shape{shape[0], 1}, Shape{shape[0], 2}})
      for (const DType dtype : {DType::kF32, DType::kBF16}) compare(format, groups, dtype);
}

// Every bfloat16 that a range has, in the codes of every width.
TEST(FakeQuantizeZeroPoints, AllNumbersOfBFloat16) {
  Doubles values;
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) values.push_back(std::bit_cast<float>(bits << 16));
  const Shape shape{1, 1 << 16};
  const Tensor x = tensor_of(values, shape, DType::kBF16);
  const auto ends = [](float end) { return Tensor::from<float>(std::vector<float>{end}, {1, 1}); };
  for (const Format& format : formats())
    for (const auto& [low, high] : {std::pair{-0.7f, 0.3f}, {-1.f, 0.f}, {0.f, 1.37f}, {-3e-4f, 17.3f}}) {
      const Bounds bounds{ends(low), ends(high)};
      const auto wanted = bits_of(
          fake({"eager", bind_kernel<FakeQuantize>("eager", {DType::kBF16, format})}, x, bounds, format));
      for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({DType::kBF16, format}))
        EXPECT_EQ(bits_of(fake(kernel, x, bounds, format)), wanted)
            << kernel.provider << " " << format.element.bits << " from " << low << " to " << high;
    }
}

// One call for all experts gives what a call for each gives.
TEST(FakeQuantizeZeroPoints, ExpertsTogetherAreExpertsAlone) {
  const Shape shape{5, 6, 64};
  const Tensor x = tensor_of(values_for(shape), shape, DType::kBF16);
  const Format format = quant::by_zero_points(quant::integer_element(4, false, false));
  const Bounds bounds = quant::bounds_of(x, {5, 1, 2});
  for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({DType::kBF16, format})) {
    const Tensor all = fake(kernel, x, bounds, format);
    for (int64_t e = 0; e < 5; ++e) {
      const auto own = [&](const Tensor& of, const Shape& its) { return of.narrow(0, e, 1).reshape(its); };
      EXPECT_EQ(
          bits_of(fake(kernel, own(x, {6, 64}), {own(bounds.low, {1, 2}), own(bounds.high, {1, 2})}, format)),
          bits_of(all.narrow(0, e, 1)))
          << kernel.provider;
    }
  }
}

// The gradient passes, or where ranges are given ends between them: at both ends, too.
TEST(FakeQuantizeZeroPoints, GradientsPassOrAreClipped) {
  const Format format = quant::by_zero_points(quant::integer_element(8, false, false));
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const bool clips : {false, true})
      for (const bool wide : {false, true}) {
        const Shape shape{2, 3, 40};
        Doubles values = normal(7, shape);
        values[5] = 0.75;  // at the ends: kept
        values[6] = -0.25;
        values[7] = NAN;
        values[8] = -0.75;
        const Tensor x = tensor_of(values, shape, dtype),
                     grads = tensor_of(normal(8, shape), shape, dtype).to(wide ? DType::kF32 : dtype);
        const Bounds bounds{Tensor::from<float>(std::vector<float>{-0.25f, 0}, {2, 1, 1}),
                            Tensor::from<float>(std::vector<float>{0.75f, 1}, {2, 1, 1})};
        for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({dtype, format})) {
          Tape tape;
          const Var v = tape.variable(x.on(kernel.device));
          const Var y = fake_quantize(tape, kernel.ops, v, on(bounds, kernel.device), format, clips);
          tape.backward(y, grads.on(kernel.device));
          const Doubles found = values_of(v.slot->take()), given = values_of(grads), own = values_of(x);
          for (size_t i = 0; i < found.size(); ++i) {
            const bool kept = !clips || (own[i] >= (i < 120 ? -0.25 : 0) && own[i] <= (i < 120 ? 0.75 : 1));
            EXPECT_EQ(found[i], kept ? given[i] : 0) << kernel.provider << " " << i;
          }
        }
      }
}

// A parameter that is kept as one matrix: its gradient is clipped in its own memory.
TEST(FakeQuantizeZeroPoints, GradientsOfParameters) {
  const Shape shape{6, 40}, of_experts{2, 3, 40};
  const Format format = quant::by_zero_points(quant::integer_element(4, false, false));
  const Tensor x = tensor_of(normal(7, shape), shape, DType::kBF16);
  const Bounds bounds{Tensor::from<float>(std::vector<float>{-0.25f, 0}, {2, 1, 1}),
                      Tensor::from<float>(std::vector<float>{0.75f, 1}, {2, 1, 1})};
  const Doubles grads = normal(8, shape);
  for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({DType::kBF16, format})) {
    Parameter parameter{x.on(kernel.device), std::make_shared<GradSlot>()};
    const Tensor buffer = Tensor::empty(shape, DType::kF32, MemoryTag::kGradients, kernel.device);
    parameter.grad->set_buffer(buffer);
    Tape tape;
    const auto [low, high] = on(bounds, kernel.device);
    const Var y = fake_quantize_parameter(tape, kernel.ops, tape.leaf(parameter), high, format,
                                          {.shape = of_experts, .clips = true, .low = low});
    EXPECT_EQ(bits_of(y.value.on({})), bits_of(fake(kernel, x.reshape(of_experts), bounds, format)));
    tape.backward(y, tensor_of(grads, shape, DType::kF32).on(kernel.device));
    const Doubles found = values_of(buffer), own = values_of(x);
    for (size_t i = 0; i < found.size(); ++i) {
      const bool kept = own[i] >= (i < 120 ? -0.25 : 0) && own[i] <= (i < 120 ? 0.75 : 1);
      const double bound = kept && kernel.provider == "eager" ? 0.02 : 1e-6;
      EXPECT_NEAR(found[i], kept ? grads[i] : 0, bound) << kernel.provider << " " << i;
    }
  }
}

TEST(FakeQuantizeZeroPoints, ChecksAtTheFrontDoor) {
  const Format zeros = quant::by_zero_points(quant::integer_element(8, false, false)),
               int8{zeros.element, quant::Scaling::kIntegers};
  const BoundOps ops = bind_kernel<FakeQuantize>("eager", {DType::kF32, zeros});
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  const auto call = [&](const Bounds& bounds, const Format& format) {
    return [=, &ops] {
      Tape tape;
      fake_quantize(tape, ops, tape.constant(f32({2, 24})), bounds, format);
    };
  };
  expect_error(call({{}, f32({1, 1})}, zeros), "[fake_quantize] low is missing");
  expect_error(call({f32({1, 1}), f32({1, 1})}, int8),
               "[fake_quantize] low is given, and the format has no zero points");
  expect_error(call({f32({2, 1}), f32({1, 1})}, zeros),
               "[fake_quantize] low is [2, 1], amax is [1, 1]: both are of the same elements");
  expect_error(call({f32({1, 1}).to(DType::kBF16), f32({1, 1})}, zeros),
               "[fake_quantize] low is bfloat16, needs float32");
}

}  // namespace
}  // namespace temper::ops::zero_points_test
