#include "ops/lora_moe_experts/lora_moe_experts.h"

#include <algorithm>
#include <cmath>

#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

bool frozen_plain(const LoraMoeExperts::Signature& s) { return !s.biases && !s.clamped; }

const RequiredKernels<LoraMoeExperts> kLoraMoeExpertsKernels{
    {.hidden = 2048, .width = 768, .experts = 128, .top_k = 8},
    kAll,
    {{"onednn", "onednn", kCpu, kWide},
     {"hopper", "hopper", kHopper, kBFloat16,
      [](const LoraMoeExperts::Signature& s) {
        return frozen_plain(s) && s.hidden % 8 == 0 && s.width % 8 == 0;
      }},
     {"cuda", "cuda", kGpu, kAll, frozen_plain}}};

struct SliceSizes {
  int64_t column, outputs, rank;
  float scale;
};

struct Sizes {
  int64_t tokens, hidden, width, experts, top_k;
  std::vector<SliceSizes> gate_up, down;
  int64_t first = 0;  // the first expert that a token may have

  std::vector<int32_t> ids() const {
    std::vector<int32_t> all;
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t j = 0; j < top_k; ++j)
        all.push_back(static_cast<int32_t>(first + (t * 5 + j) % (experts - first)));
    return all;
  }
};

// An adapter's part of one product, in double precision.
struct Update {
  const std::vector<SliceSizes>& slices;
  const Doubles* a = nullptr;
  std::vector<const Doubles*> b = {};

  // An expert's frozen matrix [rows, in] with its update.
  Doubles joined(const Doubles& frozen, int64_t expert, int64_t rows, int64_t in) const {
    const auto begin = frozen.begin() + expert * rows * in;
    Doubles matrix(begin, begin + rows * in);
    int64_t ranks = 0, first = 0;
    for (const SliceSizes& s : slices) ranks += s.rank;
    for (size_t i = 0; i < slices.size(); ++i) {
      const SliceSizes& s = slices[i];
      for (int64_t row = 0; row < s.outputs; ++row)
        for (int64_t r = 0; r < s.rank; ++r)
          for (int64_t column = 0; column < in; ++column)
            matrix[(s.column + row) * in + column] += s.scale *
                                                      (*b[i])[(expert * s.outputs + row) * s.rank + r] *
                                                      (*a)[(expert * ranks + first + r) * in + column];
      first += s.rank;
    }
    return matrix;
  }
};

// Inputs: x, weights, then a and each b of gate_up, and of down.
Doubles reference(const Sizes& n, const Doubles& gate_up, const Doubles& down,
                  const std::vector<Doubles>& v) {
  size_t next = 2;
  const auto take = [&](const std::vector<SliceSizes>& slices) {
    Update update{slices};
    if (!slices.empty()) update.a = &v[next++];
    for (size_t i = 0; i < slices.size(); ++i) update.b.push_back(&v[next++]);
    return update;
  };
  const Update in = take(n.gate_up), out = take(n.down);
  const std::vector<int32_t> ids = n.ids();
  Doubles y(static_cast<size_t>(n.tokens * n.hidden));
  for (int64_t e = 0; e < n.experts; ++e) {
    if (std::find(ids.begin(), ids.end(), e) == ids.end()) continue;
    const Doubles first = in.joined(gate_up, e, 2 * n.width, n.hidden),
                  second = out.joined(down, e, n.hidden, n.width);
    for (int64_t choice = 0; choice < n.tokens * n.top_k; ++choice) {
      if (ids[static_cast<size_t>(choice)] != e) continue;
      const int64_t t = choice / n.top_k;
      Doubles d(static_cast<size_t>(2 * n.width));
      for (int64_t row = 0; row < 2 * n.width; ++row)
        for (int64_t i = 0; i < n.hidden; ++i) d[row] += v[0][t * n.hidden + i] * first[row * n.hidden + i];
      for (int64_t f = 0; f < n.width; ++f) {
        const double inner = v[1][choice] * d[f] / (1 + std::exp(-d[f])) * d[n.width + f];
        for (int64_t i = 0; i < n.hidden; ++i) y[t * n.hidden + i] += inner * second[i * n.width + f];
      }
    }
  }
  return y;
}

