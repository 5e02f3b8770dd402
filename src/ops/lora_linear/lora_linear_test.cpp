#include "ops/lora_linear/lora_linear.h"

#include <algorithm>
#include <cmath>

#include "tests/support/gpu.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<LoraLinear> kLoraLinearKernels{
    {.in = 1024, .out = 3072},
    kAll,
    {{"onednn", "onednn", kCpu, kWide},
     {"onednn_invariant", "onednn", kCpu, kFloat32},
     {"hopper", "hopper", kHopper, kBFloat16,
      [](const LoraLinear::Signature& s) { return s.in % 8 == 0 && s.out % 8 == 0; }},
     {"hopper_invariant", "hopper", kHopper, kBFloat16,
      [](const LoraLinear::Signature& s) { return s.in % 8 == 0 && s.out % 8 == 0; }},
     {"cublaslt", "cublaslt", kGpu, kAll}}};

struct TestSlice {
  int64_t column, width, rank;
  float scale;
};
struct TestGroup {
  int64_t row, rows;
  std::vector<TestSlice> slices;
  bool own_input = false;
  int64_t ranks() const {
    int64_t sum = 0;
    for (const TestSlice& slice : slices) sum += slice.rank;
    return sum;
  }
};
struct Layout {
  int64_t rows, in, out;
  bool bias;
  std::vector<TestGroup> groups;
  bool in_8_bits = false;  // the weight
};

// Exact in every dtype: the weight is frozen and stands outside the inputs.
Doubles frozen_weight(const Layout& n) {
  Doubles weight = normal(5, {n.out, n.in});
  if (n.in_8_bits) return meaning_in_8_bits(weight, {n.out, n.in});
  for (double& value : weight) value = std::round(std::clamp(value, -3.0, 3.0) * 8) / 8;
  return weight;
}

// Inputs: x, the bias if there is one, and of each group its own input if it has one, a, and each b.
std::vector<Input> inputs_of(const Layout& n, Role role) {
  std::vector<Input> inputs{{"x", {n.rows, n.in}, normal(1, {n.rows, n.in})}};
  if (n.bias) inputs.push_back({"bias", {n.out}, normal(2, {n.out}), role});
  uint64_t seed = 10;
  const auto add = [&](const char* name, Shape shape, Role its, double scale) {
    ++seed;
    inputs.push_back({name, shape, normal(seed, shape, scale), its});
  };
  for (const TestGroup& group : n.groups) {
    if (group.own_input) add("input", {group.rows, n.in}, Role::kVariable, 1);
    add("a", {group.ranks(), n.in}, role, 1 / std::sqrt(static_cast<double>(n.in)));
    for (const TestSlice& slice : group.slices) add("b", {slice.width, slice.rank}, role, 0.5);
  }
  return inputs;
}

void add_update(const Layout& n, const TestGroup& group, const double* input, const Doubles& a,
                const std::vector<const Doubles*>& bs, Doubles& y) {
  for (int64_t r = 0; r < group.rows; ++r) {
    int64_t first = 0;
    for (size_t s = 0; s < group.slices.size(); ++s) {
      const TestSlice& slice = group.slices[s];
      for (int64_t k = 0; k < slice.rank; ++k) {
        double low = 0;
        for (int64_t i = 0; i < n.in; ++i) low += input[r * n.in + i] * a[(first + k) * n.in + i];
        for (int64_t o = 0; o < slice.width; ++o)
          y[(group.row + r) * n.out + slice.column + o] += slice.scale * low * (*bs[s])[o * slice.rank + k];
      }
      first += slice.rank;
    }
  }
}

Doubles reference(const Layout& n, const std::vector<Doubles>& inputs) {
  const Doubles &x = inputs[0], weight = frozen_weight(n);
  Doubles y;
  for (int64_t r = 0; r < n.rows; ++r)
    for (int64_t o = 0; o < n.out; ++o) {
      double sum = n.bias ? inputs[1][o] : 0;
      for (int64_t i = 0; i < n.in; ++i) sum += x[r * n.in + i] * weight[o * n.in + i];
      y.push_back(sum);
    }
  size_t next = n.bias ? 2 : 1;
  for (const TestGroup& group : n.groups) {
    const double* input = group.own_input ? inputs[next++].data() : x.data() + group.row * n.in;
    const Doubles& a = inputs[next++];
    std::vector<const Doubles*> bs;
    for (size_t s = 0; s < group.slices.size(); ++s) bs.push_back(&inputs[next++]);
    add_update(n, group, input, a, bs, y);
  }
  return y;
}

