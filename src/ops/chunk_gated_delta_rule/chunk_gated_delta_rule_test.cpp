#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"

#include <cmath>

#include "ops/chunk_gated_delta_rule/composition.h"
#include "ops/chunk_gated_delta_rule/delta_test_support.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<ChunkGatedDeltaRule> kChunkGatedDeltaRuleKernels{
    {.key_heads = 16, .heads = 32, .key_dim = 128, .value_dim = 128},
    kAll,
    {{"onednn", "onednn", kCpu, kWide},
     {"cuda", "cuda", kGpu, kBFloat16,
      [](const ChunkGatedDeltaRule::Signature& s) {
        return s.key_dim % 8 == 0 && s.value_dim % 8 == 0 && std::max(s.key_dim, s.value_dim) <= 128;
      },
      false, 163 << 10}}};
namespace p = primitives;

ChunkGatedDeltaRule::Inputs inputs_of(Tape& tape, const std::vector<Var>& v) {
  const auto wide = [&](const Var& x) { return p::cast(tape, x, DType::kF32); };
  return {v[0], v[1], v[2], wide(v[3]), wide(v[4]), v.size() > 5 ? wide(v[5]) : Var{}};
}

// y and the final states in one tensor of y's dtype.
Var joined(Tape& tape, const DeltaResult& out) {
  const auto flat = [&](const Var& part) {
    return p::reshape(tape, p::cast(tape, part, out.y.dtype()), {part.value.numel()});
  };
  return p::concat_first(tape, {flat(out.y), flat(out.final_state)});
}

Case make_case(const DeltaSetup& s) {
  Case c;
  c.name = fmt::format("{} documents of {} tokens, {} of {} heads, {} x {}{}{}{}", s.documents(), s.tokens(),
                       s.key_heads, s.heads, s.key_dim, s.value_dim, s.initial ? ", initial states" : "",
                       s.continued.empty() ? "" : ", continued", s.fused ? ", fused" : "");
  c.inputs = delta_inputs(s);
  int32_t longest = 1;
  for (const int32_t length : s.lengths) longest = std::max(longest, length);
  c.terms = std::max<int64_t>({longest, s.key_dim, s.value_dim}) * 4;
  const int64_t work = s.tokens() * s.heads * s.key_dim * s.value_dim;
  c.samples = work < 20'000 ? 16 : work < 200'000 ? 4 : 1;
  c.roundings = 2;  // of q, k and what chunks multiply
  c.floor = 0.05;
  c.reference = [s](const std::vector<Doubles>& inputs) { return delta_reference(s, inputs); };
  c.run = [op = s.op()](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    return Result{joined(tape, chunk_gated_delta_rule(tape, ops, inputs_of(tape, v), op, true)), {}};
  };
  return c;
}

void check(const DeltaSetup& s) { check_every_kernel<ChunkGatedDeltaRule>(make_case(s), s.signature()); }

TEST(ChunkGatedDeltaRule, Documents) {
  check({.lengths = {9}});
  check({.lengths = {1, 2, 3, 4, 5}});
  check({.lengths = {5, 0, 1, 33, 0}});
  check({.lengths = {0}});
  check({.lengths = {0, 3}});
}

TEST(ChunkGatedDeltaRule, ChunkBorders) {
  for (const int32_t border : {32, 64, 128})
    check({.lengths = {border - 2, border - 1, border, border + 1, border + 2},
           .heads = 1,
           .key_dim = 8,
           .value_dim = 8});
  check({.lengths = {3, 64, 1, 65, 61, 200}, .heads = 1, .key_dim = 8, .value_dim = 8});
}

TEST(ChunkGatedDeltaRule, Heads) {
  for (const int64_t group : {1, 2, 3}) check({.lengths = {7, 20}, .key_heads = 2, .heads = 2 * group});
  check({.lengths = {6}, .key_heads = 1, .heads = 4});
}

TEST(ChunkGatedDeltaRule, HeadDims) {
  for (const auto& [key, value] : {std::pair<int64_t, int64_t>{1, 1}, {16, 32}, {64, 64}, {24, 8}, {7, 5}})
    check({.lengths = {10, 4}, .key_dim = key, .value_dim = value});
  check({.lengths = {5, 2}, .heads = 1, .key_dim = 256, .value_dim = 256, .scale = 0.1f});
}

