#include "ops/rms_norm/rms_norm.h"

#include <cmath>

#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<RmsNorm> kRmsNormKernels{
    {.hidden = 1024},
    kAll,
    {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide, [](const RmsNorm::Signature& s) {
                                       return s.hidden <= 8192 || (s.hidden % 8 == 0 && s.hidden <= 32768);
                                     }}}};

Doubles reference(int64_t hidden, double eps, const Doubles& x, const Doubles& weight, double offset = 0) {
  Doubles y;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(hidden)) {
    double sum = 0;
    for (int64_t i = 0; i < hidden; ++i) sum += x[row + i] * x[row + i];
    const double rms = std::sqrt(sum / static_cast<double>(hidden) + eps);
    for (int64_t i = 0; i < hidden; ++i) y.push_back(x[row + i] / rms * (offset + weight[i]));
  }
  return y;
}

struct Options {
  float eps = 1e-6f;
  double scale = 1;
  std::optional<Padding> padding = {};
  Role role = Role::kParameter;
  float offset = 0;
};

Case make_case(const Shape& shape, const Options& options) {
  const int64_t hidden = shape[shape.ndim() - 1];
  Case c;
  c.name = fmt::format("{}, scale {}{}", to_string(shape), options.scale, options.padding ? ", strided" : "");
  c.inputs = {{"x", shape, normal(1, shape, options.scale), Role::kVariable, options.padding},
              {"weight", {hidden}, normal(2, {hidden}, 0.3, 1 - options.offset), options.role}};
  c.reference = [hidden, options](const std::vector<Doubles>& inputs) {
    return reference(hidden, options.eps, inputs[0], inputs[1], options.offset);
  };
  c.run = [options](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    return Result{add_rms_norm(tape, ops, v[0], {}, v[1], options.eps, options.offset).y, {}};
  };
  c.terms = std::max(hidden, shape.numel() / hidden);
  return c;
}

void check(const Shape& shape, const Options& options = {}) {
  check_every_kernel<RmsNorm>(make_case(shape, options),
                              {.hidden = shape[shape.ndim() - 1], .offset = options.offset});
}

// x + residual and its norm side by side, [rows, 2 hidden]: both have gradients.
void check_sum(int64_t rows, int64_t hidden, Role role = Role::kParameter, float offset = 0) {
  const Shape shape{rows, hidden};
  Case c;
  c.name = fmt::format("{} with a residual", to_string(shape));
  c.inputs = {{"x", shape, normal(1, shape)},
              {"residual", shape, normal(2, shape, 0.5)},
              {"weight", {hidden}, normal(3, {hidden}, 0.3, 1 - offset), role}};
  c.reference = [=](const std::vector<Doubles>& inputs) {
    Doubles sum, both;
    for (size_t i = 0; i < inputs[0].size(); ++i) sum.push_back(inputs[0][i] + inputs[1][i]);
    const Doubles y = reference(hidden, 1e-3, sum, inputs[2], offset);
    for (int64_t row = 0; row < static_cast<int64_t>(sum.size()); row += hidden) {
      both.insert(both.end(), sum.begin() + row, sum.begin() + row + hidden);
      both.insert(both.end(), y.begin() + row, y.begin() + row + hidden);
    }
    return both;
  };
  c.run = [offset](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    const NormedSum out = add_rms_norm(tape, ops, v[0], v[1], v[2], 1e-3f, offset);
    return Result{primitives::concat_last(tape, out.sum, out.y), {}};
  };
  c.terms = std::max(hidden, rows);
  c.roundings = 2;  // the sum's, before the norm
  check_every_kernel<RmsNorm>(c, {.hidden = hidden, .offset = offset});
}

TEST(RmsNorm, WithAResidual) {
  for (const int64_t hidden : {7, 64, 513})
    for (const int64_t rows : {1, 33}) check_sum(rows, hidden);
  check_sum(300, 40);
  check_sum(2300, 64);
  check_sum(0, 16);
  check_sum(3, 9, Role::kVariable);
}

// Of one output only, whichever: what did not arrive counts as zero.
TEST(RmsNorm, EitherGradientMayBeMissing) {
  const Shape shape{5, 24};
  const auto tensor = [&](uint64_t seed, DType dtype) {
    return tensor_of(normal(seed, shape), shape, dtype);
  };
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const BoundKernel& kernel : bind_every_kernel<RmsNorm>({dtype, 24})) {
      SCOPED_TRACE(kernel.provider);
      Tape tape;
      const Var x = tape.variable(tensor(1, dtype)), residual = tape.variable(tensor(2, dtype)),
                weight = tape.variable(tensor_of(normal(3, {24}), {24}, dtype));
      const NormedSum one = add_rms_norm(tape, kernel.ops, x, residual, weight, 1e-3f);
      tape.backward(one.sum, tensor(4, dtype));
      EXPECT_EQ(values_of(x.slot->take()), values_of(tensor(4, dtype)));
      EXPECT_EQ(values_of(residual.slot->take()), values_of(tensor(4, dtype)));
      EXPECT_FALSE(weight.slot->filled());
      const NormedSum other = add_rms_norm(tape, kernel.ops, x, residual, weight, 1e-3f);
      tape.backward(other.y, tensor(5, dtype));
      const Var sum = tape.variable(other.sum.value);
      tape.backward(add_rms_norm(tape, kernel.ops, sum, {}, weight, 1e-3f).y, tensor(5, dtype));
      const Doubles alone = values_of(sum.slot->take());
      EXPECT_EQ(values_of(x.slot->take()), alone);
      EXPECT_EQ(values_of(residual.slot->take()), alone);
    }
}

