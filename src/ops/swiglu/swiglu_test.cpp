#include "ops/swiglu/swiglu.h"

#include <cmath>
#include <numbers>

#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<Swiglu> kSwigluKernels{
    {.intermediate = 3072}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};

double active(double z, Activation activation) {
  if (activation == Activation::kSilu) return z / (1 + std::exp(-z));
  return 0.5 * z * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
}

Doubles reference(int64_t rows, int64_t width, const Doubles& gate_up, Activation activation) {
  Doubles y;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < width; ++i) {
      const double gate = gate_up[r * 2 * width + i], up = gate_up[r * 2 * width + width + i];
      y.push_back(active(gate, activation) * up);
    }
  return y;
}

Case make_case(int64_t rows, int64_t width, double scale = 1, Activation activation = Activation::kSilu) {
  Case c;
  c.name = fmt::format("[{}, 2 · {}], scale {}", rows, width, scale);
  c.inputs = {{"gate_up", {rows, 2 * width}, normal(1, {rows, 2 * width}, scale)}};
  c.reference = [=](const std::vector<Doubles>& inputs) {
    return reference(rows, width, inputs[0], activation);
  };
  c.run = [activation](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    return Result{swiglu(tape, ops, v[0], {}, activation), {}};
  };
  return c;
}

constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGeluTanh};

TEST(Swiglu, EveryKernelAgrees) {
  for (const Activation activation : kActivations) {
    for (const int64_t width : {1, 7, 64, 100, 513})
      for (const int64_t rows : {1, 3, 33})
        check_every_kernel<Swiglu>(make_case(rows, width, 1, activation),
                                   {.intermediate = width, .activation = activation});
    check_every_kernel<Swiglu>(make_case(300, 150, 1, activation),
                               {.intermediate = 150, .activation = activation});
  }
}

TEST(Swiglu, LargeValues) {
  for (const Activation activation : kActivations) {
    Case c = make_case(3, 8, 5, activation);
    const auto check = [&] { check_every_kernel<Swiglu>(c, {.intermediate = 8, .activation = activation}); };
    for (const double value : {80, 200}) {
      for (size_t i = 0; i < 8; ++i) c.inputs[0].values[16 + i] = i % 2 == 0 ? value : -value;
      check();
    }
    for (double& value : c.inputs[0].values) value = 0;
    check();
  }
}

// The gradient is the same whether or not the product is awaited, and a gradient that others hold too
// stays as it is.
void check_handing_over(Activation activation) {
  constexpr int64_t kRows = 5, kWidth = 24;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const BoundKernel& kernel : bind_everywhere<Swiglu>({dtype, kWidth, activation})) {
      SCOPED_TRACE(fmt::format("{}, {}, {}", kernel.provider, to_string(kernel.device), to_string(dtype)));
      const auto values = [&](uint64_t seed, const Shape& shape) {
        return tensor_of(normal(seed, shape), shape, dtype).on(kernel.device);
      };
      const Tensor gate_up = values(1, {kRows, 2 * kWidth}), dy = values(2, {kRows, kWidth});
      std::vector<Doubles> gradients;
      for (const bool wait : {false, true})
        for (const bool shared : {false, true}) {
          Tape tape(TapeOptions{.rematerialize = true});
          const Var x = tape.variable(gate_up), y = swiglu(tape, kernel.ops, x, {}, activation);
          ASSERT_EQ(y.saved().comes(), kernel.provider != kEager);
          const bool waiting = wait && y.saved().comes();
          Doubles handed = waiting ? Doubles{} : values_of(y.value);
          if (waiting) y.saved().await([&](const Tensor& product) { handed = values_of(product); });
          tape.backward(y, shared ? dy : dy.clone());
          EXPECT_EQ(handed, values_of(y.value));
          EXPECT_EQ(values_of(dy), values_of(values(2, {kRows, kWidth})));
          gradients.push_back(values_of(x.slot->take()));
          EXPECT_EQ(gradients.back(), gradients.front());
        }
    }
}

TEST(Swiglu, BackwardHandsTheProductOver) {
  for (const Activation activation : kActivations) check_handing_over(activation);
}

TEST(Swiglu, NoRows) { check_every_kernel<Swiglu>(make_case(0, 8), {.intermediate = 8}); }

TEST(Swiglu, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<Swiglu>("eager", {});
  Tape tape;
  const auto call = [&](const Tensor& x) {
    return [&tape, &ops, x] { swiglu(tape, ops, tape.constant(x)); };
  };
  expect_error(call({}), "[swiglu] gate_up is missing");
  expect_error(call(Tensor::zeros({8}, DType::kF32)), "[swiglu] gate_up is [8], needs 2 dimensions");
  expect_error(call(Tensor::zeros({2, 8}, DType::kI64)),
               "[swiglu] gate_up is int64, needs float32, bfloat16 or float16");
  expect_error(call(Tensor::zeros({2, 8}, DType::kF32).narrow(1, 0, 6)),
               "[swiglu] gate_up [2, 6] has strides [8, 1], needs them without gaps");
  expect_error(call(Tensor::zeros({2, 7}, DType::kF32)), "[swiglu] gate_up is [2, 7], needs an even width");
}

}  // namespace
}  // namespace temper::ops
