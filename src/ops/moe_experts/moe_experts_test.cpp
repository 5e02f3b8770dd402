#include "ops/moe_experts/moe_experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "device/cpu_features.h"
#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

bool plain(const MoeExperts::Signature& s) { return !s.biases && !s.clamped; }

const RequiredKernels<MoeExperts> kMoeExpertsKernels{
    {.hidden = 2048, .width = 768, .experts = 128, .top_k = 8},
    kAll,
    {{"onednn", "onednn", kCpu, kWide},
     {"hopper", "hopper", kHopper, kBFloat16,
      [](const MoeExperts::Signature& s) { return plain(s) && s.hidden % 8 == 0 && s.width % 8 == 0; }},
     {"cuda", "cuda", kGpu, kAll, plain}}};

struct Sizes {
  int64_t tokens, hidden, width, experts, top_k;
  bool biases = false, clamped = false;
  float limit = 1.5f;
  ExpertsGate gate() const { return {.clamped = clamped, .limit = limit}; }
};

using Route = std::function<int32_t(int64_t token, int64_t choice)>;  // of a token they differ

std::vector<int32_t> route(const Sizes& n, const Route& of) {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < n.tokens; ++t)
    for (int64_t j = 0; j < n.top_k; ++j) ids.push_back(of(t, j));
  return ids;
}

// A shuffle of the experts for each token.
Route anywhere(const Sizes& n) {
  return [n](int64_t token, int64_t choice) {
    const Random random(3, RandomPurpose::kData);
    std::vector<int32_t> order(static_cast<size_t>(n.experts));
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1],
                order[static_cast<size_t>(random.below(i, static_cast<uint64_t>(token) * 4096 + i))]);
    return order[static_cast<size_t>(choice)];
  };
}
Route the_first(const Sizes&) {
  return [](int64_t, int64_t choice) { return static_cast<int32_t>(choice); };
}
Route the_last(const Sizes& n) {
  return [n](int64_t, int64_t choice) { return static_cast<int32_t>(n.experts - 1 - choice); };
}

double gated(const Sizes& n, double gate, double up) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  if (!n.clamped) return gate * sigmoid(gate) * up;
  const double limit = n.gate().limit, g = std::min(gate, limit);
  return g * sigmoid(n.gate().alpha * g) * (std::clamp(up, -limit, limit) + 1);
}

// Gate and up of an expert's feature f for a token.
std::pair<double, double> entered(const Sizes& n, int64_t token, int64_t e, int64_t f,
                                  const std::vector<Doubles>& v) {
  double gate = n.biases ? v[4][e * 2 * n.width + f] : 0,
         up = n.biases ? v[4][e * 2 * n.width + n.width + f] : 0;
  for (int64_t i = 0; i < n.hidden; ++i) {
    gate += v[0][token * n.hidden + i] * v[2][(e * 2 * n.width + f) * n.hidden + i];
    up += v[0][token * n.hidden + i] * v[2][(e * 2 * n.width + n.width + f) * n.hidden + i];
  }
  return {gate, up};
}

// A limit that some values exceed and none is near, so that rounding moves none over it: gradients jump
// there.
float clear_limit(const Sizes& n, const std::vector<int32_t>& ids, const std::vector<Doubles>& v) {
  Doubles all{0, 1};
  for (int64_t t = 0; t < n.tokens; ++t)
    for (int64_t j = 0; j < n.top_k; ++j)
      for (int64_t f = 0; f < n.width; ++f) {
        const auto [gate, up] = entered(n, t, ids[static_cast<size_t>(t * n.top_k + j)], f, v);
        for (const double value : {gate, std::abs(up)})
          if (value > 1) all.push_back(value);
      }
  std::sort(all.begin(), all.end());
  size_t widest = 1;
  for (size_t i = 2; i + 1 < all.size(); ++i)
    if (all[i + 1] - all[i] > all[widest + 1] - all[widest]) widest = i;
  return all.size() < 3 ? 1.5f : static_cast<float>((all[widest] + all[widest + 1]) / 2);
}

