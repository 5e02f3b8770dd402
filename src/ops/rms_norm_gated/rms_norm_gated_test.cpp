#include "ops/rms_norm_gated/rms_norm_gated.h"

#include <cmath>

#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<RmsNormGated> kRmsNormGatedKernels{
    {.dim = 128}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};

struct Setup {
  int64_t tokens = 5, heads = 3, dim = 16;
  float eps = 1e-6f;
  double scale = 1;
  bool fused = false;        // the gate is a part of wider rows
  bool wide_weight = false;  // float32, whatever the dtype
};

Case make_case(const Setup& s) {
  const Shape shape{s.tokens, s.heads, s.dim};
  Case c;
  c.name = fmt::format("{}, scale {}{}", to_string(shape), s.scale, s.fused ? ", fused" : "");
  c.inputs = {
      {"x", shape, normal(1, shape, s.scale)},
      {"gate", shape, normal(2, shape, 2)},
      {"weight", {s.dim}, normal(3, {s.dim}, 0.3, 1), s.wide_weight ? Role::kVariable : Role::kParameter}};
  if (s.fused) c.inputs[1].padding = {1, 2, 1};
  c.terms = std::max(s.dim, s.tokens * s.heads);
  c.reference = [s](const std::vector<Doubles>& inputs) {
    const Doubles &x = inputs[0], &gate = inputs[1], &weight = inputs[2];
    Doubles y;
    for (size_t row = 0; row < x.size(); row += static_cast<size_t>(s.dim)) {
      double sum = 0;
      for (int64_t i = 0; i < s.dim; ++i) sum += x[row + i] * x[row + i];
      const double rms = std::sqrt(sum / static_cast<double>(s.dim) + s.eps);
      for (int64_t i = 0; i < s.dim; ++i)
        y.push_back(x[row + i] / rms * weight[i] * gate[row + i] / (1 + std::exp(-gate[row + i])));
    }
    return y;
  };
  c.run = [s](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    const Var weight = s.wide_weight ? primitives::cast(tape, v[2], DType::kF32) : v[2];
    return Result{rms_norm_gated(tape, ops, v[0], v[1], weight, s.eps), {}};
  };
  return c;
}

void check(const Setup& s) { check_every_kernel<RmsNormGated>(make_case(s), {.dim = s.dim}); }

TEST(RmsNormGated, EveryKernelAgrees) {
  for (const int64_t dim : {1, 7, 16, 64, 100, 128, 256}) check({.dim = dim, .eps = dim == 1 ? 0.1f : 1e-6f});
  check({.tokens = 300, .heads = 2});
  check({.tokens = 700, .heads = 4, .dim = 32});
  check({.tokens = 1, .heads = 1});
  check({.tokens = 0});
}

TEST(RmsNormGated, GatesOfWiderRows) {
  check({.fused = true});
  check({.tokens = 40, .heads = 4, .dim = 128, .fused = true});
}

TEST(RmsNormGated, WeightsInFloat32) { check({.dim = 64, .wide_weight = true}); }

TEST(RmsNormGated, LargeAndSmallValues) {
  check({.scale = 100});
  check({.eps = 1e-2f, .scale = 1e-2});
}

TEST(RmsNormGated, RowsOfZeros) {
  Case c = make_case({.eps = 1e-2f});
  for (size_t i = 16; i < 64; ++i) c.inputs[0].values[i] = 0;
  check_every_kernel<RmsNormGated>(c, {.dim = 16});
}

TEST(RmsNormGated, AHundredPassesGiveTheSameBits) {
  Case c = make_case({.tokens = 40, .heads = 2, .dim = 64});
  c.repeats = 100;
  check_every_kernel<RmsNormGated>(c, {.dim = 64});
}

TEST(RmsNormGated, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<RmsNormGated>("eager", {});
  Tape tape;
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  const auto call = [&](const Tensor& x, const Tensor& gate, const Tensor& weight, float eps = 1e-6f) {
    return [&tape, &ops, x, gate, weight, eps] {
      rms_norm_gated(tape, ops, tape.constant(x), tape.constant(gate), tape.constant(weight), eps);
    };
  };
  const Tensor x = f32({2, 3, 8}), weight = f32({8});
  expect_error(call({}, x, weight), "[rms_norm_gated] x is missing");
  expect_error(call(f32({2, 8}), x, weight), "[rms_norm_gated] x is [2, 8], needs 3 dimensions");
  expect_error(call(x, f32({2, 3, 7}), weight), "[rms_norm_gated] gate is [2, 3, 7], needs [2, 3, 8]");
  expect_error(call(x, x.to(DType::kBF16), weight), "[rms_norm_gated] gate is bfloat16, needs float32");
  expect_error(call(x, x, f32({7})), "[rms_norm_gated] weight is [7], needs [8]");
  expect_error(call(x, x, weight.to(DType::kBF16)), "[rms_norm_gated] weight is bfloat16, needs float32");
  expect_error(call(x, x, weight, -1), "[rms_norm_gated] eps is -1, needs a value of 0 or more");
  expect_error(call(x, f32({2, 8, 3}).transpose(1, 2), weight),
               "[rms_norm_gated] gate [2, 3, 8] has strides [24, 1, 3], needs them without gaps");
}

}  // namespace
}  // namespace temper::ops
