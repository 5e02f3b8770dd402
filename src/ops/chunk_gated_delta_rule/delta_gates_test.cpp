#include "ops/chunk_gated_delta_rule/delta_gates.h"

#include <cmath>

#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<DeltaGates> kDeltaGatesKernels{
    {.heads = 32}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};
namespace p = primitives;

struct GatesSetup {
  int64_t tokens = 5, heads = 4;
  double scale = 1;
  bool fused = false;  // a and b are parts of wider rows
  bool wide = false;   // a_log and dt_bias are float32, whatever the dtype
};

void check_gates(const GatesSetup& s) {
  const Shape shape{s.tokens, s.heads}, vector{s.heads};
  const Role role = s.wide ? Role::kVariable : Role::kParameter;
  Case c;
  c.name = fmt::format("{}, scale {}{}", to_string(shape), s.scale, s.fused ? ", fused" : "");
  c.inputs = {{"a", shape, normal(1, shape, s.scale)},
              {"b", shape, normal(2, shape, s.scale)},
              {"a_log", vector, normal(3, vector, 0.5), role},
              {"dt_bias", vector, normal(4, vector), role}};
  if (s.fused) {
    c.inputs[0].padding = {1, s.heads, 0};
    c.inputs[1].padding = {1, 0, s.heads};
  }
  c.terms = std::max<int64_t>(s.tokens, 1);
  c.reference = [s](const std::vector<Doubles>& in) {
    Doubles g, beta;
    for (size_t i = 0; i < in[0].size(); ++i) {
      const size_t h = i % static_cast<size_t>(s.heads);
      const double x = in[0][i] + in[3][h];
      g.push_back(-std::exp(in[2][h]) * (std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)))));
      beta.push_back(1 / (1 + std::exp(-in[1][i])));
    }
    g.insert(g.end(), beta.begin(), beta.end());
    return g;
  };
  c.run = [s](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    const auto weight = [&](const Var& x) { return s.wide ? p::cast(tape, x, DType::kF32) : x; };
    const Gates gates = delta_gates(tape, ops, v[0], v[1], weight(v[2]), weight(v[3]));
    EXPECT_EQ(gates.g.dtype(), DType::kF32);
    EXPECT_EQ(gates.beta.dtype(), DType::kF32);
    return Result{p::cast(tape, p::concat_first(tape, {gates.g, gates.beta}), v[0].dtype()), {}};
  };
  check_every_kernel<DeltaGates>(c, {.heads = s.heads});
}

TEST(DeltaGates, EveryKernelAgrees) {
  for (const int64_t heads : {1, 3, 16, 33}) check_gates({.heads = heads});
  check_gates({.tokens = 300, .heads = 32});
  check_gates({.tokens = 2100, .heads = 2});
  check_gates({.tokens = 0});
  check_gates({.tokens = 40, .heads = 8, .fused = true});
  check_gates({.wide = true});
}

TEST(DeltaGates, LargeValues) { check_gates({.tokens = 30, .scale = 40}); }

TEST(DeltaGates, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<DeltaGates>("eager", {});
  Tape tape;
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  const auto call = [&](const Tensor& a, const Tensor& b, const Tensor& a_log, const Tensor& dt_bias) {
    return [=, &tape, &ops] {
      delta_gates(tape, ops, tape.constant(a), tape.constant(b), tape.constant(a_log),
                  tape.constant(dt_bias));
    };
  };
  const Tensor a = f32({3, 4}), vector = f32({4});
  expect_error(call({}, a, vector, vector), "[delta_gates] a is missing");
  expect_error(call(a, f32({3, 5}), vector, vector), "[delta_gates] b is [3, 5], needs [3, 4]");
  expect_error(call(a, a, f32({3}), vector), "[delta_gates] a_log is [3], needs [4]");
  expect_error(call(a, a, vector, f32({5})), "[delta_gates] dt_bias is [5], needs [4]");
  expect_error(call(a, a, vector.to(DType::kBF16), vector), "[delta_gates] a_log is bfloat16, needs float32");
  expect_error(call(a, a, vector, vector.to(DType::kBF16)),
               "[delta_gates] dt_bias is bfloat16, needs float32");
}

}  // namespace
}  // namespace temper::ops
