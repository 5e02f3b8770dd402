#include "ops/cross_entropy/cross_entropy.h"

#include <cmath>

#include "base/random.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<CrossEntropy> kCrossEntropyKernels{
    {.hidden = 1024, .vocab = 151936},
    kAll,
    {{"onednn", "onednn", kCpu, kWide}, {"cublaslt", "cublaslt", kGpu, kAll}}};

constexpr int32_t kIgnore = CrossEntropy::kIgnore;

// The loss, then each token's -log p, then what z_loss adds if it is not 0.
Doubles reference(int64_t width, int64_t vocab, const std::vector<int32_t>& targets,
                  const CrossEntropy::Factors& factors, const std::vector<Doubles>& inputs) {
  const Doubles &hidden = inputs[0], &weight = inputs[1];
  Doubles result{0};
  double z = 0;
  for (size_t t = 0; t < targets.size(); ++t) {
    result.push_back(0);
    if (targets[t] == kIgnore) continue;
    Doubles logits;
    double largest = -1e300, sum = 0;
    for (int64_t w = 0; w < vocab; ++w) {
      double dot = 0;
      for (int64_t i = 0; i < width; ++i) dot += weight[w * width + i] * hidden[t * width + i];
      logits.push_back(dot);
      largest = std::max(largest, dot);
    }
    for (const double logit : logits) sum += std::exp(logit - largest);
    const double lse = std::log(sum) + largest;
    result.back() = lse - logits[static_cast<size_t>(targets[t])];
    const double scale = factors.scale * (factors.tokens.defined() ? factors.tokens.data<float>()[t] : 1.0);
    result[0] += scale * result.back();
    z += scale * factors.z_loss * lse * lse;
  }
  result[0] += z;
  if (factors.z_loss != 0) result.push_back(z);
  return result;
}

struct Options {
  double logit_scale = 1;
  CrossEntropy::Factors factors{0.25f, 0};
  Role role = Role::kParameter;
  double roundings = 4;  // of the logits, in units of the loss; they grow with the logits
};

void check(int64_t width, int64_t vocab, const std::vector<int32_t>& targets, const Options& options = {}) {
  const auto tokens = static_cast<int64_t>(targets.size());
  const double spread = 1 / std::sqrt(static_cast<double>(width));
  Case c;
  c.name =
      fmt::format("{} tokens of {}, vocabulary {}, logits × {}", tokens, width, vocab, options.logit_scale);
  c.inputs = {{"hidden", {tokens, width}, normal(1, {tokens, width}, options.logit_scale)},
              {"weight", {vocab, width}, normal(2, {vocab, width}, spread), options.role}};
  c.reference = [=](const std::vector<Doubles>& inputs) {
    return reference(width, vocab, targets, options.factors, inputs);
  };
  c.run = [=](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    const CrossEntropy::Vars out = cross_entropy(tape, ops, v[0], v[1], ints(targets), options.factors);
    Result result{out.loss, {out.nll}};
    if (options.factors.z_loss != 0) result.others.push_back(out.z);
    return result;
  };
  c.root = true;
  c.terms = std::max({width, vocab, tokens});
  c.roundings = options.roundings;
  if (width * vocab * tokens > 50'000) c.samples = 2;
  check_every_kernel<CrossEntropy>(c, {.hidden = width, .vocab = vocab});
}

std::vector<int32_t> some_targets(int64_t tokens, int64_t vocab) {
  const Random random(9, RandomPurpose::kData);
  std::vector<int32_t> targets;
  for (int64_t t = 0; t < tokens; ++t) {
    const auto element = static_cast<uint64_t>(t);
    targets.push_back(t % 5 == 3 ? kIgnore
                                 : static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab), element)));
  }
  return targets;
}

TEST(CrossEntropy, EveryKernelAgrees) {
  check(1, 11, {4});
  check(7, 11, {10, kIgnore, 0, 3});
  check(64, 11, some_targets(9, 11));
  check(16, 1, {0, 0});
  check(9, 320, some_targets(33, 320));
  check(7, 11, {10, kIgnore, 0, 3}, {.role = Role::kVariable});
}

TEST(CrossEntropy, LargerVocabularies) {
  check(32, 1000, some_targets(70, 1000));
  check(16, 5003, some_targets(5, 5003));
  check(100, 513, some_targets(130, 513), {.factors = {1.0f / 104}});
}