// Inputs: x, weights, gate_up, down, and the biases of gate_up and down where there are some.
Doubles reference(const Sizes& n, const std::vector<int32_t>& ids, const std::vector<Doubles>& v) {
  Doubles y(static_cast<size_t>(n.tokens * n.hidden));
  for (int64_t t = 0; t < n.tokens; ++t)
    for (int64_t j = 0; j < n.top_k; ++j) {
      const int64_t e = ids[static_cast<size_t>(t * n.top_k + j)];
      for (int64_t f = 0; f < n.width; ++f) {
        const auto [gate, up] = entered(n, t, e, f, v);
        const double a = v[1][t * n.top_k + j] * gated(n, gate, up);
        for (int64_t i = 0; i < n.hidden; ++i)
          y[t * n.hidden + i] += a * v[3][(e * n.hidden + i) * n.width + f];
      }
      for (int64_t i = 0; n.biases && i < n.hidden; ++i)
        y[t * n.hidden + i] += v[1][t * n.top_k + j] * v[5][e * n.hidden + i];
    }
  return y;
}

MoeExperts::Signature signature_of(const Sizes& n) {
  return {.hidden = n.hidden,
          .width = n.width,
          .experts = n.experts,
          .top_k = n.top_k,
          .biases = n.biases,
          .clamped = n.clamped};
}

Case make_case(const Sizes& given, const Route& of) {
  Sizes n = given;
  const std::vector<int32_t> ids = route(n, of);
  Case c;
  c.name =
      fmt::format("{} tokens of {}, {} of {} experts of {}", n.tokens, n.hidden, n.top_k, n.experts, n.width);
  const double deviation = 1 / std::sqrt(static_cast<double>(n.hidden)),
               of_width = 1 / std::sqrt(static_cast<double>(n.width));
  Doubles weights;
  for (int64_t i = 0; i < n.tokens * n.top_k; ++i) weights.push_back(0.25 + static_cast<double>(i % 5) / 8);
  c.inputs = {{"x", {n.tokens, n.hidden}, normal(1, {n.tokens, n.hidden})},
              {"weights", {n.tokens, n.top_k}, weights},
              {"gate_up",
               {n.experts * 2 * n.width, n.hidden},
               normal(2, {n.experts * 2 * n.width, n.hidden}, 2 * deviation),
               Role::kParameter},
              {"down",
               {n.experts * n.hidden, n.width},
               normal(4, {n.experts * n.hidden, n.width}, of_width),
               Role::kParameter}};
  if (n.biases) {
    const Shape in{n.experts * 2 * n.width}, out{n.experts * n.hidden};
    c.inputs.push_back({"gate_up_bias", in, normal(5, in), Role::kParameter});
    c.inputs.push_back({"down_bias", out, normal(6, out), Role::kParameter});
  }
  std::vector<Doubles> values;
  for (const Input& input : c.inputs) values.push_back(input.values);
  if (n.clamped) n.limit = clear_limit(n, ids, values);
  c.reference = [=](const std::vector<Doubles>& inputs) { return reference(n, ids, inputs); };
  c.run = [=](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    const Tensor there = on_device_of(v[0], Tensor::from(std::span<const int32_t>(ids), {n.tokens, n.top_k}));
    ExpertWeights of{v[2], v[3], {}, {}, n.gate()};
    if (n.biases) {
      of.gate_up_bias = v[4];
      of.down_bias = v[5];
    }
    return Result{moe_experts(tape, ops, v[0], there, primitives::cast(tape, v[1], DType::kF32), of), {}};
  };
  c.terms = std::max({n.tokens, n.hidden, n.width}) * n.top_k;
  c.roundings = 5;  // of gate and up, of their product, of each expert's result, of y
  c.samples = 6;
  return c;
}

void check(const Sizes& n, const Route& of) {
  check_every_kernel<MoeExperts>(make_case(n, of), signature_of(n));
}

TEST(MoeExperts, EveryKernelAgrees) {
  for (const Sizes& n : std::vector<Sizes>{
           {1, 8, 8, 1, 1}, {1, 8, 8, 4, 4}, {7, 16, 24, 4, 2}, {20, 24, 8, 6, 3}, {33, 32, 16, 5, 1}})
    check(n, anywhere(n));
}

