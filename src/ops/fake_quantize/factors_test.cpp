// Fake quantization between factors of columns.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "ops/fake_quantize/fake_quantize.h"
#include "primitives/fake_quantized.h"
#include "quant/number_format.h"
#include "tests/support/decoded.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;
using quant::Format;

std::vector<uint32_t> float_bits(const Tensor& tensor) {
  const Tensor wide = tensor.to(DType::kF32).contiguous();
  std::vector<uint32_t> bits;
  for (const float value : wide.values<float>()) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

// Some values are beyond it.
Tensor cutting_amax(const Format& format, Shape groups, const Tensor& x) {
  if (!format.needs_amax()) return {};
  if (format.has_blocks()) groups[groups.ndim() - 1] = groups[groups.ndim() - 2] = 1;
  const Tensor amax = quant::amax_of(x, groups);
  for (float& value : amax.values<float>()) value *= 0.7f;
  return amax;
}

// Factors of columns, [1, columns] or of each expert, and what one is divided by them.
ColumnFactors factors_for(const Shape& shape, Device device) {
  Shape of = shape;
  of[shape.ndim() - 2] = 1;
  const Tensor by = tensor_of(normal(11, of), of, DType::kF32), back = Tensor::empty(of, DType::kF32);
  for (int64_t i = 0; i < by.numel(); ++i) {
    by.data<float>()[i] = 0.25f + std::fabs(by.data<float>()[i]);
    back.data<float>()[i] = 1 / by.data<float>()[i];
  }
  return {by.on(device), back.on(device)};
}

// The codes are those of the product, and what comes back is divided again, in float32.
TEST(FakeQuantizeFactors, FactorsOfColumnsGoBeforeRoundingAndComeBackAfterwards) {
  const std::pair<Shape, Shape> examples[] = {{{6, 96}, {6, 1}},
                                              {{4, 128}, {4, 4}},
                                              {{300, 320}, {1, 1}},
                                              {{3, 4, 64}, {3, 1, 1}},
                                              {{4, 2, 32}, {4, 2, 1}}};
  for (const auto& [name, format] : quant::formats().entries())
    for (const auto& [shape, groups] : examples)
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        if (format.element.lowest == 0) continue;
        SCOPED_TRACE(fmt::format("{} {} {}", name, to_string(shape), to_string(dtype)));
        const Tensor x = tensor_of(normal(4, shape, 0.3), shape, dtype);
        const ColumnFactors factors = factors_for(shape, {});
        const int64_t columns = x.dim(-1), rows = x.dim(-2);
        const auto times = [&](const Tensor& values, const Tensor& by) {
          const Tensor y = values.to(DType::kF32).clone();
          for (int64_t i = 0; i < y.numel(); ++i)
            y.data<float>()[i] *=
                by.data<float>()[i % columns + (by.ndim() == 3 ? i / columns / rows * columns : 0)];
          return y;
        };
        const Tensor scaled = times(x, factors.by), amax = cutting_amax(format, groups, scaled);
        const auto wanted = float_bits(
            times(quant::decode(format, quant::encode(name, format, scaled, amax), DType::kF32), factors.back)
                .to(dtype));
        for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({DType::kF32, format})) {
          Tape tape(false);
          const Var y = fake_quantize(tape, kernel.ops, tape.constant(x.on(kernel.device)),
                                      amax.defined() ? amax.on(kernel.device) : amax, format, false,
                                      factors_for(shape, kernel.device));
          EXPECT_EQ(float_bits(y.value.on({})), wanted) << kernel.provider;
        }
      }
}

