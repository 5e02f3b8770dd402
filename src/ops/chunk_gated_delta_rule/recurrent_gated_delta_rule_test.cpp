#include "ops/chunk_gated_delta_rule/recurrent_gated_delta_rule.h"

#include <cmath>
#include <limits>

#include "ops/chunk_gated_delta_rule/delta_test_support.h"
#include "ops/slots_test_support.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<RecurrentGatedDeltaRule> kRecurrentGatedDeltaRuleKernels{
    {.key_heads = 16, .heads = 32, .key_dim = 128, .value_dim = 128},
    kAll,
    {{"simd", "simd", kCpu, kWide},
     {"cuda", "cuda", kGpu, kWide,
      [](const RecurrentGatedDeltaRule::Signature& s) { return s.key_dim <= 256 && s.value_dim % 4 == 0; }}}};

namespace p = primitives;

// One token of each sequence: documents of one token with initial states.
void check_step(DeltaSetup s, bool in_slots = false) {
  s.lengths.assign(s.lengths.size(), 1);
  s.initial = true;
  Case c;
  c.name = fmt::format("{} sequences, {} of {} heads, {} x {}", s.documents(), s.key_heads, s.heads,
                       s.key_dim, s.value_dim);
  c.inputs = delta_inputs(s);
  c.inference = true;
  c.terms = s.key_dim * 4;
  c.reference = [s](const std::vector<Doubles>& inputs) { return delta_reference(s, inputs); };
  c.run = [s, in_slots](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    const auto wide = [&](const Var& x) { return p::cast(tape, x, DType::kF32).value; };
    const Tensor state = wide(v[5]).clone();
    RecurrentGatedDeltaRule op{v[0].value, v[1].value, v[2].value, wide(v[3]),
                               wide(v[4]), state,      s.scale,    s.norms};
    if (!in_slots) return Result{tape.constant(recurrent_gated_delta_rule(ops, op)), {state}};
    const InSlots scattered(state);
    op.state = scattered.all;
    op.slots = scattered.slots;
    const Tensor y = recurrent_gated_delta_rule(ops, op);
    return Result{tape.constant(y), {scattered.rows()}};
  };
  check_every_kernel<RecurrentGatedDeltaRule>(c, {.key_heads = s.key_heads,
                                                  .heads = s.heads,
                                                  .key_dim = s.key_dim,
                                                  .value_dim = s.value_dim,
                                                  .norms = s.norms});
}

TEST(RecurrentGatedDeltaRule, EveryKernelAgrees) {
  check_step({.lengths = {1}});
  check_step({.lengths = {1, 1, 1}, .key_heads = 2, .heads = 6, .fused = true});
  for (const auto& [key, value] :
       {std::pair<int64_t, int64_t>{1, 1}, {16, 32}, {128, 128}, {256, 256}, {7, 5}})
    check_step({.lengths = {1, 1}, .key_dim = key, .value_dim = value});
  check_step({.lengths = {1}, .norms = false});
  check_step({.lengths = {1, 1}, .decays = {0, -40}});
  check_step({.lengths = {1, 1, 1}, .key_heads = 2, .heads = 6, .fused = true}, true);
}

// Several tokens of each sequence have the bits of as many steps, where one continues another, too.
TEST(RecurrentGatedDeltaRule, DocumentsAreTakenStepByStep) {
  const std::vector<int32_t> lengths{5, 0, 3, 40, 1}, before{-1, -1, 0, -1, 0};
  for (const auto& [key_dim, value_dim] :
       {std::pair<int64_t, int64_t>{32, 64}, {128, 128}, {200, 36}, {7, 4}}) {
    DeltaSetup s{.lengths = lengths, .key_heads = 2, .heads = 4, .key_dim = key_dim, .value_dim = value_dim};
    s.initial = true;
    s.continued = before;
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const BoundKernel& kernel :
           bind_everywhere<RecurrentGatedDeltaRule>({dtype, s.key_heads, s.heads, key_dim, value_dim})) {
        SCOPED_TRACE(fmt::format("{}, {}, {} x {}", kernel.provider, to_string(dtype), key_dim, value_dim));
        std::vector<Tensor> all;
        for (const Input& input : delta_inputs(s))
          all.push_back(
              tensor_of(input.values, input.shape, all.size() < 3 ? dtype : DType::kF32).on(kernel.device));
        const Tensor state = all[5].clone(), expected_state = all[5].clone();
        RecurrentGatedDeltaRule op{all[0], all[1], all[2], all[3], all[4], state, s.scale, s.norms};
        op.documents = s.op().documents;
        const Tensor y = recurrent_gated_delta_rule(kernel.ops, op);
        for (int64_t d = 0; d < op.documents.count(); ++d) {
          const Tensor own = expected_state.narrow(0, d, 1);
          if (before[static_cast<size_t>(d)] >= 0)
            own.copy_from(expected_state.narrow(0, before[static_cast<size_t>(d)], 1));
          for (int64_t t = op.documents.start(d); t < op.documents.start(d + 1); ++t) {
            const auto row = [&](size_t i) { return all[i].narrow(0, t, 1); };
            const Tensor one = recurrent_gated_delta_rule(
                kernel.ops, {row(0), row(1), row(2), row(3), row(4), own, s.scale, s.norms});
            EXPECT_EQ(values_of(y.narrow(0, t, 1)), values_of(one)) << t;
          }
        }
        EXPECT_EQ(values_of(state), values_of(expected_state));
      }
  }
}

