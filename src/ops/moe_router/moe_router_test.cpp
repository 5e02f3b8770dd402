#include "ops/moe_router/moe_router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "ops/moe_router/choose.h"
#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<MoeRouter> kMoeRouterKernels{
    {.experts = 128, .top_k = 8},
    kAll,
    {{"simd", "simd", kCpu, kWide},
     {"cuda", "cuda", kGpu, kWide, [](const MoeRouter::Signature& s) { return s.experts <= 1024; }}}};

// The definition in plain loops: all experts sorted.
std::vector<int32_t> best(const Routing& r, const Doubles& scores, const Doubles& bias) {
  Doubles choice = scores;
  for (size_t e = 0; e < bias.size(); ++e) choice[e] += bias[e];
  const auto in_order = [](const Doubles& values) {
    std::vector<int32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return values[a] > values[b]; });
    return order;
  };
  if (r.groups > 1) {
    const int64_t size = r.experts / r.groups;
    Doubles of_groups;
    for (int64_t g = 0; g < r.groups; ++g) {
      Doubles group(choice.begin() + g * size, choice.begin() + (g + 1) * size);
      std::sort(group.rbegin(), group.rend());
      of_groups.push_back(group[0] + group[1]);
    }
    std::vector<int32_t> order = in_order(of_groups);
    for (int64_t i = r.top_groups; i < r.groups; ++i)
      for (int64_t e = 0; e < size; ++e)
        choice[static_cast<size_t>(order[static_cast<size_t>(i)] * size + e)] = -1e300;
  }
  std::vector<int32_t> order = in_order(choice);
  order.resize(static_cast<size_t>(r.top_k));
  return order;
}

struct Row {
  Doubles scores, parts;
};

Row scores_of(const Routing& r, const double* logits) {
  Row row;
  double sum = 0;
  for (int64_t e = 0; e < r.experts; ++e) {
    row.scores.push_back(r.sigmoid ? 1 / (1 + std::exp(-logits[e])) : std::exp(logits[e]));
    sum += row.scores.back();
  }
  for (const double score : row.scores) row.parts.push_back(score / sum);
  if (!r.sigmoid) row.scores = row.parts;
  return row;
}

// Weights, then Σ p and the entropy, then ids and counts.
Doubles reference(const Routing& r, int64_t tokens, const Doubles& logits, const Doubles& bias) {
  Doubles weights, sums(static_cast<size_t>(r.experts + 1)), ids, counts(static_cast<size_t>(r.experts + 1));
  for (int64_t t = 0; t < tokens; ++t) {
    const Row row = scores_of(r, &logits[static_cast<size_t>(t * r.experts)]);
    const auto chosen = best(r, row.scores, bias);
    double total = 0;
    for (const int32_t e : chosen) total += row.scores[e];
    for (const int32_t e : chosen) {
      weights.push_back(r.scaling * row.scores[e] / (r.normalize ? total : 1));
      ids.push_back(e);
      counts[e] += 1;
    }
    for (int64_t e = 0; e < r.experts; ++e) {
      sums[e] += row.parts[e];
      sums.back() -= row.parts[e] * std::log(row.parts[e]);
    }
  }
  Doubles all = weights;
  for (const Doubles* part : {&sums, &ids, &counts}) all.insert(all.end(), part->begin(), part->end());
  return all;
}

