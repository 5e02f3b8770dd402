#include "ops/fake_quantize/fake_quantize.h"

#include <cmath>
#include <limits>

#include "base/json/json.h"
#include "quant/number_format.h"
#include "tests/support/decoded.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;
using quant::Format;

const RequiredKernels<FakeQuantize> kFakeQuantizeKernels{
    {.format = {quant::kE4M3, quant::Scaling::kFloats}},
    kAll,
    {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kAll}}};

// The nearest number of a format by search in double precision, ties to the even code.
double nearest(const quant::Element& element, double x) {
  double best = element.lowest;
  uint8_t best_code = 0;
  for (int code = 0; code < 1 << element.bits; ++code) {
    const double number = quant::number_of(element, static_cast<uint8_t>(code));
    if (!(number >= element.lowest && number <= element.largest)) continue;
    const double near = std::fabs(number - x), so_far = std::fabs(best - x);
    if (near < so_far || (near == so_far && best_code % 2 == 1)) {
      best = number;
      best_code = static_cast<uint8_t>(code);
    }
  }
  return best;
}

float amax_of_element(const quant::Groups& groups, const Tensor& amax, int64_t i) {
  const int64_t row = i / groups.columns, column = i % groups.columns;
  return amax.values<float>()[static_cast<size_t>(groups.first(row) + column / groups.width())];
}

// The scale that an element is divided by, in double precision (of E4M3 where the format says so).
double scale_of(const Format& format, double block, double amax) {
  if (!format.has_blocks()) return amax / format.element.largest;
  if (format.scaling == quant::Scaling::kPowersOfTwo)
    return std::exp2(std::ceil(std::log2(block / format.element.largest)));
  const double global = amax / 2688;
  return nearest(quant::kE4M3, std::max(block / (6 * global), 0x1p-9)) * global;
}

Doubles reference(const Format& format, const Shape& shape, const Tensor& amax, const Doubles& x) {
  const quant::Groups groups = quant::groups_of(
      "x", shape, amax.defined() ? amax.shape() : (shape.ndim() == 3 ? Shape{1, 1, 1} : Shape{1, 1}));
  Doubles y;
  for (size_t i = 0; i < x.size(); ++i) {
    double block = 0;
    if (format.has_blocks())
      for (size_t b = i / static_cast<size_t>(format.block) * static_cast<size_t>(format.block), n = 0;
           n < static_cast<size_t>(format.block); ++n)
        block = std::max(block, std::fabs(x[b + n]));
    const double of = amax.defined() ? amax_of_element(groups, amax, static_cast<int64_t>(i)) : 0;
    const double scale = scale_of(format, block, of);
    y.push_back(block == 0 && format.has_blocks() ? 0 : nearest(format.element, x[i] / scale) * scale);
  }
  return y;
}

struct Example {
  Shape shape, amax;
  std::optional<Padding> padding = {};
  std::string inputs = "amax";
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
      {{300, 320}, {1, 1}},
      {{3, 4, 64}, {3, 1, 1}, Padding{1, 1, 2}},
      {{5, 64}, {5, 1}, Padding{1, 3, 4}},
  };
  return all;
}

Tensor amax_in(const Format& format, const Example& example, const Tensor& x, float share) {
  if (!format.needs_amax()) return {};
  Shape shape = example.amax;
  if (format.has_blocks()) shape[shape.ndim() - 1] = shape[shape.ndim() - 2] = 1;
  const Tensor amax = quant::amax_of(x, shape);
  for (float& value : amax.values<float>()) value *= share;
  return amax;
}

Tensor fake(const BoundKernel& kernel, const Tensor& x, const Tensor& amax, const Format& format) {
  Tape tape(false);
  const Tensor on = amax.defined() ? amax.on(kernel.device) : amax;
  return fake_quantize(tape, kernel.ops, tape.constant(x.on(kernel.device)), on, format).value.on({});
}