// What is rounded twice, by loops over what a file has: codes, the scales of blocks and the one of the whole.
Tensor twice_by_loops(const Tensor& scaled, const Tensor& amax, const Tensor& second) {
  const Tensor y = Tensor::empty(scaled.shape(), DType::kF32);
  const quant::Groups blocks = quant::groups_of("", scaled.shape(), amax.shape()),
                      wholes = quant::groups_of("", scaled.shape(), second.shape());
  for (int64_t i = 0; i < y.numel(); ++i) {
    const int64_t row = i / blocks.columns, column = i % blocks.columns;
    const float scale = amax.data<float>()[blocks.first(row) + column / blocks.width()] / 7,
                whole = second.data<float>()[wholes.first(row)] / 448;
    // Codes of integers have no -0.
    const float code =
        scale > 0 ? std::clamp(std::nearbyint(scaled.data<float>()[i] / scale), -8.f, 7.f) + 0.f : 0;
    y.data<float>()[i] = quant::round_to(quant::kE4M3, code * scale / whole) * whole;
  }
  return y;
}

// INT4 in blocks, then FP8 of the whole, as readers of files compute it, between factors of columns or
// without them; everything is float32 before it is rounded to the dtype.
TEST(FakeQuantizeFactors, WhatIsRoundedTwiceIsWhatReadersOfFilesCompute) {
  const Format int4 = quant::by_scales(quant::format_named("int4").element),
               fp8 = quant::by_scales(quant::kE4M3);
  const std::tuple<Shape, Shape, Shape> examples[] = {
      {{6, 96}, {6, 6}, {1, 1}}, {{3, 40, 64}, {3, 40, 2}, {3, 1, 1}}, {{2, 8, 32}, {1, 8, 2}, {1, 1, 1}}};
  for (const auto& [shape, groups, wholes] : examples)
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const bool with_factors : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", to_string(shape), to_string(dtype), with_factors));
        Tensor x = tensor_of(normal(21, shape, 0.3), shape, DType::kF32);
        for (int64_t i = 0; i < 16; ++i) x.data<float>()[i] = 0;  // a block of zeros
        x = x.to(dtype);
        const int64_t columns = x.dim(-1), rows = x.dim(-2);
        const auto times = [&](const Tensor& values, const Tensor& by) {
          const Tensor y = values.to(DType::kF32).clone();
          for (int64_t i = 0; with_factors && i < y.numel(); ++i)
            y.data<float>()[i] *=
                by.data<float>()[i % columns + (by.ndim() == 3 ? i / columns / rows * columns : 0)];
          return y;
        };
        const ColumnFactors factors = factors_for(shape, {});
        const Tensor scaled = times(x, factors.by), amax = cutting_amax(int4, groups, scaled),
                     second = quant::amax_of(amax, wholes);
        const auto wanted = float_bits(times(twice_by_loops(scaled, amax, second), factors.back).to(dtype));
        for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({DType::kF32, int4})) {
          Tape tape(false);
          const Var y = fake_quantize_parameter(
              tape, kernel.ops, tape.constant(x.on(kernel.device)), amax.on(kernel.device), int4,
              {.shape = shape,
               .factors = with_factors ? factors_for(shape, kernel.device) : ColumnFactors(),
               .again = {second.on(kernel.device), fp8}});
          EXPECT_EQ(float_bits(y.value.on({})), wanted) << kernel.provider;
        }
      }
}

// The second rounding cuts off no gradient that the first lets through.
TEST(FakeQuantizeFactors, GradientsOfWhatIsRoundedTwiceAreThoseOfTheFirstRounding) {
  const Format int4 = quant::by_scales(quant::format_named("int4").element),
               fp8 = quant::by_scales(quant::kE4M3);
  const Shape shape{6, 96};
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const bool with_factors : {false, true})
      for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({DType::kF32, int4})) {
        const Tensor x = tensor_of(normal(7, shape), shape, dtype),
                     grads = tensor_of(normal(8, shape), shape, dtype);
        const ColumnFactors factors = with_factors ? factors_for(shape, {}) : ColumnFactors();
        const Tensor scaled = with_factors ? primitives::scaled_columns(x, factors.by) : x.to(DType::kF32),
                     amax = cutting_amax(int4, {6, 6}, scaled), second = quant::amax_of(amax, {1, 1});
        Tape tape;
        const Var v = tape.variable(x.on(kernel.device));
        const Var y = fake_quantize_parameter(
            tape, kernel.ops, v, amax.on(kernel.device), int4,
            {.shape = shape,
             .clips = true,
             .factors = with_factors ? factors_for(shape, kernel.device) : ColumnFactors(),
             .again = {second.on(kernel.device), fp8}});
        tape.backward(y, grads.on(kernel.device));
        const Doubles found = values_of(v.slot->take()), given = values_of(grads), wide = values_of(scaled);
        int cut = 0;
        for (size_t i = 0; i < found.size(); ++i) {
          const bool kept = std::fabs(wide[i]) <= double{amax.data<float>()[i / 16]};
          EXPECT_EQ(found[i], kept ? given[i] : 0) << kernel.provider << " " << i;
          cut += kept ? 0 : 1;
        }
        EXPECT_GT(cut, 10);
      }
}