TEST(MoeExperts, OddSizes) {
  for (const Sizes& n : std::vector<Sizes>{{5, 7, 3, 3, 2}, {9, 1, 1, 2, 1}, {4, 33, 17, 4, 3}})
    check(n, anywhere(n));
}

TEST(MoeExperts, LargerSizes) {
  for (const Sizes& n : std::vector<Sizes>{{150, 64, 40, 4, 2}, {40, 72, 136, 8, 8}, {200, 32, 32, 3, 1}})
    check(n, anywhere(n));
}

// Each by itself, and both as gpt-oss has them.
TEST(MoeExperts, BiasesAndTheClampedGate) {
  for (const Sizes& n :
       std::vector<Sizes>{{1, 8, 8, 1, 1}, {7, 16, 24, 4, 2}, {5, 7, 3, 3, 2}, {150, 64, 40, 4, 2}}) {
    Sizes other = n;
    other.biases = true;
    check(other, anywhere(n));
    other.clamped = true;
    check(other, anywhere(n));
    other.biases = false;
    check(other, anywhere(n));
  }
  const Sizes n{70, 16, 16, 8, 2, true, true};
  check(n, the_last(n));
  const Sizes none{0, 8, 8, 4, 2, true, true};
  check(none, anywhere(none));
}

// All tokens in one expert, and experts without tokens, whose gradient is exactly zero.
TEST(MoeExperts, AnyRouting) {
  const Sizes n{70, 16, 16, 8, 2};
  check(n, the_first(n));
  check(n, the_last(n));
  const Sizes one{70, 16, 16, 8, 1};
  check(one, the_last(one));
  const Sizes many{3, 8, 8, 512, 8};
  check(many, anywhere(many));
  const Sizes none{0, 8, 8, 4, 2};
  check(none, anywhere(none));
}

TEST(MoeExperts, ExpertsWithoutTokensHaveNoGradient) {
  const Sizes n{6, 16, 24, 4, 2};
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const BoundKernel& kernel :
         bind_everywhere<MoeExperts>({dtype, n.hidden, n.width, n.experts, n.top_k}))
      for (const DType gradients : {DType::kF32, DType::kBF16}) {
        if (kernel.device.type != DeviceType::kCpu && gradients == DType::kBF16 && dtype != DType::kBF16)
          continue;
        SCOPED_TRACE(fmt::format("{}, {}, {}", kernel.provider, to_string(dtype), to_string(gradients)));
        const Case c = make_case(n, the_first(n));
        Tape tape;
        std::vector<Var> v;
        for (const Input& input : c.inputs) {
          Var var{tensor_of(input.values, input.shape, dtype).on(kernel.device),
                  std::make_shared<GradSlot>()};
          if (input.role == Role::kParameter)
            var.slot->set_buffer(tensor_of(Doubles(input.values.size(), std::nan("")), input.shape, gradients)
                                     .on(kernel.device));
          v.push_back(var);
        }
        const Var y = c.run(tape, kernel.ops, v).y;
        tape.backward(y, y.value.clone());
        for (const size_t i : {2, 3}) {
          const Doubles grad = values_of(v[i].slot->grad());
          const size_t each = grad.size() / 4;
          for (size_t k = 0; k < grad.size(); ++k) {
            if (k < 2 * each)
              ASSERT_TRUE(std::isfinite(grad[k]));
            else
              ASSERT_EQ(grad[k], 0) << c.inputs[i].name << " " << k;
          }
        }
      }
}