// What is rounded in float32 may be the neighbour of what double precision gives: one step of the format, for
// few elements.
TEST(FakeQuantize, NearestNumbersInDoublePrecision) {
  for (const auto& [name, format] : quant::formats().entries())
    for (const Example& example : examples()) {
      SCOPED_TRACE(fmt::format("{} {}", name, to_string(example.shape)));
      Tensor x = tensor_of(normal(3, example.shape, 0.3), example.shape, DType::kF32);
      if (format.element.lowest == 0)
        for (float& value : x.values<float>()) value = std::fabs(value);
      const Tensor amax = amax_in(format, example, x, 0.7f);
      const Doubles wanted = reference(format, example.shape, amax, values_of(x));
      for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({DType::kF32, format})) {
        const Doubles found = values_of(fake(kernel, x, amax, format));
        int apart = 0;
        for (size_t i = 0; i < found.size(); ++i)
          apart += std::fabs(found[i] - wanted[i]) > 1e-6 * std::fabs(wanted[i]) ? 1 : 0;
        EXPECT_LE(apart, static_cast<int>(found.size() / 2000)) << kernel.provider;
      }
    }
}

// What fakes a format is what encodes it: bit by bit, in every dtype and layout.
TEST(FakeQuantize, HasTheBitsOfDecodedCodes) {
  for (const auto& [name, format] : quant::formats().entries())
    for (const Example& example : examples())
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
        for (const float share : {1.f, 0.6f}) {
          SCOPED_TRACE(fmt::format("{} {} {}", name, to_string(example.shape), to_string(dtype)));
          Doubles values = normal(4, example.shape, 0.3);
          for (size_t i = 0; i < 40; ++i) values[i] = i < 35 ? 0 : -0.0;
          if (format.element.lowest == 0)
            for (double& value : values) value = std::fabs(value);
          const Tensor x = tensor_of(values, example.shape, dtype);
          const Tensor amax = amax_in(format, example, x, share);
          const quant::Encoded encoded = quant::encode(name, format, x, amax);
          const auto wanted = bits_of(quant::decode(format, encoded, dtype));
          for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({dtype, format})) {
            const Tensor laid_out = example.padding ? padded_tensor_of(values, example.shape, dtype,
                                                                       *example.padding, kernel.device)
                                                    : x;
            EXPECT_EQ(bits_of(fake(kernel, laid_out, amax, format)), wanted) << kernel.provider;
          }
        }
}

TEST(FakeQuantize, TinyHugeAndInfiniteValuesHaveTheSameBitsInEveryKernel) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> scales{0, 1e-44f, 1e-38f, 0x1p-24f, 1, 1e30f, 3e38f, kInfinity, NAN};
  std::vector<float> limits = scales;
  limits.push_back(1e15f);
  limits.push_back(std::bit_cast<float>(0x7FFFFFFF));  // NaN of other bits
  Doubles values;
  for (const float scale : scales)
    for (const double value : normal(5, {64})) values.push_back(static_cast<float>(value / 4) * scale);
  values[3] = kInfinity;
  values[40] = NAN;
  const Shape shape{static_cast<int64_t>(scales.size()), 64};
  const auto compare = [&](const std::string& name, const Format& format, const Shape& groups, DType dtype) {
    const Tensor x = tensor_of(values, shape, dtype);
    std::vector<Tensor> amaxes{amax_in(format, {shape, groups}, x, 1)};
    if (format.needs_amax())
      for (const float amax : limits) {
        amaxes.push_back(Tensor::zeros(amaxes[0].shape(), DType::kF32));
        for (float& value : amaxes.back().values<float>()) value = amax;
      }
    for (const Tensor& amax : amaxes) {
      const auto wanted =
          bits_of(fake({"eager", bind_kernel<FakeQuantize>("eager", {dtype, format})}, x, amax, format));
      for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({dtype, format}))
        EXPECT_EQ(bits_of(fake(kernel, x, amax, format)), wanted)
            << kernel.provider << " " << name << " " << to_string(dtype);
    }
  };
  for (const auto& [name, format] : quant::formats().entries())
    for (const Shape& groups : {Shape{1, 1}, Shape{shape[0], 1}, Shape{shape[0], 2}})
      for (const DType dtype : {DType::kF32, DType::kBF16}) compare(name, format, groups, dtype);
}