Result run(const Layout& n, Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
  size_t next = n.bias ? 2 : 1;
  std::vector<LoraGroup<Var>> groups;
  for (const TestGroup& group : n.groups) {
    LoraGroup<Var> made{group.row, group.rows, {}, {}, {}};
    if (group.own_input) made.input = v[next++];
    made.a = v[next++];
    for (const TestSlice& slice : group.slices) made.slices.push_back({slice.column, v[next++], slice.scale});
    groups.push_back(std::move(made));
  }
  const Shape shape{n.out, n.in};
  const primitives::Matrix weight =
      n.in_8_bits ? in_8_bits(v[0], normal(5, shape), shape)
                  : tape.constant(on_device_of(v[0], tensor_of(frozen_weight(n), shape, v[0].dtype())));
  return {lora_linear(tape, ops, v[0], weight, n.bias ? v[1] : Var{}, groups), {}};
}

void check(const std::string& name, const Layout& n, Role role = Role::kParameter) {
  Case c;
  c.name = fmt::format("{}: [{}, {}] to {}", name, n.rows, n.in, n.out);
  c.inputs = inputs_of(n, role);
  c.reference = [n](const std::vector<Doubles>& inputs) { return reference(n, inputs); };
  c.run = [n](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) { return run(n, tape, ops, v); };
  c.terms = std::max({n.rows, n.in, n.out});
  c.roundings = 4;  // the narrow product, its scale, the update, and the sum
  c.samples = 4;
  check_every_kernel<LoraLinear>(c, {.in = n.in, .out = n.out, .bias = n.bias});
}

TEST(LoraLinear, EveryKernelAgreesOnOneAdapter) {
  for (const int64_t rows : {1, 5, 33})
    for (const bool bias : {false, true}) check("one", {rows, 24, 17, bias, {{0, rows, {{0, 17, 3, 2}}}}});
  check("q|k|v", {20, 32, 40, true, {{0, 20, {{0, 24, 4, 2}, {24, 8, 2, 0.5}, {32, 8, 5, 1}}}}});
  check("q and v alone", {20, 32, 40, false, {{0, 20, {{0, 24, 4, 2}, {32, 8, 4, 1}}}}});
  check("variables", {9, 12, 10, true, {{0, 9, {{0, 10, 2, 1.5}}}}}, Role::kVariable);
}

TEST(LoraLinear, EveryKernelAgreesOnWeightsIn8Bits) {
  for (const int64_t rows : {1, 33})
    check("8 bits", {rows, 24, 17, true, {{0, rows, {{0, 17, 3, 2}}}}, true});
  check("8 bits, q|k|v",
        {20, 32, 40, false, {{0, 20, {{0, 24, 4, 2}, {24, 8, 2, 0.5}, {32, 8, 5, 1}}}}, true});
  check("8 bits, two, and rows of none",
        {130, 64, 96, false, {{4, 40, {{0, 96, 2, 1}}, true}, {44, 60, {{8, 16, 6, 3}}}}, true});
}

TEST(LoraLinear, KeepsNoWeightThatCanBeMadeAgain) {
  const auto live = [] { return pool().usage()[static_cast<size_t>(MemoryTag::kWorkspace)].live; };
  for (const BoundKernel& kernel : bind_every_kernel<LoraLinear>({DType::kF32, 64, 96, false})) {
    const int64_t before = live();
    Tape tape;
    const Var x = tape.variable(Tensor::zeros({4, 64}, DType::kF32)),
              a = tape.variable(Tensor::zeros({2, 64}, DType::kF32)),
              b = tape.variable(Tensor::zeros({96, 2}, DType::kF32));
    const Var y = lora_linear(tape, kernel.ops, x, in_8_bits(x, normal(5, {96, 64}), {96, 64}), {},
                              {{0, 4, {}, a, {{0, b}}}});
    EXPECT_EQ(live(), before) << kernel.provider;
    tape.backward(y, Tensor::zeros({4, 96}, DType::kF32));
    EXPECT_EQ(live(), before) << kernel.provider;
  }
}

TEST(LoraLinear, EveryKernelAgreesOnDropout) {
  check("own input", {18, 24, 17, false, {{0, 18, {{0, 17, 3, 2}}, true}}});
  check("two own inputs",
        {40, 24, 20, true, {{0, 10, {{0, 20, 3, 2}}, true}, {15, 25, {{5, 9, 2, 1}}, true}}});
}

TEST(LoraLinear, EveryKernelAgreesOnManyAdapters) {
  check("two, and rows of none", {30, 16, 24, true, {{4, 10, {{0, 24, 2, 1}}}, {14, 9, {{8, 16, 6, 3}}}}});
  check("few rows",
        {7,
         16,
         24,
         false,
         {{0, 1, {{0, 24, 2, 1}}}, {2, 3, {{0, 12, 1, 3}, {12, 12, 2, 1}}}, {5, 2, {{0, 4, 8, 1}}}}});
  check("an empty one",
        {20, 16, 12, false, {{0, 12, {{0, 12, 2, 1}}}, {12, 0, {{0, 12, 2, 1}}}, {12, 8, {{0, 12, 3, 2}}}}});
  check("none at all", {6, 8, 5, true, {}});
  check("larger",
        {300, 70, 270, true, {{0, 140, {{0, 130, 8, 2}, {130, 140, 16, 1}}}, {150, 150, {{0, 270, 4, 2}}}}});
}