void add_update(Case& c, const std::vector<SliceSizes>& slices, int64_t experts, int64_t in, uint64_t seed) {
  if (slices.empty()) return;
  int64_t ranks = 0;
  for (const SliceSizes& s : slices) ranks += s.rank;
  const double deviation = 1 / std::sqrt(static_cast<double>(in));
  c.inputs.push_back(
      {"a", {experts * ranks, in}, normal(seed, {experts * ranks, in}, deviation), Role::kParameter});
  for (const SliceSizes& s : slices) {
    const Shape shape{experts * s.outputs, s.rank};
    c.inputs.push_back({"b", shape, normal(++seed, shape, 0.7), Role::kParameter});
  }
}

ExpertsUpdate<Var> take_update(const std::vector<SliceSizes>& slices, const std::vector<Var>& v,
                               size_t& next) {
  ExpertsUpdate<Var> update;
  if (!slices.empty()) update.a = v[next++];
  for (const SliceSizes& s : slices) update.slices.push_back({s.column, v[next++], s.scale});
  return update;
}

Case make_case(const Sizes& n) {
  Case c;
  c.name = fmt::format("{} tokens of {}, {} of {} experts of {}, {} and {} slices", n.tokens, n.hidden,
                       n.top_k, n.experts, n.width, n.gate_up.size(), n.down.size());
  // Values that bfloat16 has, since they are no inputs of the case.
  const auto frozen = [](uint64_t seed, int64_t rows, int64_t columns) {
    Doubles values = normal(seed, {rows, columns}, 1 / std::sqrt(static_cast<double>(columns)));
    for (double& value : values) value = std::round(value * 64) / 64;
    return values;
  };
  const Doubles gate_up = frozen(2, n.experts * 2 * n.width, n.hidden),
                down = frozen(4, n.experts * n.hidden, n.width);
  Doubles weights;
  for (int64_t i = 0; i < n.tokens * n.top_k; ++i) weights.push_back(0.25 + static_cast<double>(i % 5) / 8);
  c.inputs = {{"x", {n.tokens, n.hidden}, normal(1, {n.tokens, n.hidden})},
              {"weights", {n.tokens, n.top_k}, weights}};
  add_update(c, n.gate_up, n.experts, n.hidden, 20);
  add_update(c, n.down, n.experts, n.width, 40);
  c.reference = [=](const std::vector<Doubles>& inputs) { return reference(n, gate_up, down, inputs); };
  c.run = [=](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    const std::vector<int32_t> list = n.ids();
    const Tensor ids = on_device_of(v[0], Tensor::from(std::span<const int32_t>(list), {n.tokens, n.top_k}));
    const auto matrix = [&](const Doubles& values, Shape shape) {
      const Tensor wide = Tensor::empty(shape, DType::kF32);
      std::copy(values.begin(), values.end(), wide.data<float>());
      const Tensor narrow = Tensor::empty(shape, v[0].dtype());
      narrow.copy_from(wide);
      return tape.constant(on_device_of(v[0], narrow));
    };
    size_t next = 2;
    AdaptedExperts in{matrix(gate_up, {n.experts * 2 * n.width, n.hidden}), take_update(n.gate_up, v, next)};
    AdaptedExperts out{matrix(down, {n.experts * n.hidden, n.width}), take_update(n.down, v, next)};
    return Result{lora_moe_experts(tape, ops, v[0], ids, primitives::cast(tape, v[1], DType::kF32), in, out),
                  {}};
  };
  c.terms = std::max({n.tokens, n.hidden, n.width}) * n.top_k;
  c.roundings = 9;  // of gate and up, their product, each expert's result and y; of both updates, twice each
  c.samples = 6;
  return c;
}

void check(const Sizes& n) {
  check_every_kernel<LoraMoeExperts>(
      make_case(n), {.hidden = n.hidden, .width = n.width, .experts = n.experts, .top_k = n.top_k});
}

