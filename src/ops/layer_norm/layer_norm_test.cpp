#include "ops/layer_norm/layer_norm.h"

#include <cmath>

#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<LayerNorm> kLayerNormKernels{
    {.hidden = 1152}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};

// inputs: x, weight, bias.
Doubles reference(int64_t hidden, double eps, const Doubles& x, const Doubles& weight, const Doubles& bias) {
  Doubles y;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(hidden)) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < hidden; ++i) sum += x[row + i];
    const double mean = sum / static_cast<double>(hidden);
    for (int64_t i = 0; i < hidden; ++i) squares += (x[row + i] - mean) * (x[row + i] - mean);
    const double deviation = std::sqrt(squares / static_cast<double>(hidden) + eps);
    for (int64_t i = 0; i < hidden; ++i) y.push_back((x[row + i] - mean) / deviation * weight[i] + bias[i]);
  }
  return y;
}

struct Options {
  float eps = 1e-6f;
  double scale = 1, mean = 0;
  Role role = Role::kParameter;
};

Case make_case(const Shape& shape, const Options& options) {
  const int64_t hidden = shape[shape.ndim() - 1];
  Case c;
  c.name = fmt::format("{}, scale {}, mean {}", to_string(shape), options.scale, options.mean);
  c.inputs = {{"x", shape, normal(1, shape, options.scale, options.mean)},
              {"weight", {hidden}, normal(2, {hidden}, 0.3, 1), options.role},
              {"bias", {hidden}, normal(3, {hidden}), options.role}};
  c.reference = [hidden, options](const std::vector<Doubles>& inputs) {
    return reference(hidden, options.eps, inputs[0], inputs[1], inputs[2]);
  };
  c.run = [options](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    return Result{add_layer_norm(tape, ops, v[0], {}, v[1], v[2], options.eps).y, {}};
  };
  c.terms = std::max(hidden, shape.numel() / hidden);
  return c;
}

void check(const Shape& shape, const Options& options = {}) {
  check_every_kernel<LayerNorm>(make_case(shape, options), {.hidden = shape[shape.ndim() - 1]});
}

// x + residual and its norm side by side, [rows, 2 hidden]: both have gradients.
void check_sum(int64_t rows, int64_t hidden, Role role = Role::kParameter) {
  const Shape shape{rows, hidden};
  Case c;
  c.name = fmt::format("{} with a residual", to_string(shape));
  c.inputs = {{"x", shape, normal(1, shape)},
              {"residual", shape, normal(2, shape, 0.5)},
              {"weight", {hidden}, normal(3, {hidden}, 0.3, 1), role},
              {"bias", {hidden}, normal(4, {hidden}), role}};
  c.reference = [=](const std::vector<Doubles>& inputs) {
    Doubles sum, both;
    for (size_t i = 0; i < inputs[0].size(); ++i) sum.push_back(inputs[0][i] + inputs[1][i]);
    const Doubles y = reference(hidden, 1e-3, sum, inputs[2], inputs[3]);
    for (int64_t row = 0; row < static_cast<int64_t>(sum.size()); row += hidden) {
      both.insert(both.end(), sum.begin() + row, sum.begin() + row + hidden);
      both.insert(both.end(), y.begin() + row, y.begin() + row + hidden);
    }
    return both;
  };
  c.run = [](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    const LayerNormedSum out = add_layer_norm(tape, ops, v[0], v[1], v[2], v[3], 1e-3f);
    return Result{primitives::concat_last(tape, out.sum, out.y), {}};
  };
  c.terms = std::max(hidden, rows);
  c.roundings = 2;  // the sum's, before the norm
  check_every_kernel<LayerNorm>(c, {.hidden = hidden});
}

TEST(LayerNorm, WithAResidual) {
  for (const int64_t hidden : {7, 64, 513})
    for (const int64_t rows : {1, 33}) check_sum(rows, hidden);
  check_sum(300, 40);
  check_sum(2300, 64);
  check_sum(0, 16);
  check_sum(3, 9, Role::kVariable);
}