// Where |x · by| is beyond amax the gradient is 0, elsewhere it is as it came, in each dtype that it may
// have.
TEST(FakeQuantizeFactors, GradientsThroughFactorsOfColumns) {
  const Shape shape{2, 3, 40};
  const Format& format = quant::format_named("int8");
  const Tensor amax = Tensor::from<float>(std::vector<float>{0.75f, 1}, {2, 1, 1});
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const bool parameter : {false, true})
      for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({DType::kF32, format})) {
        const Tensor x = tensor_of(normal(7, shape), shape, dtype),
                     grads = tensor_of(normal(8, shape), shape, dtype);
        const ColumnFactors factors = factors_for(shape, kernel.device);
        Tape tape;
        const Var v = tape.variable(x.on(kernel.device).reshape(parameter ? Shape{6, 40} : shape));
        const Tensor of = amax.on(kernel.device);
        const Var y = parameter
                          ? fake_quantize_parameter(tape, kernel.ops, v, of, format, {shape, true, factors})
                          : fake_quantize(tape, kernel.ops, v, of, format, true, factors);
        tape.backward(y, grads.on(kernel.device).reshape(v.shape()));
        const Doubles found = values_of(v.slot->take()), given = values_of(grads), own = values_of(x),
                      by = values_of(factors.by);
        int cut = 0;
        for (size_t i = 0; i < found.size(); ++i) {
          const double product =
              static_cast<float>(own[i]) * static_cast<float>(by[i % 40 + (i < 120 ? 0u : 40u)]);
          const bool kept = std::fabs(product) <= (i < 120 ? 0.75 : 1);
          EXPECT_EQ(found[i], kept ? given[i] : 0) << kernel.provider << " " << i;
          cut += kept ? 0 : 1;
        }
        EXPECT_GT(cut, 10);
      }
}

TEST(FakeQuantizeFactors, AreCheckedAtTheFrontDoor) {
  const Format fp8 = quant::format_named("fp8");
  const BoundOps ops = bind_kernel<FakeQuantize>("eager", {DType::kF32, fp8});
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  const Tensor x = f32({2, 24}), one = f32({1, 1});
  Tape tape;
  const auto with_factors = [&](const Tensor& by, const Tensor& back) {
    return [&, by, back] { fake_quantize(tape, ops, tape.constant(x), one, fp8, false, {by, back}); };
  };
  expect_error(with_factors(f32({24}), f32({1, 24})),
               "[fake_quantize] factors.by is [24], x is [2, 24] and needs [1, 24]");
  expect_error(with_factors(f32({1, 24}), f32({1, 24}).to(DType::kBF16)),
               "[fake_quantize] factors.back is bfloat16, needs float32");
  const auto again = [&](const Tensor& amax, const Format& format) {
    return [&, amax, format] {
      fake_quantize_parameter(tape, ops, tape.constant(x), one, fp8,
                              {.shape = {2, 24}, .again = {amax, format}});
    };
  };
  expect_error(again(f32({5, 1}), fp8),
               "[fake_quantize] amax is [5, 1], needs 2 dimensions that divide those of x [2, 24]");
  expect_error(
      again(one, quant::format_named("nvfp4")),
      "[fake_quantize] again is for formats with a given amax, this one finds the scales of its blocks");
}

}  // namespace
}  // namespace temper::ops