// Gradients of weights need a choice's result times dy, which is also its activation times dy · down: what
// lives until backward has no rows as wide as the stream.
TEST(MoeExperts, NoChoicesResultIsKept) {
  const Sizes n{16, 128, 8, 4, 2};
  const Case c = make_case(n, the_first(n));
  const std::vector<int32_t> ids = route(n, the_first(n));
  for (const BoundKernel& kernel : bind_everywhere<MoeExperts>(signature_of(n))) {
    const auto& own = kernel.ops.get<MoeExperts>();
    if (own.forward == nullptr) continue;  // a composition, whose tape keeps what primitives keep
    SCOPED_TRACE(kernel.provider);
    MoeExperts op;
    const auto input = [&](size_t i) {
      return tensor_of(c.inputs[i].values, c.inputs[i].shape, DType::kF32).on(kernel.device);
    };
    op.x = input(0);
    op.weights = input(1);
    op.gate_up = input(2);
    op.down = input(3);
    op.ids = Tensor::from(std::span<const int32_t>(ids), {n.tokens, n.top_k}).on(kernel.device);
    op.experts = n.experts;
    const MoeExperts::Output out = own.forward(op, true);
    int64_t kept = 0;
    for (const Tensor* tensor : {&out.gate_up, &out.places})
      if (tensor->defined()) kept += tensor->bytes();
    EXPECT_GT(kept, 0);
    EXPECT_LT(kept, n.tokens * n.top_k * n.hidden * size_of(DType::kF32));
  }
}

// The frozen matrices stand outside the inputs.
TEST(MoeExperts, EveryKernelAgreesOnWeightsIn8Bits) {
  for (const Sizes& n : std::vector<Sizes>{{1, 16, 8, 4, 2}, {9, 64, 32, 4, 2}, {150, 32, 24, 3, 2}}) {
    Case c = make_case(n, anywhere(n));
    const Shape in = c.inputs[2].shape, out = c.inputs[3].shape;
    const Doubles gate_up = c.inputs[2].values, down = c.inputs[3].values;
    const std::vector<int32_t> ids = route(n, anywhere(n));
    c.name += " in 8 bits";
    c.inputs.resize(2);
    c.reference = [=](const std::vector<Doubles>& inputs) {
      return reference(n, ids,
                       {inputs[0], inputs[1], meaning_in_8_bits(gate_up, in), meaning_in_8_bits(down, out)});
    };
    c.run = [=](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
      const Tensor there =
          on_device_of(v[0], Tensor::from(std::span<const int32_t>(ids), {n.tokens, n.top_k}));
      return Result{moe_experts(tape, ops, v[0], there, primitives::cast(tape, v[1], DType::kF32),
                                {in_8_bits(v[0], gate_up, in), in_8_bits(v[0], down, out)}),
                    {}};
    };
    check_every_kernel<MoeExperts>(c, signature_of(n));
  }
}

// A token's result has the same bits whatever other tokens are there, for kernels that say so.
TEST(MoeExperts, TokensDoNotDependOnOneAnother) {
  const Sizes n{64, 96, 80, 6, 2};
  int tested = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const BoundKernel& kernel :
         bind_everywhere<MoeExperts>({dtype, n.hidden, n.width, n.experts, n.top_k})) {
      if (!kernel.ops.at<MoeExperts>("").batch_invariant) continue;
      ++tested;
      SCOPED_TRACE(fmt::format("{}, {}", kernel.provider, to_string(dtype)));
      const Case c = make_case(n, anywhere(n));
      const std::vector<int32_t> ids = route(n, anywhere(n));
      const auto run = [&](int64_t first, int64_t count) {
        Tape tape(false);
        std::vector<Var> v;
        for (const Input& input : c.inputs)
          v.push_back(tape.constant(tensor_of(input.values, input.shape, dtype)));
        const Tensor own = Tensor::from(std::span<const int32_t>(ids), {n.tokens, n.top_k})
                               .narrow(0, first, count)
                               .contiguous();
        const Tensor weights = v[1].value.to(DType::kF32).narrow(0, first, count).contiguous();
        const auto there = [&](const Tensor& tensor) { return tape.constant(tensor.on(kernel.device)); };
        return values_of(moe_experts(tape, kernel.ops, there(v[0].value.narrow(0, first, count).contiguous()),
                                     own.on(kernel.device), there(weights),
                                     {there(v[2].value), there(v[3].value)})
                             .value);
      };
      const Doubles all = run(0, 64);
      for (const int64_t count : {1, 7})
        for (const int64_t first : {0, 5, 57}) {
          const auto begin = all.begin() + first * n.hidden;
          EXPECT_EQ(run(first, count), Doubles(begin, begin + count * n.hidden)) << first << ", " << count;
        }
    }
  // By tiles of our own, which AMX's owner leaves to a library.
  const bool has_tiles = has_cpu_feature("avx2") && has_cpu_feature("fma") && !has_cpu_feature("amx_bf16");
  EXPECT_TRUE(tested > 0 || !has_tiles);
  if (tested == 0) GTEST_SKIP() << "no kernel on this processor promises that: it lacks AVX2, or has AMX";
}