// Rows that one block of a GPU cannot hold, at the borders of what several share.
TEST(CrossEntropy, VocabulariesOfSeveralBlocks) {
  check(3, 60'000, {30'016, 59'999});
  check(2, 130'024, {0});
  check(2, 60'001, {60'000});  // no multiple of a pack
}

TEST(CrossEntropy, TheNormalizerIsHeldNearOne) {
  check(7, 11, {10, kIgnore, 0, 3}, {.factors = {0.25f, 0.01f}});
  check(32, 1000, some_targets(70, 1000), {.factors = {1.0f / 56, 0.1f}, .roundings = 8});
  check(8, 40, some_targets(6, 40), {.logit_scale = 10, .factors = {0.2f, 1e-3f}, .roundings = 6});
  check(8, 11, {kIgnore, kIgnore}, {.factors = {1, 0.1f}});
}

// Of answers that are wanted and answers that are not.
Tensor factors_of(int64_t tokens) {
  const Tensor factors = Tensor::empty({tokens}, DType::kF32);
  for (int64_t t = 0; t < tokens; ++t)
    factors.data<float>()[t] = static_cast<float>(t % 3 == 2 ? 0 : t % 3 == 1 ? -0.75 : 1.5);
  return factors;
}

TEST(CrossEntropy, TokensHaveTheirOwnFactors) {
  check(7, 11, {10, kIgnore, 0, 3, 2, 9}, {.factors = {0.25f, 0, factors_of(6)}});
  check(32, 1000, some_targets(70, 1000), {.factors = {1.0f / 56, 0.1f, factors_of(70)}, .roundings = 8});
  check(16, 320, some_targets(33, 320), {.factors = {1.0f / 26, 0, factors_of(33)}, .role = Role::kVariable});
}

TEST(CrossEntropy, IgnoredTokensAndNone) {
  check(8, 11, {kIgnore, kIgnore, kIgnore});
  check(8, 11, {kIgnore, 5, kIgnore});
  check(8, 11, {});
}

TEST(CrossEntropy, LargeLogits) { check(8, 40, some_targets(6, 40), {.logit_scale = 40, .roundings = 6}); }

TEST(CrossEntropy, FusedKernelsTakeTheLossAsRootOnly) {
  const Tensor hidden = Tensor::zeros({2, 8}, DType::kF32), weight = Tensor::zeros({11, 8}, DType::kF32);
  for (const BoundKernel& kernel : bind_everywhere<CrossEntropy>({DType::kF32, 8, 11})) {
    if (kernel.provider == kEager) continue;
    Tape tape;
    const Var h = tape.variable(hidden.on(kernel.device)), w = tape.variable(weight.on(kernel.device));
    const Var loss = cross_entropy(tape, kernel.ops, h, w, ints({1, 2}), {}).loss;
    expect_error([&] { tape.backward(loss, on_device_of(h, tensor_of({2}, {1}, DType::kF32))); },
                 "[cross_entropy] the loss must be the root of the tape; put factors into `scale`");
  }
}

TEST(CrossEntropy, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<CrossEntropy>("eager", {});
  Tape tape;
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  const Tensor hidden = f32({2, 8}), weight = f32({11, 8}), targets = ints({3, kIgnore});
  const auto call = [&](const Tensor& h, const Tensor& w, const Tensor& t) {
    return [=, &tape, &ops] { cross_entropy(tape, ops, {h, {}}, {w, {}}, t, {}); };
  };
  expect_error(call({}, weight, targets), "[cross_entropy] hidden is missing");
  expect_error(call(f32({8}), weight, targets), "[cross_entropy] hidden is [8], needs 2 dimensions");
  expect_error(call(hidden, f32({88}), targets), "[cross_entropy] weight is [88], needs 2 dimensions");
  expect_error(call(hidden, f32({11, 7}), targets), "[cross_entropy] weight is [11, 7], needs [11, 8]");
  expect_error(call(hidden, weight.to(DType::kBF16), targets),
               "[cross_entropy] weight is bfloat16, needs float32");
  expect_error(call(Tensor::zeros({2, 8}, DType::kU8), weight, targets),
               "[cross_entropy] hidden is uint8, needs float32, bfloat16 or float16");
  expect_error(call(f32({2, 9}).narrow(1, 0, 8), weight, targets),
               "[cross_entropy] hidden [2, 8] has strides [9, 1], needs them without gaps");
  expect_error(call(hidden, f32({8, 11}).transpose(0, 1), targets),
               "[cross_entropy] weight [11, 8] has strides [1, 11], needs them without gaps");
  expect_error(call(hidden, weight, ints({1})), "[cross_entropy] targets is [1], needs [2]");
  expect_error(call(hidden, weight, Tensor::zeros({2}, DType::kI64)),
               "[cross_entropy] targets is int64, needs int32");
  expect_error(
      [&] {
        cross_entropy(tape, ops, {hidden, {}}, {weight, {}}, targets, {1, 0, f32({3})});
      },
      "[cross_entropy] factors is [3], needs [2]");
  expect_error(
      [&] {
        cross_entropy(tape, ops, {hidden, {}}, {weight, {}}, targets, {1, 0, targets});
      },
      "[cross_entropy] factors is int32, needs float32");
  expect_error(call(hidden, weight, ints({3, 11})),
               "[cross_entropy] target 11 is outside the vocabulary [0, 11) and not -100");
  expect_error(call(hidden, weight, ints({-1, 3})),
               "[cross_entropy] target -1 is outside the vocabulary [0, 11) and not -100");
}

}  // namespace
}  // namespace temper::ops
