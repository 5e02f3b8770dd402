#include "ops/dropout/dropout.h"

#include "base/random.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<Dropout> kDropoutKernels{
    {}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kAll}}};

double factor_of(int64_t element, int64_t width, float p, const Dropout::Key& key) {
  const Random random(key.seed, RandomPurpose::kDropout, key.step);
  const auto n = static_cast<uint64_t>(key.first + element / width * key.columns + element % width);
  const uint32_t word = random.words((key.stream << 44) + n / 4)[n % 4];
  return word < static_cast<uint32_t>(p * 0x1p32) ? 0 : 1 / (1 - static_cast<double>(p));
}

void check(Shape shape, float p, const Dropout::Key& key) {
  Case c;
  c.name = fmt::format("{}, p {}, from {}", to_string(shape), p, key.first);
  c.inputs = {{"x", shape, normal(1, shape)}};
  const int64_t width = key.columns == 0 ? std::max<int64_t>(shape.numel(), 1) : shape[1];
  c.reference = [=](const std::vector<Doubles>& inputs) {
    Doubles y = inputs[0];
    for (size_t i = 0; i < y.size(); ++i) y[i] *= factor_of(static_cast<int64_t>(i), width, p, key);
    return y;
  };
  c.run = [p, key](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    return Result{dropout(tape, ops, v[0], p, key), {}};
  };
  check_every_kernel<Dropout>(c, {});
}

TEST(Dropout, EveryKernelAgrees) {
  check({1}, 0.5f, {1, 2, 3, 0});
  check({3, 7}, 0, {1, 2, 3, 0});
  check({5, 33}, 0.1f, {7, 1'000'000, 900'000, 0});
  for (const int64_t first : std::vector<int64_t>{1, 2, 3, 4, 130'000'000'000})
    check({4, 25}, 0.3f, {1, 2, 3, first});
  check({3, 700}, 0.2f, {1, 2, 3, 5});  // more than is drawn at once
  check({0, 4}, 0.5f, {});
}

TEST(Dropout, OfColumnsOfWiderRows) {
  check({5, 7}, 0.3f, {1, 2, 3, 21, 14});
  check({9, 64}, 0.3f, {1, 2, 3, 64, 128});
  check({3, 700}, 0.2f, {1, 2, 3, 5, 1401});
}

TEST(Dropout, PiecesAreTheWhole) {
  const Tensor x = tensor_of(normal(3, {10, 9}), {10, 9}, DType::kF32);
  for (const BoundKernel& kernel : bind_everywhere<Dropout>({})) {
    Tape tape(false);
    const Tensor on = x.on(kernel.device);
    const Dropout::Key key{5, 6, 7, 0};
    const Doubles whole = values_of(dropout(tape, kernel.ops, tape.constant(on), 0.4f, key).value);
    const Dropout::Key later{5, 6, 7, 3 * 9};
    const Tensor rest = on.narrow(0, 3, 7).clone();
    const Doubles piece = values_of(dropout(tape, kernel.ops, tape.constant(rest), 0.4f, later).value);
    EXPECT_EQ(Doubles(whole.begin() + 27, whole.end()), piece) << kernel.provider;
  }
}

TEST(Dropout, DropsAsOftenAsAsked) {
  const BoundOps ops = bind_kernel<Dropout>("eager", {});
  Tape tape(false);
  const Tensor ones = tensor_of(Doubles(40'000, 1.0), {40'000}, DType::kF32);
  int64_t zeros = 0;
  for (const double value : values_of(dropout(tape, ops, tape.constant(ones), 0.2f, {9, 0, 0, 0}).value))
    zeros += value == 0;
  EXPECT_NEAR(static_cast<double>(zeros) / 40'000, 0.2, 0.01);  // five standard deviations
}

TEST(Dropout, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<Dropout>("eager", {});
  Tape tape;
  const Tensor x = Tensor::zeros({2, 4}, DType::kF32);
  expect_error([&] { dropout(tape, ops, tape.constant(x), 1, {}); },
               "[dropout] p is 1, needs 0 or more, below 1");
  expect_error([&] { dropout(tape, ops, tape.constant(x.narrow(1, 0, 3)), 0.1f, {}); },
               "[dropout] x [2, 3] has strides [4, 1], needs them without gaps");
  expect_error([&] { dropout(tape, ops, {}, 0.1f, {}); }, "[dropout] x is missing");
}

}  // namespace
}  // namespace temper::ops