// One call for all experts gives what a call for each gives.
TEST(FakeQuantize, ExpertsTogetherAreExpertsAlone) {
  const Shape shape{5, 6, 64};
  const Tensor x = tensor_of(normal(6, shape, 0.2), shape, DType::kBF16);
  const Format& format = quant::format_named("int8");
  const Tensor amax = quant::amax_of(x, {5, 1, 1});
  for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({DType::kBF16, format})) {
    const Tensor all = fake(kernel, x, amax, format);
    for (int64_t e = 0; e < 5; ++e) {
      const Tensor own = x.narrow(0, e, 1).reshape({6, 64}), of = amax.narrow(0, e, 1).reshape({1, 1});
      EXPECT_EQ(bits_of(fake(kernel, own, of, format)), bits_of(all.narrow(0, e, 1))) << kernel.provider;
    }
  }
}

TEST(FakeQuantize, GradientsPassOrAreClipped) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const bool clips : {false, true})
      for (const bool strided : {false, true}) {
        const Shape shape{2, 3, 40};
        Doubles values = normal(7, shape);
        values[5] = 0.75;  // at amax: kept
        values[6] = -0.75;
        values[7] = NAN;
        const Tensor x = tensor_of(values, shape, dtype), grads = tensor_of(normal(8, shape), shape, dtype);
        const Tensor amax = Tensor::from<float>(std::vector<float>{0.75f, 1}, {2, 1, 1});
        for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({dtype, quant::format_named("fp8")})) {
          Tape tape;
          const Var v = tape.variable(x.on(kernel.device));
          const Var y =
              fake_quantize(tape, kernel.ops, v, amax.on(kernel.device), quant::format_named("fp8"), clips);
          const Tensor dy = strided
                                ? padded_tensor_of(normal(8, shape), shape, dtype, {1, 1, 2}, kernel.device)
                                : grads.on(kernel.device);
          tape.backward(y, dy);
          const Doubles found = values_of(v.slot->take()), given = values_of(dy), own = values_of(x);
          for (size_t i = 0; i < found.size(); ++i) {
            const bool kept = !clips || std::fabs(own[i]) <= (i < 120 ? 0.75 : 1);
            EXPECT_EQ(found[i], kept ? given[i] : 0) << kernel.provider << " " << i;
          }
        }
      }
}

// Weights of bfloat16 have gradients of float32.
TEST(FakeQuantize, GradientsOfFloat32ForNarrowerValues) {
  const Shape shape{3, 40};
  const Tensor x = tensor_of(normal(7, shape), shape, DType::kBF16);
  const Tensor dy = tensor_of(normal(8, shape), shape, DType::kBF16).to(DType::kF32);
  const Tensor amax = Tensor::from<float>(std::vector<float>{0.75f}, {1, 1});
  for (const BoundKernel& kernel :
       bind_everywhere<FakeQuantize>({DType::kBF16, quant::format_named("fp8")})) {
    Tape tape;
    const Var v = tape.variable(x.on(kernel.device));
    const Var y =
        fake_quantize(tape, kernel.ops, v, amax.on(kernel.device), quant::format_named("fp8"), true);
    tape.backward(y, dy.on(kernel.device));
    const Doubles found = values_of(v.slot->take()), given = values_of(dy), own = values_of(x);
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(found[i], std::fabs(own[i]) <= 0.75 ? given[i] : 0) << kernel.provider << " " << i;
  }
}

// A parameter that is kept as one matrix [experts · rows, columns], over two tapes, in the first of which two
// readers give the gradient: what is clipped stays 0, the rest adds up, in the buffer that was there.
TEST(FakeQuantize, GradientsOfParametersAreFormedInTheirOwnMemory) {
  const Shape shape{6, 40}, of_experts{2, 3, 40};
  const Format& format = quant::format_named("fp8");
  const Tensor x = tensor_of(normal(7, shape), shape, DType::kBF16);
  const Tensor amax = Tensor::from<float>(std::vector<float>{0.75f, 1}, {2, 1, 1});
  const Doubles first = normal(8, shape), second = normal(9, shape);
  for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({DType::kBF16, format})) {
    Parameter parameter{x.on(kernel.device), std::make_shared<GradSlot>()};
    const Tensor buffer = Tensor::empty(shape, DType::kF32, MemoryTag::kGradients, kernel.device);
    parameter.grad->set_buffer(buffer);
    for (const Doubles* grads : {&first, &second}) {
      Tape tape;
      const Var y = fake_quantize_parameter(tape, kernel.ops, tape.leaf(parameter), amax.on(kernel.device),
                                            format, {of_experts, true, {}});
      EXPECT_EQ(y.shape(), shape);
      const Tensor dy = tensor_of(*grads, shape, DType::kF32).on(kernel.device);
      if (grads == &first) y.slot->add(dy);
      tape.backward(y, dy);
    }
    const Doubles found = values_of(buffer), own = values_of(x);
    for (size_t i = 0; i < found.size(); ++i) {
      const bool kept = std::fabs(own[i]) <= (i < 120 ? 0.75 : 1);
      // `eager` rounds each contribution to the value's dtype.
      const double bound = kept && kernel.provider == "eager" ? 0.02 : 1e-5;
      EXPECT_NEAR(found[i], kept ? 2 * first[i] + second[i] : 0, bound) << kernel.provider << " " << i;
    }
  }
}

