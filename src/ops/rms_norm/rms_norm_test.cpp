#include "ops/rms_norm/rms_norm.h"

#include <cmath>

#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

Doubles reference(int64_t hidden, double eps, const Doubles& x, const Doubles& weight) {
  Doubles y;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(hidden)) {
    double sum = 0;
    for (int64_t i = 0; i < hidden; ++i) sum += x[row + i] * x[row + i];
    const double rms = std::sqrt(sum / static_cast<double>(hidden) + eps);
    for (int64_t i = 0; i < hidden; ++i) y.push_back(x[row + i] / rms * weight[i]);
  }
  return y;
}

struct Options {
  float eps = 1e-6f;
  double scale = 1;
  std::optional<Padding> padding = {};
  Role role = Role::kParameter;
};

Case make_case(const Shape& shape, const Options& options) {
  const int64_t hidden = shape[shape.ndim() - 1];
  Case c;
  c.name = fmt::format("{}, scale {}{}", to_string(shape), options.scale, options.padding ? ", strided" : "");
  c.inputs = {{"x", shape, normal(1, shape, options.scale), Role::kVariable, options.padding},
              {"weight", {hidden}, normal(2, {hidden}, 0.3, 1), options.role}};
  c.reference = [hidden, eps = options.eps](const std::vector<Doubles>& inputs) {
    return reference(hidden, eps, inputs[0], inputs[1]);
  };
  c.run = [eps = options.eps](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    return Result{rms_norm(tape, ops, v[0], v[1], eps), {}};
  };
  c.terms = std::max(hidden, shape.numel() / hidden);
  return c;
}

void check(const Shape& shape, const Options& options = {}) {
  check_every_kernel<RmsNorm>(make_case(shape, options), {.hidden = shape[shape.ndim() - 1]});
}

TEST(RmsNorm, EveryKernelAgrees) {
  for (const int64_t hidden : {7, 64, 100, 513})
    for (const int64_t rows : {1, 3, 33}) check({rows, hidden});
  check({5});
  check({2, 3, 4, 16});
  check({300, 40});
  check({700, 100});
  check({3000, 33});
  check({3, 9}, {.role = Role::kVariable});
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
    return
        [&tape, &ops, x, weight, eps] { rms_norm(tape, ops, tape.constant(x), tape.constant(weight), eps); };
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
  expect_error(call(x, weight, -1), "[rms_norm] eps is -1, needs a value of 0 or more");
  expect_error(call(x, weight, std::nanf("")), "[rms_norm] eps is nan, needs a value of 0 or more");
}

}  // namespace
}  // namespace temper::ops
