#include "ops/expert_linear/expert_linear.h"

#include <cmath>

#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<ExpertLinear> kExpertLinearKernels{
    {.in = 2048, .out = 768, .experts = 128},
    kAll,
    {{"onednn", "onednn", kCpu, kWide},
     {"hopper", "hopper", kHopper, kBFloat16,
      [](const ExpertLinear::Signature& s) { return s.in % 8 == 0 && s.out % 8 == 0; }},
     {"cuda", "cuda", kGpu, kAll}}};

struct Sizes {
  int64_t rows, in, out, experts;
};
using Route = std::function<int64_t(int64_t row)>;

Case make_case(const Sizes& n, const Route& route) {
  std::vector<int32_t> ids;
  for (int64_t r = 0; r < n.rows; ++r) ids.push_back(static_cast<int32_t>(route(r)));
  const Shape matrices{n.experts * n.out, n.in};
  Case c;
  c.name = fmt::format("{} rows of {} to {}, {} experts", n.rows, n.in, n.out, n.experts);
  c.inputs = {
      {"x", {n.rows, n.in}, normal(1, {n.rows, n.in})},
      {"weight", matrices, normal(2, matrices, 1 / std::sqrt(static_cast<double>(n.in))), Role::kParameter}};
  c.reference = [=](const std::vector<Doubles>& v) {
    Doubles y(static_cast<size_t>(n.rows * n.out));
    for (int64_t r = 0; r < n.rows; ++r)
      for (int64_t o = 0; o < n.out; ++o)
        for (int64_t i = 0; i < n.in; ++i)
          y[static_cast<size_t>(r * n.out + o)] +=
              v[0][static_cast<size_t>(r * n.in + i)] *
              v[1][static_cast<size_t>((ids[static_cast<size_t>(r)] * n.out + o) * n.in + i)];
    return y;
  };
  c.run = [=](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    const Tensor there = on_device_of(v[0], Tensor::from(std::span<const int32_t>(ids), {n.rows, 1}));
    return Result{expert_linear(tape, ops, v[0], there, v[1], n.experts), {}};
  };
  c.terms = std::max({n.rows, n.in, n.out});
  c.roundings = 1;
  c.samples = 6;
  return c;
}

void check(const Sizes& n, const Route& route) {
  check_every_kernel<ExpertLinear>(make_case(n, route), {.in = n.in, .out = n.out, .experts = n.experts});
}

Route scattered(const Sizes& n) {
  return [n](int64_t row) { return (row * 7 + row / 3) % n.experts; };
}

TEST(ExpertLinear, EveryKernelAgrees) {
  for (const Sizes& n : std::vector<Sizes>{
           {1, 8, 8, 1}, {1, 8, 16, 4}, {14, 16, 24, 4}, {60, 24, 8, 6}, {150, 64, 40, 4}, {40, 72, 136, 8}})
    check(n, scattered(n));
}

TEST(ExpertLinear, OddSizesAndAnyRouting) {
  for (const Sizes& n : std::vector<Sizes>{{5, 7, 3, 3}, {9, 1, 1, 2}, {13, 33, 17, 4}})
    check(n, scattered(n));
  const Sizes n{70, 16, 16, 8};
  check(n, [](int64_t) { return 0; });  // experts without rows have no gradient
  check(n, [](int64_t) { return 7; });
  const Sizes many{6, 8, 8, 512};
  check(many, [](int64_t row) { return row * 100; });
  const Sizes none{0, 8, 8, 4};
  check(none, scattered(none));
}

TEST(ExpertLinear, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<ExpertLinear>("eager", {DType::kF32, 8, 4, 2});
  Tape tape;
  const auto f32 = [](const Shape& shape) { return Tensor::zeros(shape, DType::kF32); };
  const Tensor x = f32({3, 8}), ids = Tensor::zeros({3, 1}, DType::kI32), weight = f32({8, 8});
  const auto call = [&](const Tensor& a, const Tensor& i, const Tensor& w) {
    return [&tape, &ops, a, i, w] { expert_linear(tape, ops, tape.constant(a), i, tape.constant(w), 2); };
  };
  expect_error(call({}, ids, weight), "[expert_linear] x is missing");
  expect_error(call(x, f32({3, 1}), weight), "[expert_linear] ids is float32, needs int32");
  expect_error(call(x, Tensor::zeros({2, 1}, DType::kI32), weight),
               "[expert_linear] ids is [2, 1], needs [3, 1]");
  expect_error(call(x, ids, weight.to(DType::kBF16)), "[expert_linear] weight is bfloat16, needs float32");
  expect_error(call(x, ids, f32({7, 8})),
               "[expert_linear] weight is [7, 8], needs as many rows for each of 2 experts");
  expect_error(call(x, ids, f32({8, 4})), "[expert_linear] weight is [8, 4], needs [8, 8]");
  expect_error(call(x, Tensor::from(std::vector<int32_t>{0, 2, 1}).reshape({3, 1}), weight),
               "[expert_linear] ids has expert 2, needs 0 to 1");
}

}  // namespace
}  // namespace temper::ops
