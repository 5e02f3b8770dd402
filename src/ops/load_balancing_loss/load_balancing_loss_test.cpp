#include "ops/load_balancing_loss/load_balancing_loss.h"

#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<LoadBalancingLoss> kLoadBalancingLossKernels{
    {.experts = 128}, kAll, {{"cuda", "cuda", kGpu, kAll}}};

struct Sizes {
  int64_t routers, experts, top_k;
};

std::vector<int32_t> counts_of(const Sizes& n, int64_t router) {
  std::vector<int32_t> counts;
  for (int64_t e = 0; e < n.experts; ++e)
    counts.push_back(static_cast<int32_t>((7 * e + 3 * router) % 11 * n.top_k));
  counts.push_back(1000);  // is not read
  return counts;
}

Case make_case(const Sizes& n, float factor, float inverse_tokens) {
  Case c;
  c.name = fmt::format("{} routers, {} of {} experts", n.routers, n.top_k, n.experts);
  Doubles sums;
  for (const double value : normal(1, {n.routers, n.experts + 1})) sums.push_back(2 + value);
  c.inputs = {{"sums", {n.routers, n.experts + 1}, sums}};
  c.reference = [=](const std::vector<Doubles>& inputs) {
    double rows = 0, loss = 0;
    Doubles chosen(static_cast<size_t>(n.experts));
    for (int64_t r = 0; r < n.routers; ++r)
      for (int64_t e = 0; e < n.experts; ++e) {
        chosen[e] += counts_of(n, r)[e];
        rows += static_cast<double>(counts_of(n, r)[e]) / static_cast<double>(n.top_k);
      }
    for (int64_t r = 0; r < n.routers; ++r)
      for (int64_t e = 0; e < n.experts; ++e)
        loss += chosen[e] / std::max(rows, 1e-30) * inputs[0][r * (n.experts + 1) + e] * inverse_tokens /
                static_cast<double>(n.routers);
    return Doubles{factor * static_cast<double>(n.experts) * loss};
  };
  c.run = [=](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    LoadBalancingLoss op;
    op.top_k = n.top_k;
    op.factor = factor;
    op.inverse_tokens.set(inverse_tokens);
    const Var wide = primitives::cast(tape, v[0], DType::kF32);
    std::vector<Var> sums_of;
    for (int64_t r = 0; r < n.routers; ++r) {
      op.counts.push_back(on_device_of(v[0], ints(counts_of(n, r))));
      sums_of.push_back(primitives::reshape(tape, primitives::narrow(tape, wide, 0, r, 1), {n.experts + 1}));
    }
    return Result{primitives::cast(tape, load_balancing_loss(tape, ops, sums_of, op), v[0].dtype()), {}};
  };
  c.terms = n.routers * n.experts;
  return c;
}

TEST(LoadBalancingLoss, EveryKernelAgrees) {
  for (const Sizes& n : {Sizes{1, 4, 2}, {3, 8, 2}, {5, 130, 8}, {2, 1, 1}})
    check_every_kernel<LoadBalancingLoss>(make_case(n, 0.25f, 0.125f), {.experts = n.experts});
}

TEST(LoadBalancingLoss, OfNoRowsIsZero) {
  const BoundOps ops = bind_kernel<LoadBalancingLoss>("eager", {DType::kF32, 3});
  Tape tape;
  LoadBalancingLoss op;
  op.counts = {ints({0, 0, 0, 0})};
  const Var sums = tape.variable(tensor_of({1, 2, 3, 4}, {4}, DType::kF32));
  const Var loss = load_balancing_loss(tape, ops, {sums}, op);
  EXPECT_EQ(loss.value.item(), 0);
  tape.backward(loss);
  EXPECT_EQ(values_of(sums.slot->grad()), Doubles(4));
}

TEST(LoadBalancingLoss, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<LoadBalancingLoss>("eager", {DType::kF32, 3});
  Tape tape;
  const Var sums = tape.constant(Tensor::zeros({4}, DType::kF32));
  const auto call = [&](std::vector<Tensor> counts, int64_t top_k = 1) {
    return [&tape, &ops, sums, counts, top_k] {
      LoadBalancingLoss op;
      op.counts = counts;
      op.top_k = top_k;
      load_balancing_loss(tape, ops, {sums}, op);
    };
  };
  expect_error(call({}),
               "[load_balancing_loss] sums of 1 routers and counts of 0, needs as many, one at least");
  expect_error(call({ints({1, 2, 3})}), "[load_balancing_loss] counts is [3], needs [4]");
  expect_error(call({Tensor::zeros({4}, DType::kF32)}),
               "[load_balancing_loss] counts is float32, needs int32");
  expect_error(call({ints({1, 2, 3, 4})}, 0), "[load_balancing_loss] top_k is 0, needs 1 or more");
}

}  // namespace
}  // namespace temper::ops