// A row's result has the same bits whatever rows are next to it, and however many, for kernels that say so.
TEST(LoraLinear, RowsDoNotDependOnOneAnother) {
  constexpr int64_t kRows = 400, kIn = 1024, kOut = 768, kRank = 16;
  int tested = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const BoundKernel& kernel : bind_everywhere<LoraLinear>({dtype, kIn, kOut, false})) {
      if (!kernel.ops.at<LoraLinear>("").batch_invariant) continue;
      ++tested;
      SCOPED_TRACE(kernel.provider);
      const auto there = [&](uint64_t seed, const Shape& shape) {
        return tensor_of(normal(seed, shape, 0.5), shape, dtype).on(kernel.device);
      };
      const Tensor x = there(1, {kRows, kIn}), weight = there(2, {kOut, kIn}), a = there(3, {2 * kRank, kIn}),
                   first_b = there(4, {512, kRank}), second_b = there(5, {256, kRank});
      // The rows of an adapter behind `before` rows of none.
      const auto run = [&](int64_t first, int64_t count, int64_t before) {
        Tape tape(false);
        const Var input = tape.constant(x.narrow(0, first - before, before + count));
        const LoraGroup<Var> group{before,
                                   count,
                                   {},
                                   tape.constant(a),
                                   {{0, tape.constant(first_b), 2}, {512, tape.constant(second_b), 2}}};
        const Doubles all =
            values_of(lora_linear(tape, kernel.ops, input, tape.constant(weight), {}, {group}).value);
        return Doubles(all.begin() + before * kOut, all.end());
      };
      const Doubles all = run(0, kRows, 0);
      for (const int64_t count : {1, 5, 17, 64, 127, 128, 129, 200})
        for (const int64_t first : {0, 3, 200}) {
          const auto begin = all.begin() + first * kOut;
          const Doubles expected(begin, begin + count * kOut);
          EXPECT_EQ(run(first, count, 0) == expected, true) << first << ", " << count;
          EXPECT_EQ(run(first, count, std::min<int64_t>(first, 3)) == expected, true)
              << first << ", " << count;
        }
    }
  if (tested == 0) GTEST_SKIP() << "no kernel here says so";
}

// Sizes that fill a GPU with tiles of its kernels, forward and backward; other hardware has seen its own
// above.
TEST(LoraLinear, EveryKernelAgreesOnTheTilesOfAGpu) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const auto qkv = [](int64_t q, int64_t k) { return std::vector<TestSlice>{{0, q, 8, 2}, {q, k, 16, 0.5}}; };
  check("wide", {1024, 8, 3328, true, {{0, 1024, qkv(2000, 1328)}}});
  check("deep", {1024, 3328, 8, false, {{0, 1024, {{0, 8, 24, 2}}}}});
}

TEST(LoraLinear, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<LoraLinear>("eager", {});
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  const auto call = [&](const LoraGroup<Tensor>& g, int64_t out = 6) {
    return [&ops, f32, g, out] {
      Tape tape;
      LoraGroup<Var> group{g.row, g.rows, {g.input, {}}, {g.a, {}}, {}};
      for (const auto& slice : g.slices) group.slices.push_back({slice.column, {slice.b, {}}, slice.scale});
      lora_linear(tape, ops, tape.constant(f32({4, 8})), tape.constant(f32({out, 8})), {}, {group, group});
    };
  };
  const Tensor a = f32({2, 8}), b = f32({6, 2});
  expect_error(call({0, 5, {}, a, {{0, b}}}), "[lora_linear] a group has rows 0 to 5, x has 4");
  expect_error(call({0, 4, {}, {}, {{0, b}}}), "[lora_linear] a is missing");
  expect_error(call({0, 4, {}, f32({3, 8}), {{0, b}}}), "[lora_linear] a is [3, 8], needs [2, 8]");
  expect_error(call({0, 4, {}, a, {{0, b.to(DType::kBF16)}}}), "[lora_linear] b is bfloat16, needs float32");
  expect_error(call({0, 4, {}, a, {{1, b}}}), "[lora_linear] a slice has outputs 1 to 7, the weight 6");
  expect_error(call({0, 4, {}, a, {{0, b}, {5, b}}}),
               "[lora_linear] a slice begins at output 5, where another ends at 6");
  expect_error(call({0, 4, f32({3, 8}), a, {{0, b}}}), "[lora_linear] input is [3, 8], needs [4, 8]");
  expect_error(call({0, 4, {}, a, {{0, b}}}),
               "[lora_linear] a group begins at row 0, where another ends at 4");
  Tape tape;
  expect_error(
      [&] {
        lora_linear(tape, ops, tape.constant(f32({4, 8})), tape.variable(f32({6, 8})), {}, {});
      },
      "[lora_linear] the weight wants a gradient, but is frozen");
}

}  // namespace
}  // namespace temper::ops