// What kernels for training are written for.
TEST(ChunkGatedDeltaRule, WideHeads) {
  check({.lengths = {66, 3, 1},
         .key_heads = 1,
         .heads = 2,
         .key_dim = 128,
         .value_dim = 128,
         .fused = true,
         .scale = 0.09f});
  check({.lengths = {65, 2, 3},
         .heads = 1,
         .key_dim = 128,
         .value_dim = 128,
         .continued = {-1, 0, 0},
         .scale = 0.09f});
}

TEST(ChunkGatedDeltaRule, InitialStates) {
  check({.lengths = {5, 0, 1, 70}, .initial = true});
  check({.lengths = {66, 3}, .key_heads = 2, .heads = 4, .initial = true, .fused = true});
}

TEST(ChunkGatedDeltaRule, DocumentsThatContinueOthers) {
  check({.lengths = {6, 4, 3, 7, 0, 2}, .continued = {-1, 0, 0, -1, 3, 3}});
  check({.lengths = {65, 3, 64}, .heads = 1, .continued = {-1, 0, 0}});
  check({.lengths = {4, 2, 5}, .continued = {-1, 0, 0}, .initial = true});
  check({.lengths = {0, 4, 3}, .continued = {-1, 0, 0}, .initial = true});
}

TEST(ChunkGatedDeltaRule, HeadsOfWiderRows) {
  check({.lengths = {9, 4}, .key_heads = 2, .heads = 4, .fused = true});
}

TEST(ChunkGatedDeltaRule, WithoutNorms) { check({.lengths = {9, 70}, .norms = false}); }

TEST(ChunkGatedDeltaRule, ExtremeGates) {
  for (const auto& decays : std::vector<std::vector<double>>{
           {0}, {-40}, {0, -40}, {-40, -0.01, -0.02}, {-0.5, -0.25, -80, -0.125}})
    check({.lengths = {7, 130}, .heads = 1, .decays = decays});
}

// A key that comes again and again, whose value is always replaced: inverses by powers of A would overflow.
TEST(ChunkGatedDeltaRule, EqualKeys) {
  const DeltaSetup s{.lengths = {130}, .heads = 1, .decays = {0}};
  Case c = make_case(s);
  for (size_t i = 0; i < c.inputs[1].values.size(); ++i) c.inputs[1].values[i] = i % 8 == 0 ? 1 : 0.5;
  for (double& beta : c.inputs[4].values) beta = 1;
  c.floor = 1;      // nothing depends on the decays
  c.roundings = 8;  // the 64 updates of a chunk, each rounded by itself, replace one another
  check_every_kernel<ChunkGatedDeltaRule>(c, s.signature());
}

TEST(ChunkGatedDeltaRule, RowsOfZeros) {
  const DeltaSetup s{.lengths = {6, 3}, .heads = 2, .eps = 1e-2f};
  Case c = make_case(s);
  for (const size_t input : {0, 1})
    for (size_t i = 8; i < 24; ++i) c.inputs[input].values[i] = 0;
  check_every_kernel<ChunkGatedDeltaRule>(c, s.signature());
}

// Chunks of any size give what the recurrence gives.
TEST(ChunkGatedDeltaRule, ChunksAreTheRecurrence) {
  const DeltaSetup s{.lengths = {70, 0, 33}, .key_heads = 2, .heads = 4, .initial = true};
  const Case c = make_case(s);
  std::vector<Doubles> values;
  for (const Input& input : c.inputs)
    values.push_back(values_of(tensor_of(input.values, input.shape, DType::kF32)));
  const Doubles expected = delta_reference(s, values);
  for (const int64_t chunk : {1, 2, 5, 16, 64, 100}) {
    Tape tape(false);
    std::vector<Var> inputs;
    for (const Input& input : c.inputs)
      inputs.push_back(tape.constant(tensor_of(input.values, input.shape, DType::kF32)));
    const DeltaResult out = compose_delta_chunks(tape, inputs_of(tape, inputs), s.op(), true, chunk);
    EXPECT_TRUE(close(values_of(joined(tape, out).value), expected, 2e-6)) << chunk;
  }
}