TEST(LayerNorm, EveryKernelAgrees) {
  for (const int64_t hidden : {7, 64, 100, 513})
    for (const int64_t rows : {1, 3, 33}) check({rows, hidden});
  check({5});
  check({2, 3, 4, 16});
  check({700, 100});
  check({3000, 33});
  check({3, 4608});
  check({3, 9}, {.role = Role::kVariable});
  check({0, 16});
}

// Rows that lie far from zero, of which squares minus a square would lose everything, and large ones.
TEST(LayerNorm, FarFromZero) {
  check({4, 64}, {.scale = 100});
  check({4, 64}, {.eps = 1e-2f, .scale = 1e-2});
  check({3, 65}, {.eps = 1, .mean = 10});
  const int64_t hidden = 96;
  Doubles values = normal(1, {2, hidden}, 1, 4096);
  for (double& value : values) value = std::round(value * 64) / 64;  // what float32 holds
  const Tensor x = tensor_of(values, {2, hidden}, DType::kF32),
               weight = tensor_of(Doubles(hidden, 1), {hidden}, DType::kF32),
               bias = tensor_of(Doubles(hidden, 0), {hidden}, DType::kF32);
  const Doubles expected = reference(hidden, 1e-6, values, Doubles(hidden, 1), Doubles(hidden, 0));
  for (const BoundKernel& kernel : bind_everywhere<LayerNorm>({DType::kF32, hidden})) {
    Tape tape(false);
    const auto there = [&](const Tensor& tensor) { return tape.constant(tensor.on(kernel.device)); };
    const Var y = add_layer_norm(tape, kernel.ops, there(x), {}, there(weight), there(bias), 1e-6f).y;
    EXPECT_TRUE(close(values_of(y.value), expected, 1e-3)) << kernel.provider;
  }
}

// Of one output only, whichever: what did not arrive counts as zero.
TEST(LayerNorm, EitherGradientMayBeMissing) {
  const Shape shape{5, 24};
  const auto tensor = [&](uint64_t seed) { return tensor_of(normal(seed, shape), shape, DType::kF32); };
  for (const BoundKernel& kernel : bind_every_kernel<LayerNorm>({DType::kF32, 24})) {
    SCOPED_TRACE(kernel.provider);
    Tape tape;
    const Var x = tape.variable(tensor(1)), residual = tape.variable(tensor(2)),
              weight = tape.variable(tensor_of(normal(3, {24}), {24}, DType::kF32)),
              bias = tape.variable(tensor_of(normal(6, {24}), {24}, DType::kF32));
    const LayerNormedSum one = add_layer_norm(tape, kernel.ops, x, residual, weight, bias, 1e-3f);
    tape.backward(one.sum, tensor(4));
    EXPECT_EQ(values_of(x.slot->take()), values_of(tensor(4)));
    EXPECT_EQ(values_of(residual.slot->take()), values_of(tensor(4)));
    EXPECT_FALSE(weight.slot->filled());
    EXPECT_FALSE(bias.slot->filled());
    const LayerNormedSum other = add_layer_norm(tape, kernel.ops, x, residual, weight, bias, 1e-3f);
    tape.backward(other.y, tensor(5));
    const Var sum = tape.variable(other.sum.value);
    tape.backward(add_layer_norm(tape, kernel.ops, sum, {}, weight, bias, 1e-3f).y, tensor(5));
    const Doubles alone = values_of(sum.slot->take());
    EXPECT_EQ(values_of(x.slot->take()), alone);
    EXPECT_EQ(values_of(residual.slot->take()), alone);
  }
}

