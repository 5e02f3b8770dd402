#include "ops/linear/linear.h"

#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<Linear> kLinearKernels{{.in = 1024, .out = 3072},
                                             kAll,
                                             {{"onednn", "onednn", kCpu, kWide},
                                              {"onednn_invariant", "onednn", kCpu, kFloat32},
                                              {"cublaslt", "cublaslt", kGpu, kAll},
                                              {"cublaslt_invariant", "cublaslt", kGpu, kBFloat16}}};

struct Sizes {
  int64_t rows, in, out;
};

Doubles reference(const Sizes& n, const std::vector<Doubles>& inputs) {
  const Doubles &x = inputs[0], &weight = inputs[1];
  Doubles y;
  for (int64_t r = 0; r < n.rows; ++r)
    for (int64_t o = 0; o < n.out; ++o) {
      double sum = inputs.size() > 2 ? inputs[2][o] : 0;
      for (int64_t i = 0; i < n.in; ++i) sum += x[r * n.in + i] * weight[o * n.in + i];
      y.push_back(sum);
    }
  return y;
}

void check(const Sizes& n, bool bias, Role role) {
  Case c;
  c.name = fmt::format("[{}, {}] to {}{}", n.rows, n.in, n.out, bias ? " with bias" : "");
  c.inputs = {{"x", {n.rows, n.in}, normal(1, {n.rows, n.in})},
              {"weight", {n.out, n.in}, normal(2, {n.out, n.in}), role}};
  if (bias) c.inputs.push_back({"bias", {n.out}, normal(3, {n.out}), role});
  c.reference = [n](const std::vector<Doubles>& inputs) { return reference(n, inputs); };
  c.run = [](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    return Result{linear(tape, ops, v[0], v[1], v.size() > 2 ? v[2] : Var{}), {}};
  };
  c.terms = std::max({n.rows, n.in, n.out});
  c.roundings = bias ? 2 : 1;  // eager rounds the product before it adds the bias
  if (n.rows * n.in * n.out > 100'000) c.samples = 4;
  check_every_kernel<Linear>(c, {.in = n.in, .out = n.out, .bias = bias});
}

TEST(Linear, EveryKernelAgrees) {
  for (const Sizes& n :
       std::vector<Sizes>{{1, 1, 1}, {1, 7, 64}, {3, 64, 7}, {5, 100, 1}, {2, 1, 100}, {33, 65, 31}})
    for (const bool bias : {false, true}) check(n, bias, Role::kParameter);
  check({4, 9, 5}, true, Role::kVariable);
}

TEST(Linear, EveryKernelAgreesOnLargerSizes) {
  check({1, 513, 320}, true, Role::kParameter);
  check({130, 64, 100}, false, Role::kParameter);
  check({130, 20, 300}, true, Role::kParameter);
  check({600, 24, 30}, true, Role::kParameter);
  check({16, 65, 33}, true, Role::kParameter);
  check({17, 65, 33}, true, Role::kParameter);
  check({65, 513, 129}, true, Role::kParameter);
}

// A row's result has the same bits whatever rows are next to it, and however many, for kernels that say so.
TEST(Linear, RowsDoNotDependOnOneAnother) {
  constexpr int64_t kRows = 600;
  int tested = 0;
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{8192, 128}, {1024, 2048}, {65, 33}, {96, 1}})
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const BoundKernel& kernel : bind_everywhere<Linear>({dtype, in, out, true})) {
        if (!kernel.ops.at<Linear>("").batch_invariant) continue;
        ++tested;
        SCOPED_TRACE(fmt::format("{}, {}, {} to {}", kernel.provider, to_string(dtype), in, out));
        const auto there = [&](uint64_t seed, const Shape& shape) {
          return tensor_of(normal(seed, shape), shape, dtype).on(kernel.device);
        };
        const Tensor x = there(1, {kRows, in}), weight = there(2, {out, in}), bias = there(3, {out});
        const auto run = [&](int64_t first, int64_t count) {
          Tape tape(false);
          const auto constant = [&](const Tensor& tensor) { return tape.constant(tensor); };
          return values_of(
              linear(tape, kernel.ops, constant(x.narrow(0, first, count)), constant(weight), constant(bias))
                  .value);
        };
        const Doubles all = run(0, kRows);
        for (const int64_t count : {1, 2, 5, 16, 17, 64, 100, 127, 128, 129, 300})
          for (const int64_t first : {0, 3, 300}) {
            const auto begin = all.begin() + first * out;
            EXPECT_EQ(run(first, count), Doubles(begin, begin + count * out)) << first << ", " << count;
          }
      }
  if (tested == 0) GTEST_SKIP() << "no kernel here says so";
}

TEST(Linear, FewRows) {
  for (const Sizes& n :
       {Sizes{1, 8, 3}, {1, 512, 100}, {2, 264, 33}, {3, 16, 5}, {4, 1032, 40}, {5, 520, 17}})
    for (const bool bias : {false, true}) check(n, bias, Role::kParameter);
}