TEST(FakeQuantize, GradientsClipAsInModelOpt) {
  const Json file =
      Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/quantizers/modelopt.json");
  const auto floats = [](const Json& bits) {
    std::vector<float> values;
    for (const Json& value : bits.as_array())
      values.push_back(std::bit_cast<float>(static_cast<int32_t>(value.as_int())));
    return values;
  };
  const auto shape = [](const Json& sizes) {
    return Shape{sizes.as_array()[0].as_int(), sizes.as_array()[1].as_int()};
  };
  for (const Json& c : file.at("cases").as_array()) {
    if (c.find("kept") == nullptr) continue;
    const Format& format = quant::format_named(c.at("format").as_string());
    const Tensor x = Tensor::from<float>(floats(file.at("inputs").at(c.at("input").as_string())),
                                         shape(file.at("shape"))),
                 amax = Tensor::from<float>(floats(c.at("amax")), shape(c.at("amax_shape")));
    for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({DType::kF32, format})) {
      Tape tape;
      const Var v = tape.variable(x.on(kernel.device));
      const Var y = fake_quantize(tape, kernel.ops, v, amax.on(kernel.device), format, true);
      tape.backward(
          y,
          tensor_of(Doubles(static_cast<size_t>(x.numel()), 1.0), x.shape(), DType::kF32).on(kernel.device));
      std::string kept;
      for (const double grad : values_of(v.slot->take())) kept += grad != 0 ? '1' : '0';
      EXPECT_EQ(kept, c.at("kept").as_string()) << kernel.provider << " " << c.at("format").as_string();
    }
  }
}

TEST(FakeQuantize, ChecksAtTheFrontDoor) {
  const Format fp8 = quant::format_named("fp8"), nvfp4 = quant::format_named("nvfp4");
  const BoundOps ops = bind_kernel<FakeQuantize>("eager", {DType::kF32, fp8});
  Tape tape;
  const auto call = [&](const Tensor& x, const Tensor& amax, const Format& format, bool clips = false) {
    return [&tape, &ops, x, amax, format, clips] {
      fake_quantize(tape, ops, tape.constant(x), amax, format, clips);
    };
  };
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  const Tensor x = f32({2, 24}), one = f32({1, 1});
  expect_error(call({}, one, fp8), "[fake_quantize] x is missing");
  expect_error(call(f32({24}), one, fp8),
               "[fake_quantize] x is [24], needs [rows, columns] or [experts, rows, columns]");
  expect_error(call(x, {}, fp8), "[fake_quantize] amax is missing");
  expect_error(call(x, one, quant::format_named("mxfp8")),
               "[fake_quantize] amax is given, and the format needs none");
  expect_error(call(x, f32({3, 1}), fp8),
               "[fake_quantize] amax is [3, 1], needs 2 dimensions that divide those of x [2, 24]");
  expect_error(call(x, one.to(DType::kBF16), fp8), "[fake_quantize] amax is bfloat16, needs float32");
  expect_error(call(x, one, nvfp4), "[fake_quantize] x is [2, 24], needs columns in blocks of 16");
  expect_error(call(f32({2, 32}), f32({2, 1}), nvfp4),
               "[fake_quantize] amax is [2, 1], the format needs one for each matrix");
  expect_error(
      call(f32({2, 32}), one, nvfp4, true),
      "[fake_quantize] clips is for formats with a given amax, this one finds the scales of its blocks");
  Tape other;
  EXPECT_EQ(fake_quantize(other, ops, other.constant(f32({0, 24})), one, fp8).value.numel(), 0);
}

}  // namespace
}  // namespace temper::ops