// One of weight and bias may be trained without the other.
TEST(LayerNorm, TrainsEitherVector) {
  const Tensor x = tensor_of(normal(1, {9, 40}), {9, 40}, DType::kF32),
               weight = tensor_of(normal(2, {40}), {40}, DType::kF32),
               bias = tensor_of(normal(3, {40}), {40}, DType::kF32),
               dy = tensor_of(normal(4, {9, 40}), {9, 40}, DType::kF32);
  for (const BoundKernel& kernel : bind_every_kernel<LayerNorm>({DType::kF32, 40})) {
    SCOPED_TRACE(kernel.provider);
    const auto gradients = [&](bool of_weight, bool of_bias) {
      Tape tape;
      const Var w = of_weight ? tape.variable(weight) : tape.constant(weight),
                b = of_bias ? tape.variable(bias) : tape.constant(bias);
      tape.backward(add_layer_norm(tape, kernel.ops, tape.constant(x), {}, w, b, 1e-6f).y, dy);
      return std::pair{of_weight ? values_of(w.slot->take()) : Doubles{},
                       of_bias ? values_of(b.slot->take()) : Doubles{}};
    };
    const auto both = gradients(true, true);
    EXPECT_EQ(gradients(true, false).first, both.first);
    EXPECT_EQ(gradients(false, true).second, both.second);
  }
}

// A tape that rematerialises: the sum alone gives the norm again, bit by bit.
TEST(LayerNorm, IsMadeAgainFromTheSum) {
  const Tensor x = tensor_of(normal(1, {9, 40}), {9, 40}, DType::kBF16),
               residual = tensor_of(normal(2, {9, 40}), {9, 40}, DType::kBF16),
               weight = tensor_of(normal(3, {40}), {40}, DType::kBF16),
               bias = tensor_of(normal(4, {40}), {40}, DType::kBF16);
  for (const BoundKernel& kernel : bind_every_kernel<LayerNorm>({DType::kBF16, 40})) {
    Tape tape(TapeOptions{.rematerialize = true});
    const LayerNormedSum out = add_layer_norm(tape, kernel.ops, tape.variable(x), tape.constant(residual),
                                              tape.constant(weight), tape.constant(bias), 1e-6f);
    EXPECT_EQ(out.y.remake != nullptr, kernel.provider != kEager) << kernel.provider;
    EXPECT_EQ(values_of(out.y.saved().get()), values_of(out.y.value)) << kernel.provider;
  }
}

TEST(LayerNorm, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<LayerNorm>("eager", {});
  Tape tape;
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  const auto call = [&](const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const Tensor& residual = {}, float eps = 1e-6f) {
    return [=, &tape, &ops] {
      add_layer_norm(tape, ops, tape.constant(x), residual.defined() ? tape.constant(residual) : Var(),
                     tape.constant(weight), tape.constant(bias), eps);
    };
  };
  const Tensor x = f32({2, 8}), row = f32({8});
  expect_error(call({}, row, row), "[layer_norm] x is missing");
  expect_error(call(f32({}), row, row), "[layer_norm] x is a scalar, needs [..., hidden]");
  expect_error(call(x, {}, row), "[layer_norm] weight is missing");
  expect_error(call(x, row, {}), "[layer_norm] bias is missing");
  expect_error(call(x, f32({7}), row), "[layer_norm] weight is [7], needs [8]");
  expect_error(call(x, row, f32({9})), "[layer_norm] bias is [9], needs [8]");
  expect_error(call(x, row, row.to(DType::kBF16)), "[layer_norm] bias is bfloat16, needs float32");
  expect_error(call(x, row, row, f32({1, 8})), "[layer_norm] residual is [1, 8], needs [2, 8]");
  expect_error(call(f32({2, 9}).narrow(1, 0, 8), row, row),
               "[layer_norm] x [2, 8] has strides [9, 1], needs them without gaps");
  expect_error(call(x, row, row, {}, -1), "[layer_norm] eps is -1, needs a value of 0 or more");
}

}  // namespace
}  // namespace temper::ops