// The frozen weight stands outside the inputs.
void check_in_8_bits(const Sizes& n) {
  const Doubles weight = normal(2, {n.out, n.in});
  Case c;
  c.name = fmt::format("[{}, {}] to {} in 8 bits", n.rows, n.in, n.out);
  c.inputs = {{"x", {n.rows, n.in}, normal(1, {n.rows, n.in})}};
  c.reference = [=](const std::vector<Doubles>& inputs) {
    return reference(n, {inputs[0], meaning_in_8_bits(weight, {n.out, n.in})});
  };
  c.run = [=](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    return Result{linear(tape, ops, v[0], in_8_bits(v[0], weight, {n.out, n.in})), {}};
  };
  c.terms = std::max({n.rows, n.in, n.out});
  check_every_kernel<Linear>(c, {.in = n.in, .out = n.out, .bias = false});
}

TEST(Linear, EveryKernelAgreesOnWeightsIn8Bits) {
  for (const Sizes& n : {Sizes{1, 7, 64}, {1, 512, 100}, {3, 528, 17}, {33, 65, 31}, {130, 64, 100}})
    check_in_8_bits(n);
}

// Codes that are read as they are, and the matrix that they mean: the same bits.
void check_codes(const BoundKernel& kernel, DType dtype, const Sizes& n) {
  const auto put = [&](uint64_t seed, const Shape& shape) {
    return Var{tensor_of(normal(seed, shape), shape, dtype).on(kernel.device), nullptr};
  };
  Tape tape(false);
  const Var x = put(1, {n.rows, n.in}), bias = put(3, {n.out});
  const primitives::Matrix codes = in_8_bits(x, normal(2, {n.out, n.in}), {n.out, n.in});
  EXPECT_EQ(values_of(linear(tape, kernel.ops, x, codes, bias).value),
            values_of(linear(tape, kernel.ops, x, codes.widened(), bias).value))
      << kernel.provider << " on " << n.rows << " rows of " << n.in;
}

TEST(Linear, CodesAreReadAsWhatTheyMean) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const BoundKernel& kernel : bind_everywhere<Linear>({dtype, 512, 100, true}))
      for (const int64_t rows : {1, 2, 3, 4, 5, 16, 17}) {
        for (const int64_t in : {7, 16, 130, 512, 1040, 4608}) check_codes(kernel, dtype, {rows, in, 37});
        check_codes(kernel, dtype, {rows, 130, 150});  // of more columns than are widened at once
      }
}

TEST(Linear, KeepsNoWeightThatCanBeMadeAgain) {
  const auto live = [] { return pool().usage()[static_cast<size_t>(MemoryTag::kWorkspace)].live; };
  for (const BoundKernel& kernel : bind_every_kernel<Linear>({DType::kF32, 64, 96, false})) {
    const int64_t before = live();
    Tape tape;
    const Var x = tape.variable(Tensor::zeros({4, 64}, DType::kF32));
    const Var y = linear(tape, kernel.ops, x, in_8_bits(x, normal(2, {96, 64}), {96, 64}));
    EXPECT_EQ(live(), before) << kernel.provider;
    tape.backward(y, Tensor::zeros({4, 96}, DType::kF32));
    EXPECT_EQ(live(), before) << kernel.provider;
  }
}

TEST(Linear, NoRows) { check({0, 8, 4}, true, Role::kParameter); }

TEST(Linear, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<Linear>("eager", {});
  Tape tape;
  const auto call = [&](const Tensor& x, const Tensor& weight, const Tensor& bias = {}) {
    return [&tape, &ops, x, weight, bias] { linear(tape, ops, {x, {}}, Var{weight, {}}, {bias, {}}); };
  };
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  const Tensor x = f32({2, 8}), weight = f32({4, 8});
  expect_error(call({}, weight), "[linear] x is missing");
  expect_error(call(f32({8}), weight), "[linear] x is [8], needs 2 dimensions");
  expect_error(call(x, f32({4, 8, 1})), "[linear] weight is [4, 8, 1], needs 2 dimensions");
  expect_error(call(Tensor::zeros({2, 8}, DType::kI32), weight),
               "[linear] x is int32, needs float32, bfloat16 or float16");
  expect_error(call(x, weight.to(DType::kBF16)), "[linear] weight is bfloat16, needs float32");
  expect_error(call(f32({2, 7}), weight), "[linear] x is [2, 7], needs [2, 8]");
  expect_error(call(f32({2, 9}).narrow(1, 0, 8), weight),
               "[linear] x [2, 8] has strides [9, 1], needs them without gaps");
  expect_error(call(x, f32({8, 4}).transpose(0, 1)),
               "[linear] weight [4, 8] has strides [1, 4], needs them without gaps");
  expect_error(call(x, weight, f32({5})), "[linear] bias is [5], needs [4]");
  expect_error(call(x, weight, f32({4}).to(DType::kF16)), "[linear] bias is float16, needs float32");
  expect_error(call(x, weight, f32({1, 4})), "[linear] bias is [1, 4], needs [4]");
}

}  // namespace
}  // namespace temper::ops