TEST(MoeExperts, FormsAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<MoeExperts>("eager", {DType::kF32, 8, 4, 2, 1});
  Tape tape;
  const auto f32 = [](const Shape& shape) { return Tensor::zeros(shape, DType::kF32); };
  const auto expect = [&](const Tensor& in, const Tensor& out, const ExpertsGate& gate,
                          std::string_view message) {
    expect_error(
        [&] {
          moe_experts(tape, ops, tape.constant(f32({3, 8})), Tensor::zeros({3, 1}, DType::kI32),
                      tape.constant(f32({3, 1})),
                      {Var{f32({16, 8}), {}}, Var{f32({16, 4}), {}}, {in, {}}, {out, {}}, gate});
        },
        message);
  };
  expect(f32({16}), {}, {}, "[moe_experts] has one of gate_up_bias and down_bias, needs both or none");
  expect(f32({8}), f32({16}), {}, "[moe_experts] gate_up_bias is [8], needs [16]");
  expect(f32({16}), f32({4}), {}, "[moe_experts] down_bias is [4], needs [16]");
  expect(f32({16}).to(DType::kBF16), f32({16}), {}, "[moe_experts] gate_up_bias is bfloat16, needs float32");
  expect({}, {}, {.clamped = true, .limit = 0}, "[moe_experts] the gate's limit is 0, needs a positive one");
}

TEST(MoeExperts, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<MoeExperts>("eager", {DType::kF32, 8, 4, 2, 1});
  Tape tape;
  const auto f32 = [](const Shape& shape) { return Tensor::zeros(shape, DType::kF32); };
  const Tensor x = f32({3, 8}), ids = Tensor::zeros({3, 1}, DType::kI32), weights = f32({3, 1}),
               gate_up = f32({16, 8}), down = f32({16, 4});
  const auto call = [&](const Tensor& a, const Tensor& i, const Tensor& w, const Tensor& g, const Tensor& d) {
    return [&tape, &ops, a, i, w, g, d] {
      moe_experts(tape, ops, tape.constant(a), i, tape.constant(w), {Var{g, {}}, Var{d, {}}});
    };
  };
  expect_error(call({}, ids, weights, gate_up, down), "[moe_experts] x is missing");
  expect_error(call(x, f32({3, 1}), weights, gate_up, down), "[moe_experts] ids is float32, needs int32");
  expect_error(call(x, Tensor::zeros({2, 1}, DType::kI32), weights, gate_up, down),
               "[moe_experts] ids is [2, 1], needs [3, 1]");
  expect_error(call(x, ids, f32({3, 2}), gate_up, down), "[moe_experts] weights is [3, 2], needs [3, 1]");
  expect_error(call(x, ids, weights.to(DType::kBF16), gate_up, down),
               "[moe_experts] weights is bfloat16, needs float32");
  expect_error(call(x, ids, weights, f32({15, 8}), down), "[moe_experts] gate_up is [15, 8], needs [16, 8]");
  expect_error(call(x, ids, weights, gate_up, f32({15, 4})),
               "[moe_experts] down is [15, 4], needs 8 rows for each expert");
  expect_error(call(x, Tensor::from(std::vector<int32_t>{0, 2, 1}).reshape({3, 1}), weights, gate_up, down),
               "[moe_experts] ids has expert 2, needs 0 to 1");
  expect_error(call(x, Tensor::zeros({3, 3}, DType::kI32), f32({3, 3}), gate_up, down),
               "[moe_experts] top 3 of 2 experts, needs no more than there are");
}

}  // namespace
}  // namespace temper::ops