struct Gradients {
  Doubles y, states;
  std::vector<Doubles> of;  // q, k, v, g, beta
};

// Of some tokens of the inputs, with a gradient of y and one of the final states.
Gradients run(const BoundKernel& kernel, const DeltaSetup& s, const std::vector<Tensor>& all, int64_t first,
              const Tensor& initial = {}, bool keep_states = false) {
  Tape tape(TapeOptions{.keep_states = keep_states});
  std::vector<Var> v;
  for (const Tensor& each : all)
    v.push_back(tape.variable(each.narrow(0, first, s.tokens()).contiguous().on(kernel.device)));
  const Var start = initial.defined() ? tape.variable(initial.on(kernel.device)) : Var{};
  const DeltaResult out =
      chunk_gated_delta_rule(tape, kernel.ops, {v[0], v[1], v[2], v[3], v[4], start}, s.op(), true);
  Gradients found{values_of(out.y.value), values_of(out.final_state.value), {}};
  out.final_state.slot->add(
      tensor_of(normal(8, out.final_state.shape()), out.final_state.shape(), DType::kF32).on(kernel.device));
  tape.backward(out.y, all[2].narrow(0, first, s.tokens()).contiguous().on(kernel.device));
  for (const Var& each : v) found.of.push_back(values_of(each.slot->take()));
  return found;
}

std::vector<Tensor> tensors_of(const DeltaSetup& s, DType dtype) {
  std::vector<Tensor> all;
  for (const Input& input : delta_inputs(s))
    all.push_back(tensor_of(input.values, input.shape, all.size() < 3 ? dtype : DType::kF32));
  return all;
}

// What a document gives does not depend on those next to it, bit by bit, gradients included.
TEST(ChunkGatedDeltaRule, PackedDocumentsAreWhatTheyAreAlone) {
  DeltaSetup packed{.lengths = {70, 5, 64, 1, 131}, .key_heads = 2, .heads = 4};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::vector<Tensor> all = tensors_of(packed, dtype);
    for (const BoundKernel& kernel : bind_everywhere<ChunkGatedDeltaRule>(packed.signature(dtype))) {
      SCOPED_TRACE(kernel.provider);
      Tape tape;
      std::vector<Var> v;
      for (const Tensor& each : all) v.push_back(tape.variable(each.on(kernel.device)));
      const Var y =
          chunk_gated_delta_rule(tape, kernel.ops, {v[0], v[1], v[2], v[3], v[4], {}}, packed.op()).y;
      tape.backward(y, all[2].on(kernel.device));
      std::vector<Tensor> grads;
      for (const Var& each : v) grads.push_back(each.slot->take().on({}));
      int64_t first = 0;
      for (const int32_t length : packed.lengths) {
        DeltaSetup one = packed;
        one.lengths = {length};
        Tape own;
        std::vector<Var> w;
        for (const Tensor& each : all)
          w.push_back(own.variable(each.narrow(0, first, length).contiguous().on(kernel.device)));
        const Var alone =
            chunk_gated_delta_rule(own, kernel.ops, {w[0], w[1], w[2], w[3], w[4], {}}, one.op()).y;
        own.backward(alone, all[2].narrow(0, first, length).contiguous().on(kernel.device));
        const auto part = [&](const Tensor& x) { return values_of(x.narrow(0, first, length)); };
        EXPECT_EQ(values_of(alone.value), part(y.value.on({}))) << length;
        for (size_t i = 0; i < w.size(); ++i)
          EXPECT_EQ(values_of(w[i].slot->take()), part(grads[i])) << length << ", input " << i;
        first += length;
      }
    }
  }
}

// What kernels for 16 bits round (q̂, U, …) differs where chunks begin elsewhere.
double tolerance_of(DType dtype, double wide) { return dtype == DType::kF32 ? wide : 2e-2; }

