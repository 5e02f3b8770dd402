#include "ops/gelu/gelu.h"

#include <cmath>
#include <numbers>

#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<Gelu> kGeluKernels{
    {.width = 3072}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};

constexpr GeluForm kForms[] = {GeluForm::kErf, GeluForm::kTanh, GeluForm::kQuick};

double reference(double x, GeluForm form) {
  if (form == GeluForm::kQuick) return x / (1 + std::exp(-1.702 * x));
  if (form == GeluForm::kErf) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

Case make_case(const Shape& shape, GeluForm form, double scale = 1) {
  Case c;
  c.name = fmt::format("{}, scale {}, form {}", to_string(shape), scale, static_cast<int>(form));
  c.inputs = {{"x", shape, normal(1, shape, scale)}};
  c.reference = [form](const std::vector<Doubles>& inputs) {
    Doubles y;
    for (const double x : inputs[0]) y.push_back(reference(x, form));
    return y;
  };
  c.run = [form](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    return Result{gelu(tape, ops, v[0], form), {}};
  };
  return c;
}

TEST(Gelu, EveryKernelAgrees) {
  for (const GeluForm form : kForms) {
    for (const int64_t width : {1, 7, 64, 100, 513})
      for (const int64_t rows : {1, 3, 33})
        check_every_kernel<Gelu>(make_case({rows, width}, form), {.width = width, .form = form});
    check_every_kernel<Gelu>(make_case({300, 150}, form, 3), {.width = 150, .form = form});
    check_every_kernel<Gelu>(make_case({0, 16}, form), {.width = 16, .form = form});
  }
}

TEST(Gelu, LargeValues) {
  for (const GeluForm form : kForms) {
    Case c = make_case({3, 8}, form, 5);
    for (const double value : {80, 200}) {
      for (size_t i = 0; i < 8; ++i) c.inputs[0].values[16 + i] = i % 2 == 0 ? value : -value;
      check_every_kernel<Gelu>(c, {.width = 8, .form = form});
    }
    for (double& value : c.inputs[0].values) value = 0;
    check_every_kernel<Gelu>(c, {.width = 8, .form = form});
  }
}

// Every value by itself, not by the largest one. The exact form goes to zero like x times a distribution,
// which is known to float32's last place of one.
TEST(Gelu, SmallResultsAreExactByThemselves) {
  Doubles inputs{10'000, -10'000};
  for (int i = -500; i <= 500; ++i) inputs.push_back(i / 100.0);
  const auto count = static_cast<int64_t>(inputs.size());
  const Tensor x = tensor_of(inputs, {1, count}, DType::kF32);
  for (const GeluForm form : kForms)
    for (const BoundKernel& kernel : bind_everywhere<Gelu>({DType::kF32, count, form})) {
      Tape tape(false);
      const Doubles y = values_of(gelu(tape, kernel.ops, tape.constant(x.on(kernel.device)), form).value);
      for (size_t i = 0; i < inputs.size(); ++i) {
        const double expected = reference(static_cast<double>(static_cast<float>(inputs[i])), form);
        const double scale =
            form == GeluForm::kErf ? 1.2e-7 * std::fabs(inputs[i]) : 4e-6 * std::fabs(expected) + 1e-30;
        EXPECT_LE(std::fabs(y[i] - expected), scale)
            << kernel.provider << ", form " << static_cast<int>(form) << " at " << inputs[i];
      }
    }
}

// A tape that rematerialises: x gives y again, bit by bit.
TEST(Gelu, IsMadeAgain) {
  const Tensor x = tensor_of(normal(1, {9, 40}), {9, 40}, DType::kBF16);
  for (const BoundKernel& kernel : bind_every_kernel<Gelu>({DType::kBF16, 40, GeluForm::kErf})) {
    Tape tape(TapeOptions{.rematerialize = true});
    const Var y = gelu(tape, kernel.ops, tape.variable(x), GeluForm::kErf);
    EXPECT_EQ(y.remake != nullptr, kernel.provider != kEager) << kernel.provider;
    EXPECT_EQ(values_of(y.saved().get()), values_of(y.value)) << kernel.provider;
  }
}

TEST(Gelu, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<Gelu>("eager", {});
  Tape tape;
  const auto call = [&](const Tensor& x) {
    return [&tape, &ops, x] { gelu(tape, ops, tape.constant(x), GeluForm::kErf); };
  };
  expect_error(call({}), "[gelu] x is missing");
  expect_error(call(Tensor::zeros({8}, DType::kF32)), "[gelu] x is [8], needs 2 dimensions");
  expect_error(call(Tensor::zeros({2, 8}, DType::kI32)),
               "[gelu] x is int32, needs float32, bfloat16 or float16");
  expect_error(call(Tensor::zeros({2, 9}, DType::kF32).narrow(1, 0, 8)),
               "[gelu] x [2, 8] has strides [9, 1], needs them without gaps");
}

}  // namespace
}  // namespace temper::ops