// A tape that rematerialises: the sum alone gives the norm again, bit by bit.
TEST(RmsNorm, IsMadeAgainFromTheSum) {
  const Tensor x = tensor_of(normal(1, {9, 40}), {9, 40}, DType::kBF16),
               residual = tensor_of(normal(2, {9, 40}), {9, 40}, DType::kBF16),
               weight = tensor_of(normal(3, {40}), {40}, DType::kBF16);
  for (const BoundKernel& kernel : bind_every_kernel<RmsNorm>({DType::kBF16, 40})) {
    Tape plain, saving(TapeOptions{.rematerialize = true});
    const auto call = [&](Tape& tape) {
      return add_rms_norm(tape, kernel.ops, tape.variable(x), tape.constant(residual), tape.constant(weight),
                          1e-6f);
    };
    EXPECT_EQ(call(plain).y.remake, nullptr) << kernel.provider;
    const NormedSum out = call(saving);
    EXPECT_EQ(out.sum.remake, nullptr) << kernel.provider;
    EXPECT_EQ(out.y.remake != nullptr, kernel.provider != kEager) << kernel.provider;
    EXPECT_EQ(values_of(out.y.saved().get()), values_of(out.y.value)) << kernel.provider;
  }
}

TEST(RmsNorm, EveryKernelAgrees) {
  for (const int64_t hidden : {7, 64, 100, 513})
    for (const int64_t rows : {1, 3, 33}) check({rows, hidden});
  check({5});
  check({2, 3, 4, 16});
  check({300, 40});
  check({700, 100});
  check({3000, 33});
  check({3, 4104});
  check({2, 16'400});
  check({3, 9}, {.role = Role::kVariable});
}

TEST(RmsNorm, WeightsAsDistancesFromOne) {
  for (const int64_t hidden : {7, 64, 513}) check({33, hidden}, {.offset = 1});
  check({3000, 33}, {.offset = 1});
  check({5, 33}, {.padding = Padding{1, 3, 4}, .offset = 1});
  for (const int64_t hidden : {7, 64}) check_sum(33, hidden, Role::kParameter, 1);
}

// With one element y is the sign of x times the weight: the gradient of x is eps-sized.
TEST(RmsNorm, HiddenOfOne) {
  check({1, 1}, {.eps = 0.1f});
  check({4, 1}, {.eps = 0.5f});
}

TEST(RmsNorm, StridedRows) {
  check({5, 33}, {.padding = Padding{1, 3, 4}});
  check({6, 2, 16}, {.padding = Padding{1, 1, 2}});  // as heads of a fused tensor
  check({2, 3, 64}, {.padding = Padding{2, 0, 64}});
  check({4, 100}, {.padding = Padding{0, 1, 1}});
}

TEST(RmsNorm, LargeAndSmallValues) {
  check({4, 64}, {.scale = 100});
  check({4, 64}, {.eps = 1e-2f, .scale = 1e-2});
  check({3, 65}, {.eps = 1});
}

TEST(RmsNorm, RowsOfZeros) {
  Case c = make_case({4, 24}, {.eps = 1e-2f});
  for (size_t i = 24; i < 72; ++i) c.inputs[0].values[i] = 0;
  check_every_kernel<RmsNorm>(c, {.hidden = 24});
}

TEST(RmsNorm, NoRows) { check({0, 16}); }

TEST(RmsNorm, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<RmsNorm>("eager", {});
  Tape tape;
  const auto call = [&](const Tensor& x, const Tensor& weight, float eps = 1e-6f) {
    return [&tape, &ops, x, weight, eps] {
      add_rms_norm(tape, ops, tape.constant(x), {}, tape.constant(weight), eps);
    };
  };
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  const Tensor x = f32({2, 8}), weight = f32({8});
  expect_error(call({}, weight), "[rms_norm] x is missing");
  expect_error(call(x, {}), "[rms_norm] weight is missing");
  expect_error(call(f32({}), weight), "[rms_norm] x is a scalar, needs [..., hidden]");
  expect_error(call(x, f32({7})), "[rms_norm] weight is [7], needs [8]");
  expect_error(call(x, f32({1, 8})), "[rms_norm] weight is [1, 8], needs [8]");
  expect_error(call(x, weight.to(DType::kBF16)), "[rms_norm] weight is bfloat16, needs float32");
  expect_error(call(Tensor::zeros({2, 8}, DType::kI32), weight),
               "[rms_norm] x is int32, needs float32, bfloat16 or float16");
  expect_error(call(f32({8, 2}).transpose(0, 1), weight),
               "[rms_norm] x [2, 8] has strides [1, 2], needs them without gaps");
  const auto add = [&](const Tensor& x, const Tensor& residual) {
    return [&tape, &ops, &weight, x, residual] {
      add_rms_norm(tape, ops, tape.constant(x), tape.constant(residual), tape.constant(weight), 1e-6f);
    };
  };
  expect_error(add(x, f32({1, 8})), "[rms_norm] residual is [1, 8], needs [2, 8]");
  expect_error(add(x, x.to(DType::kBF16)), "[rms_norm] residual is bfloat16, needs float32");
  const Tensor wide = f32({2, 9}).narrow(1, 0, 8);
  expect_error(add(x, wide), "[rms_norm] residual [2, 8] has strides [9, 1], needs them without gaps");
  expect_error(add(wide, x), "[rms_norm] x [2, 8] has strides [9, 1], needs them without gaps");
  expect_error(call(x, weight, -1), "[rms_norm] eps is -1, needs a value of 0 or more");
  expect_error(call(x, weight, std::nanf("")), "[rms_norm] eps is nan, needs a value of 0 or more");
}

}  // namespace
}  // namespace temper::ops