// A sequence in two pieces, wherever it is cut.
TEST(ChunkGatedDeltaRule, AnySplitGivesTheSame) {
  const DeltaSetup whole{.lengths = {135}, .heads = 2};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::vector<Tensor> all = tensors_of(whole, dtype);
    const double tolerance = tolerance_of(dtype, 2e-6);
    for (const BoundKernel& kernel : bind_everywhere<ChunkGatedDeltaRule>(whole.signature(dtype))) {
      SCOPED_TRACE(kernel.provider);
      const Gradients expected = run(kernel, whole, all, 0);
      for (const int32_t cut : {1, 2, 5, 31, 63, 64, 65, 127, 128, 129, 134}) {
        DeltaSetup begin = whole, end = whole;
        begin.lengths = {cut};
        end.lengths = {135 - cut};
        const Gradients first = run(kernel, begin, all, 0);
        const Tensor state = tensor_of(first.states, {1, 2, 8, 8}, DType::kF32);
        const Gradients second = run(kernel, end, all, cut, state);
        Doubles y = first.y;
        y.insert(y.end(), second.y.begin(), second.y.end());
        EXPECT_TRUE(close(y, expected.y, tolerance)) << cut;
        EXPECT_TRUE(close(second.states, expected.states, tolerance)) << cut;
      }
    }
  }
}

// What ranks compute of a document before they know the state that enters it: the bits of the whole op.
TEST(ChunkGatedDeltaRule, StatesAndTheirGradientsAlone) {
  for (const bool continued : {false, true}) {
    DeltaSetup s{.lengths = {70, 5, 0, 129}, .key_heads = 2, .heads = 4, .initial = true};
    if (continued) s.continued = {-1, 0, -1, 0};
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const std::vector<Tensor> all = tensors_of(s, dtype);
      for (const BoundKernel& kernel : bind_everywhere<ChunkGatedDeltaRule>(s.signature(dtype))) {
        SCOPED_TRACE(fmt::format("{}, {}", kernel.provider, to_string(dtype)));
        Tape tape;
        std::vector<Var> v;
        for (const Tensor& each : all) v.push_back(tape.variable(each.on(kernel.device)));
        const DeltaResult whole =
            chunk_gated_delta_rule(tape, kernel.ops, {v[0], v[1], v[2], v[3], v[4], v[5]}, s.op(), true);
        const Tensor dy = all[2].on(kernel.device);
        tape.backward(whole.y, dy);
        ChunkGatedDeltaRule op = s.op();
        op.q = v[0].value;
        op.k = v[1].value;
        op.v = v[2].value;
        op.g = v[3].value;
        op.beta = v[4].value;
        op.initial = v[5].value;
        EXPECT_EQ(values_of(delta_final_states(kernel.ops, op)), values_of(whole.final_state.value));
        op.initial = {};  // the gradients do not depend on it
        EXPECT_EQ(values_of(delta_initial_gradients(kernel.ops, op, dy)), values_of(v[5].slot->take()));
      }
    }
  }
}