TEST(LoraMoeExperts, EveryKernelAgrees) {
  check({7, 16, 24, 4, 2, {{0, 48, 3, 2}}, {{0, 16, 3, 0.5f}}});
  check({20, 24, 8, 6, 3, {{0, 8, 2, 2}, {8, 8, 4, 0.5f}}, {{0, 24, 5, 1}}});
  check({33, 32, 16, 5, 1, {{0, 32, 8, 1}}, {{0, 32, 8, 1}}});
  check({1, 8, 8, 1, 1, {{0, 16, 1, 1}}, {{0, 8, 1, 3}}});
}

TEST(LoraMoeExperts, SomeOfTheMatrices) {
  check({9, 16, 8, 3, 2, {{0, 16, 2, 2}}, {}});
  check({9, 16, 8, 3, 2, {}, {{0, 16, 2, 2}}});
  check({9, 16, 8, 3, 2, {{8, 8, 2, 2}}, {}});
  check({9, 16, 8, 3, 2, {{0, 8, 2, 2}}, {{0, 16, 4, 1}}});
}

// One expert for all, and experts without tokens, whose gradients are exactly zero.
TEST(LoraMoeExperts, AnyRouting) {
  check({70, 16, 16, 8, 1, {{0, 32, 4, 2}}, {{0, 16, 4, 2}}, 7});
  check({70, 16, 16, 8, 2, {{0, 32, 4, 2}}, {{0, 16, 4, 2}}, 6});
  check({3, 8, 8, 512, 8, {{0, 16, 1, 2}}, {{0, 8, 1, 2}}});
  check({0, 8, 8, 4, 2, {{0, 16, 1, 2}}, {{0, 8, 1, 2}}});
}

TEST(LoraMoeExperts, LargerSizes) {
  check({150, 64, 40, 4, 2, {{0, 40, 16, 2}, {40, 40, 16, 2}}, {{0, 64, 16, 2}}});
  check({40, 72, 136, 8, 8, {{0, 272, 24, 2}}, {{0, 72, 24, 2}}});
}

TEST(LoraMoeExperts, WrongUpdatesAreRefused) {
  const Sizes n{4, 8, 8, 3, 1, {}, {}};
  const auto refuses = [&](const ExpertsUpdate<Var>& update, std::string_view what) {
    Tape tape;
    const auto zeros = [&](Shape shape, DType dtype) { return tape.constant(Tensor::zeros(shape, dtype)); };
    const std::vector<int32_t> ids = n.ids();
    for (const BoundKernel& kernel : bind_everywhere<LoraMoeExperts>({DType::kF32, 8, 8, 3, 1}))
      expect_error(
          [&] {
            lora_moe_experts(tape, kernel.ops, zeros({4, 8}, DType::kF32),
                             Tensor::from(std::span<const int32_t>(ids), {4, 1}), zeros({4, 1}, DType::kF32),
                             {zeros({48, 8}, DType::kF32), update}, {zeros({24, 8}, DType::kF32)});
          },
          what);
  };
  Tape tape;
  const auto zeros = [&](Shape shape) { return tape.constant(Tensor::zeros(shape, DType::kF32)); };
  refuses({zeros({6, 8}), {{0, zeros({47, 2}), 1}}},
          "[lora_moe_experts] b has 47 rows, needs as many for each of 3 experts");
  refuses({zeros({5, 8}), {{0, zeros({48, 2}), 1}}}, "[lora_moe_experts] a is [5, 8], needs [6, 8]");
  refuses({zeros({6, 8}), {{8, zeros({48, 2}), 1}}},
          "[lora_moe_experts] a slice has outputs 8 to 24 of an expert, which has 16");
  refuses({zeros({12, 8}), {{0, zeros({48, 2}), 1}, {8, zeros({24, 2}), 1}}},
          "[lora_moe_experts] a slice begins at output 8, where another ends at 16");
}

}  // namespace
}  // namespace temper::ops