Case make_case(const Routing& r, int64_t tokens, const Doubles& bias = {}) {
  Case c;
  c.name = fmt::format("{} tokens, {} of {}, {} of {} groups{}{}", tokens, r.top_k, r.experts, r.top_groups,
                       r.groups, r.sigmoid ? ", sigmoid" : "", r.normalize ? ", normalized" : "");
  // Far enough from one another that rounding to 16 bits and central differences change no choice.
  Doubles logits;
  const Random random(7, RandomPurpose::kData);
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<int64_t> order(static_cast<size_t>(r.experts));
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1],
                order[static_cast<size_t>(random.below(i, static_cast<uint64_t>(t) * 1024 + i))]);
    for (const int64_t place : order)
      logits.push_back(3.0 * static_cast<double>(2 * place - r.experts) / static_cast<double>(r.experts));
  }
  c.inputs = {{"logits", {tokens, r.experts}, logits}};
  c.reference = [=](const std::vector<Doubles>& inputs) { return reference(r, tokens, inputs[0], bias); };
  c.run = [=](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    MoeRouter op;
    op.routing = r;
    if (!bias.empty()) op.bias = on_device_of(v[0], tensor_of(bias, {r.experts}, DType::kF32));
    const auto routes = moe_router(tape, ops, v[0], op, true);
    EXPECT_EQ(routes.weights.dtype(), DType::kF32);
    return Result{primitives::cast(tape, routes.weights, v[0].dtype()),
                  {routes.sums.value, routes.ids, routes.counts}};
  };
  c.terms = std::max(r.experts, tokens);
  if (r.experts == 1) c.floor = 1;  // a gradient of zero is what factors of about one leave of one another
  return c;
}

void check(const Routing& r, int64_t tokens, const Doubles& bias = {}) {
  check_every_kernel<MoeRouter>(make_case(r, tokens, bias), {.experts = r.experts, .top_k = r.top_k});
}

TEST(MoeRouter, EveryKernelAgrees) {
  for (const int64_t tokens : {1, 7, 33})
    for (const bool normalize : {false, true})
      for (const bool sigmoid : {false, true}) {
        check({.experts = 8, .top_k = 2, .sigmoid = sigmoid, .normalize = normalize}, tokens);
        check({.experts = 1, .top_k = 1, .sigmoid = sigmoid, .normalize = normalize, .scaling = 2.5f},
              tokens);
      }
  check({.experts = 60, .top_k = 8, .normalize = true}, 70);
  check({.experts = 128, .top_k = 8, .normalize = true, .scaling = 1.5f}, 9);
  check({.experts = 8, .top_k = 8, .sigmoid = true, .normalize = true}, 5);
  check({.experts = 5, .top_k = 1}, 0);
  check({.experts = 300, .top_k = 9, .normalize = true}, 17);
}

TEST(MoeRouter, GroupsLimitTheChoiceAndTheBiasOnlyDecides) {
  Doubles bias;
  for (int e = 0; e < 16; ++e) bias.push_back(e % 3 == 0 ? 0.4 : -0.1 * e);
  for (const int64_t groups : {2, 4, 8})
    for (const int64_t top_groups : {int64_t{1}, groups / 2, groups})
      check({.experts = 16,
             .top_k = 2,
             .sigmoid = true,
             .groups = groups,
             .top_groups = top_groups,
             .normalize = true,
             .scaling = 2.5f},
            21, bias);
}

// The gradient of the sums, whose cotangent differs from expert to expert, and of both together.
TEST(MoeRouter, GradientOfTheSums) {
  for (const bool sigmoid : {false, true}) {
    const Routing r{.experts = 12, .top_k = 3, .sigmoid = sigmoid, .normalize = true};
    Case c = make_case(r, 9);
    c.name += ", sums";
    const Doubles factors = normal(4, {13});
    c.run = [=](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
      MoeRouter op;
      op.routing = r;
      const auto routes = moe_router(tape, ops, v[0], op, true);
      const Var some = primitives::narrow(tape, routes.sums, 0, 0, 12);
      const Tensor weights = on_device_of(v[0], tensor_of(factors, {13}, DType::kF32)).narrow(0, 0, 12);
      const Var by_expert = primitives::sum_last(tape, primitives::mul(tape, some, tape.constant(weights)));
      const Var squares = primitives::sum_last(
          tape, primitives::reshape(tape, primitives::mul(tape, routes.weights, routes.weights), {27}));
      return Result{primitives::cast(tape, primitives::add(tape, by_expert, squares), v[0].dtype()), {}};
    };
    c.reference = [=](const std::vector<Doubles>& inputs) {
      const Doubles all = reference(r, 9, inputs[0], {});
      double sum = 0;
      for (size_t i = 0; i < 27; ++i) sum += all[i] * all[i];
      for (size_t e = 0; e < 12; ++e) sum += factors[e] * all[27 + e];
      return Doubles{sum};
    };
    check_every_kernel<MoeRouter>(c, {.experts = 12, .top_k = 3});
  }
}