// Steps of decoding and one pass over all tokens have the same float32 state, and results of the same
// roundings, on the CPU.
TEST(RecurrentGatedDeltaRule, ThirtyThousandStepsAreOnePass) {
  constexpr int32_t kTokens = 30'000;
  const DeltaSetup s{.lengths = {kTokens}, .heads = 1, .decays = {-0.001, -0.01, 0, -0.0001}};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<Tensor> all;
    for (const Input& input : delta_inputs(s))
      all.push_back(tensor_of(input.values, input.shape, all.size() < 3 ? dtype : DType::kF32));
    for (const char* provider : {"onednn"}) {
      const bool built = kernels<ChunkGatedDeltaRule>().find(provider) != nullptr;
      if (!built) continue;
      const BoundOps whole = bind_kernel<ChunkGatedDeltaRule>(provider, s.signature(dtype));
      const bool eager = std::string_view(provider) == kEager;
      const BoundOps step = bind_kernel<RecurrentGatedDeltaRule>(eager ? "eager" : "simd",
                                                                 {dtype, 1, 1, s.key_dim, s.value_dim});
      Tape tape(false);
      const auto v = [&](size_t i) { return tape.constant(all[i]); };
      const DeltaResult expected =
          chunk_gated_delta_rule(tape, whole, {v(0), v(1), v(2), v(3), v(4), {}}, s.op(), true);
      const Tensor state = Tensor::zeros({1, 1, s.key_dim, s.value_dim}, DType::kF32);
      Tensor y;
      for (int32_t at = 0; at < kTokens; ++at) {
        const auto row = [&](size_t i) { return all[i].narrow(0, at, 1); };
        y = recurrent_gated_delta_rule(step,
                                       {row(0), row(1), row(2), row(3), row(4), state, s.scale, s.norms});
      }
      EXPECT_TRUE(close(values_of(state), values_of(expected.final_state.value), tolerance_of(dtype, 1e-5)))
          << provider;
      EXPECT_TRUE(close(values_of(y), values_of(expected.y.value.narrow(0, kTokens - 1, 1)),
                        tolerance_of(dtype, 1e-5)))
          << provider;
    }
  }
}

TEST(RecurrentGatedDeltaRule, ChecksAtTheFrontDoor) {
  const BoundOps step = bind_kernel<RecurrentGatedDeltaRule>("eager", {}),
                 ops = bind_kernel<ChunkGatedDeltaRule>("eager", {});
  Tape tape;
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  struct Arguments {
    Tensor q, k, v, g, beta, initial = {};
    Documents documents{ints({0, 2, 5})};
    float eps = 1e-6f;
  };
  const auto expect = [&](const std::function<void(Arguments&)>& change, std::string_view message) {
    Arguments a{f32({5, 2, 8}), f32({5, 2, 8}), f32({5, 4, 6}), f32({5, 4}), f32({5, 4})};
    change(a);
    ChunkGatedDeltaRule op;
    op.documents = a.documents;
    op.eps = a.eps;
    expect_error(
        [&] {
          chunk_gated_delta_rule(
              tape, ops, {{a.q, {}}, {a.k, {}}, {a.v, {}}, {a.g, {}}, {a.beta, {}}, {a.initial, {}}}, op);
        },
        fmt::format("[chunk_gated_delta_rule] {}", message));
  };
  const auto gate = [](Tensor& gates, float value) { gates.values<float>()[6] = value; };
  const std::string remedy = "; check A_log and dt_bias of the model, or train with a lower learning rate";
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  expect([&](Arguments& a) { a.q = {}; }, "q is missing");
  expect([&](Arguments& a) { a.k = f32({5, 1, 8}); }, "k is [5, 1, 8], needs [5, 2, 8]");
  expect([&](Arguments& a) { a.v = f32({4, 4, 6}); }, "v is [4, 4, 6], needs [5, 4, 6]");
  expect([&](Arguments& a) { a.v = a.v.to(DType::kBF16); }, "v is bfloat16, needs float32");
  expect([&](Arguments& a) { a.v = f32({5, 3, 6}); }, "3 value heads are not a multiple of 2 key heads");
  expect([&](Arguments& a) { a.g = f32({5, 2}); }, "g is [5, 2], needs [5, 4]");
  expect([&](Arguments& a) { a.beta = a.beta.to(DType::kBF16); }, "beta is bfloat16, needs float32");
  for (const float value : {nan, -inf, 0.5f})
    expect([&](Arguments& a) { gate(a.g, value); },
           fmt::format("g of token 1, head 2 is {}, needs a finite value of at most 0{}", value, remedy));
  expect([&](Arguments& a) { gate(a.beta, inf); },
         "beta of token 1, head 2 is inf, needs a finite value" + remedy);
  expect([&](Arguments& a) { a.initial = f32({2, 4, 6, 8}); }, "initial is [2, 4, 6, 8], needs [2, 4, 8, 6]");
  expect(
      [&](Arguments& a) {
        a.initial = f32({2, 4, 8, 6}).to(DType::kBF16);
      },
      "initial is bfloat16, needs float32");
  expect(
      [&](Arguments& a) {
        a.documents.starts = ints({0, 4});
      },
      "starts must rise from 0 to 5 without falling");
  expect([&](Arguments& a) { a.eps = 0; }, "eps is 0, needs a value above 0");
  expect_error(
      [&] {
        recurrent_gated_delta_rule(step, {f32({2, 2, 8}), f32({2, 2, 8}), f32({2, 4, 6}), f32({2, 4}),
                                          f32({2, 4}), f32({2, 4, 6, 8})});
      },
      "[recurrent_gated_delta_rule] state is [2, 4, 6, 8], needs [2, 4, 8, 6]");
}

}  // namespace
}  // namespace temper::ops