// Of 8,192 tokens.
void check_long(const std::vector<double>& decays, DType dtype) {
  const DeltaSetup s{.lengths = {8192}, .heads = 1, .decays = decays};
  const std::vector<Tensor> all = tensors_of(s, dtype);
  std::vector<Doubles> values;
  for (const Tensor& each : all) values.push_back(values_of(each));
  const Doubles expected = delta_reference(s, values);
  for (const BoundKernel& kernel : bind_everywhere<ChunkGatedDeltaRule>(s.signature(dtype))) {
    SCOPED_TRACE(kernel.provider);
    const Gradients found = run(kernel, s, all, 0);
    Doubles both = found.y;
    both.insert(both.end(), found.states.begin(), found.states.end());
    EXPECT_TRUE(close(both, expected, tolerance_of(dtype, 1e-5)));
    for (const Doubles& grad : found.of)
      for (const double value : grad) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(ChunkGatedDeltaRule, LongSequencesStayFinite) {
  for (const auto& decays :
       std::vector<std::vector<double>>{{0}, {-40}, {-0.001}, {0, 0, -40, -0.01}, {-0.5, -0.25, -1000}})
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(fmt::format("decays from {}, {}", decays[0], to_string(dtype)));
      check_long(decays, dtype);
    }
}

// On-chip memory of 1,572,864 bits, as an NPU has it, where the first tiling wants more: the one that fits is
// taken, shown with both figures, and gives the same numbers.
TEST(ChunkGatedDeltaRule, ASmallerTilingGivesTheSame) {
  const DeltaSetup s{.lengths = {70, 130}, .heads = 1, .key_dim = 64, .value_dim = 64, .continued = {-1, 0}};
  if (kernels<ChunkGatedDeltaRule>().find("onednn") == nullptr)
    GTEST_SKIP() << "without the kernel of the CPU";
  const std::vector<Tensor> all = tensors_of(s, DType::kF32);
  const auto bind = [&](int64_t scratch_bytes) {
    HardwareFacts facts;
    facts.scratch_bytes = scratch_bytes;
    facts.scratch_name = "unified buffer";
    Binder binder({.fallback = "onednn"}, facts);
    binder.bind<ChunkGatedDeltaRule>({s.signature()});
    return binder.finish();
  };
  const auto run_with = [&](const BoundOps& ops) { return run({"onednn", ops, Device{}}, s, all, 0); };
  const BoundOps whole = bind(0), half = bind(192 << 10), quarter = bind(100 << 10);
  EXPECT_EQ(whole.choices()[0].tilings, std::vector<std::string>{"64 tokens, 2,004,992 bits"});
  EXPECT_EQ(half.choices()[0].tilings,
            std::vector<std::string>{"32 tokens, 1,133,568 bits of 1,572,864 of the unified buffer"});
  EXPECT_EQ(quarter.get<ChunkGatedDeltaRule>().tiling, 2);
  const Gradients expected = run_with(whole);
  for (const BoundOps* ops : {&half, &quarter}) {
    const Gradients found = run_with(*ops);
    EXPECT_NE(found.y, expected.y);  // other sums: the kernel did take the tiling
    EXPECT_NE(found.of[1], expected.of[1]);
    EXPECT_TRUE(close(found.y, expected.y, 2e-6));
    EXPECT_TRUE(close(found.states, expected.states, 2e-6));
    for (size_t i = 0; i < found.of.size(); ++i) EXPECT_TRUE(close(found.of[i], expected.of[i], 1e-5)) << i;
  }
  expect_error([&] { bind(10 << 10); },
               "[model.ops_implementation] chunk_gated_delta_rule_implementation=onednn cannot run: needs "
               "697,856 bits, "
               "the unified buffer has 81,920. Set it to one of [eager]");
}

// What is kept for backward is what would be computed again; also where documents continue another.
TEST(ChunkGatedDeltaRule, KeptStatesChangeNoBit) {
  for (const auto& [lengths, dim] : {std::pair{std::vector<int32_t>{70, 1, 65, 64}, 16}, {{300}, 128}}) {
    const DeltaSetup s{.lengths = lengths, .key_heads = 2, .heads = 4, .key_dim = dim, .value_dim = dim};
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const std::vector<Tensor> all = tensors_of(s, dtype);
      for (const BoundKernel& kernel : bind_everywhere<ChunkGatedDeltaRule>(s.signature(dtype))) {
        SCOPED_TRACE(kernel.provider);
        const Gradients again = run(kernel, s, all, 0), kept = run(kernel, s, all, 0, {}, true);
        EXPECT_EQ(kept.y, again.y);
        EXPECT_EQ(kept.states, again.states);
        EXPECT_EQ(kept.of, again.of);
      }
    }
  }
}

TEST(ChunkGatedDeltaRule, RepeatsBitByBit) {
  const DeltaSetup s{.lengths = {70, 20, 65}, .key_heads = 2, .heads = 4, .key_dim = 16, .value_dim = 16};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::vector<Tensor> all = tensors_of(s, dtype);
    for (const BoundKernel& kernel : bind_everywhere<ChunkGatedDeltaRule>(s.signature(dtype))) {
      const Gradients first = run(kernel, s, all, 0);
      for (int i = 0; i < (kernel.provider == kEager ? 3 : 100); ++i) {
        const Gradients again = run(kernel, s, all, 0);
        ASSERT_EQ(again.y, first.y) << kernel.provider;
        ASSERT_EQ(again.states, first.states) << kernel.provider;
        ASSERT_EQ(again.of, first.of) << kernel.provider;
      }
    }
  }
}

}  // namespace
}  // namespace temper::ops