std::vector<int32_t> ids_of(const BoundKernel& kernel, const Routing& r, const Tensor& logits,
                            const Tensor& given = {}, Doubles* weights = nullptr, Doubles* counts = nullptr) {
  Tape tape(false);
  MoeRouter op;
  op.routing = r;
  if (given.defined()) op.given = given.on(kernel.device);
  const auto routes = moe_router(tape, kernel.ops, tape.constant(logits.on(kernel.device)), op, true);
  if (weights != nullptr) *weights = values_of(routes.weights.value);
  if (counts != nullptr) *counts = values_of(routes.counts);
  const Doubles ids = values_of(routes.ids);
  return {ids.begin(), ids.end()};
}

TEST(MoeRouter, OfEqualOnesTheFirst) {
  for (const bool sigmoid : {false, true})
    for (const int64_t groups : {1, 4}) {
      const Routing r{.experts = 16, .top_k = 3, .sigmoid = sigmoid, .groups = groups, .top_groups = groups};
      for (const BoundKernel& kernel : bind_everywhere<MoeRouter>({DType::kF32, 16, 3})) {
        SCOPED_TRACE(kernel.provider);
        EXPECT_EQ(ids_of(kernel, r, Tensor::zeros({2, 16}, DType::kF32)),
                  (std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
        Doubles some(16, -1.0);
        some[15] = some[9] = some[4] = 2;
        some[1] = 0;
        EXPECT_EQ(ids_of(kernel, r, tensor_of(some, {1, 16}, DType::kF32)), (std::vector<int32_t>{4, 9, 15}));
      }
    }
}

// As float64 says, on enough tokens for many near ties.
TEST(MoeRouter, ChoosesAsExactScoresSay) {
  constexpr int64_t kTokens = 20000, kExperts = 64;
  const Routing r{.experts = kExperts, .top_k = 6};
  const Doubles logits = normal(11, {kTokens, kExperts});
  const Tensor exact = tensor_of(logits, {kTokens, kExperts}, DType::kF32);
  const Doubles rounded = values_of(exact);
  for (const BoundKernel& kernel : bind_everywhere<MoeRouter>({DType::kF32, kExperts, 6})) {
    SCOPED_TRACE(kernel.provider);
    const auto ids = ids_of(kernel, r, exact);
    int64_t different = 0;
    for (int64_t t = 0; t < kTokens; ++t) {
      const auto row = rounded.begin() + t * kExperts;
      const auto expected = best(r, Doubles(row, row + kExperts), {});
      different += std::equal(expected.begin(), expected.end(), ids.begin() + t * 6) ? 0 : 1;
    }
    // Softmax rounds: two logits that differ by less than its rounding may change places.
    EXPECT_LE(different, 3);
  }
}

// Enough that rounded to 16 bits some would be equal.
TEST(MoeRouter, ManyExperts) {
  constexpr int64_t kTokens = 5;
  for (const auto& [experts, top_k] : {std::pair<int64_t, int64_t>{512, 22}, {1024, 1}, {1024, 40}}) {
    const Routing r{.experts = experts, .top_k = top_k, .normalize = true};
    const Tensor logits = tensor_of(normal(13, {kTokens, experts}), {kTokens, experts}, DType::kF32);
    const Doubles expected = reference(r, kTokens, values_of(logits), {});
    const auto choices = static_cast<size_t>(kTokens * top_k), width = static_cast<size_t>(experts + 1);
    for (const BoundKernel& kernel : bind_everywhere<MoeRouter>({DType::kF32, experts, top_k})) {
      SCOPED_TRACE(kernel.provider);
      Doubles weights, counts;
      const auto ids = ids_of(kernel, r, logits, {}, &weights, &counts);
      for (size_t i = 0; i < choices; ++i) {
        EXPECT_EQ(ids[i], expected[choices + width + i]) << i;
        EXPECT_NEAR(weights[i], expected[i], 1e-6) << i;
      }
      EXPECT_EQ(counts, Doubles(expected.end() - static_cast<std::ptrdiff_t>(width), expected.end()));
    }
  }
}

TEST(MoeRouter, GivenExpertsGetTheScoresOfAllExperts) {
  const Routing r{.experts = 8, .top_k = 2, .normalize = true};
  const Tensor logits = tensor_of(normal(5, {3, 8}), {3, 8}, DType::kF32);
  const std::vector<int32_t> wrong = {7, 0, 1, 2, 6, 5};
  for (const BoundKernel& kernel : bind_everywhere<MoeRouter>({DType::kF32, 8, 2})) {
    SCOPED_TRACE(kernel.provider);
    Doubles weights, counts;
    EXPECT_EQ(
        ids_of(kernel, r, logits, Tensor::from(std::span<const int32_t>(wrong), {3, 2}), &weights, &counts),
        wrong);
    EXPECT_EQ(counts, (Doubles{1, 1, 1, 0, 0, 1, 1, 1, 0}));
    const Doubles values = values_of(logits);
    for (size_t t = 0; t < 3; ++t) {
      const double a = std::exp(values[t * 8 + static_cast<size_t>(wrong[2 * t])]),
                   b = std::exp(values[t * 8 + static_cast<size_t>(wrong[2 * t + 1])]);
      EXPECT_NEAR(weights[2 * t], a / (a + b), 1e-6);
      EXPECT_NEAR(weights[2 * t + 1], b / (a + b), 1e-6);
    }
  }
}

// Padding gets experts, but counts nothing: neither in the sums nor in their gradient.
TEST(MoeRouter, PaddingIsNotCounted) {
  for (const bool sigmoid : {false, true})
    for (const int32_t counted : {0, 1, 5, 9}) {
      const Routing r{.experts = 12, .top_k = 3, .sigmoid = sigmoid, .normalize = true};
      Case c = make_case(r, 9);
      c.name += fmt::format(", {} counted", counted);
      const Doubles factors = normal(4, {12});
      c.run = [=](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
        MoeRouter op;
        op.routing = r;
        op.counted = on_device_of(v[0], ints({counted}));
        const auto routes = moe_router(tape, ops, v[0], op, true);
        const Var some = primitives::narrow(tape, routes.sums, 0, 0, 12);
        const Tensor weights = on_device_of(v[0], tensor_of(factors, {12}, DType::kF32));
        const Var by_expert = primitives::sum_last(tape, primitives::mul(tape, some, tape.constant(weights)));
        const Var squares = primitives::sum_last(
            tape, primitives::reshape(tape, primitives::mul(tape, routes.weights, routes.weights), {27}));
        return Result{primitives::cast(tape, primitives::add(tape, by_expert, squares), v[0].dtype()),
                      {routes.sums.value, routes.counts}};
      };
      c.reference = [=](const std::vector<Doubles>& inputs) {
        const Doubles all = reference(r, 9, inputs[0], {}),
                      whole =
                          reference(r, counted, {inputs[0].begin(), inputs[0].begin() + counted * 12}, {});
        double sum = 0;
        for (size_t i = 0; i < 27; ++i) sum += all[i] * all[i];
        const auto first = static_cast<size_t>(counted) * 3;
        for (size_t e = 0; e < 12; ++e) sum += factors[e] * whole[first + e];
        Doubles found{sum};
        found.insert(found.end(), whole.begin() + counted * 3, whole.begin() + counted * 3 + 13);
        found.insert(found.end(), whole.end() - 13, whole.end());
        return found;
      };
      check_every_kernel<MoeRouter>(c, {.experts = 12, .top_k = 3});
    }
}

// Tokens whose logits are no numbers are counted, get experts that exist, and leave the others alone.
TEST(MoeRouter, CountsTokensThatAreNoNumbers) {
  const Routing r{.experts = 6, .top_k = 2, .normalize = true};
  Doubles values = normal(6, {4, 6});
  const auto plain = values;
  values[6] = std::numeric_limits<double>::quiet_NaN();
  for (size_t i = 18; i < 24; ++i) values[i] = std::numeric_limits<double>::quiet_NaN();
  for (const BoundKernel& kernel : bind_everywhere<MoeRouter>({DType::kF32, 6, 2})) {
    SCOPED_TRACE(kernel.provider);
    Doubles counts, weights, expected;
    const auto ids = ids_of(kernel, r, tensor_of(values, {4, 6}, DType::kF32), {}, &weights, &counts);
    const auto without = ids_of(kernel, r, tensor_of(plain, {4, 6}, DType::kF32), {}, &expected);
    EXPECT_EQ(counts.back(), 2);
    for (const int32_t id : ids) EXPECT_TRUE(id >= 0 && id < 6);
    for (const size_t i : {0, 1, 4, 5}) {
      EXPECT_EQ(ids[i], without[i]);
      EXPECT_EQ(weights[i], expected[i]);
    }
    EXPECT_TRUE(std::isnan(weights[2]));
  }
}

// A row's results do not depend on how many others are next to it.
TEST(MoeRouter, RowsDoNotDependOnOneAnother) {
  const Routing r{.experts = 40, .top_k = 4, .normalize = true};
  const Tensor logits = tensor_of(normal(8, {64, 40}), {64, 40}, DType::kF32);
  for (const BoundKernel& kernel : bind_everywhere<MoeRouter>({DType::kF32, 40, 4})) {
    if (!kernel.ops.at<MoeRouter>("").batch_invariant) continue;
    SCOPED_TRACE(kernel.provider);
    Doubles all, part;
    ids_of(kernel, r, logits, {}, &all);
    for (const int64_t rows : {1, 7}) {
      ids_of(kernel, r, logits.narrow(0, 0, rows), {}, &part);
      EXPECT_EQ(part, Doubles(all.begin(), all.begin() + rows * 4));
    }
  }
}

TEST(MoeRouter, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<MoeRouter>("eager", {DType::kF32, 8, 2});
  Tape tape;
  const Tensor logits = Tensor::zeros({3, 8}, DType::kF32);
  const auto call = [&](const Routing& routing, const Tensor& values, const Tensor& bias = {},
                        const Tensor& given = {}) {
    return [&tape, &ops, routing, values, bias, given] {
      moe_router(tape, ops, tape.constant(values), {{}, bias, given, routing}, false);
    };
  };
  const Routing r{.experts = 8, .top_k = 2};
  expect_error(call({.experts = 8, .top_k = 9}, logits),
               "[moe_router] top 9 of 8 experts, needs 1 to as many as there are");
  expect_error(call({.experts = 8, .top_k = 2, .groups = 3}, logits),
               "[moe_router] 3 groups of 8 experts, needs groups of equally many, two at least");
  expect_error(call({.experts = 8, .top_k = 2, .groups = 8}, logits),
               "[moe_router] 8 groups of 8 experts, needs groups of equally many, two at least");
  expect_error(call({.experts = 8, .top_k = 3, .groups = 4, .top_groups = 1}, logits),
               "[moe_router] top 3 of the experts in 1 of 4 groups of 2, needs as many there");
  expect_error(call(r, {}), "[moe_router] logits is missing");
  expect_error(call(r, Tensor::zeros({3, 7}, DType::kF32)), "[moe_router] logits is [3, 7], needs [3, 8]");
  expect_error(call(r, logits, Tensor::zeros({7}, DType::kF32)), "[moe_router] bias is [7], needs [8]");
  expect_error(call(r, logits, Tensor::zeros({8}, DType::kBF16)),
               "[moe_router] bias is bfloat16, needs float32");
  const auto counts = [&](const Tensor& counted) {
    return [&tape, &ops, r, logits, counted] {
      moe_router(tape, ops, tape.constant(logits), {{}, {}, {}, r, counted}, false);
    };
  };
  expect_error(counts(ints({1, 2})), "[moe_router] counted is [2], needs [1]");
  expect_error(counts(Tensor::zeros({1}, DType::kF32)), "[moe_router] counted is float32, needs int32");
  expect_error(call(r, logits, {}, Tensor::zeros({3, 1}, DType::kI32)),
               "[moe_router] given is [3, 1], needs [3, 2]");
  expect_error(call(r, logits, {}, Tensor::from(std::vector<int32_t>{0, 1, 2, 3, 4, 8}).reshape({3, 2})),
               "[moe_router] given has expert 8, needs 0 to 7");
}

}  // namespace
}  // namespace temper::ops
