#include "ops/token_log_probs/token_log_probs.h"

#include <cmath>

#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;
using Entropies = TokenLogProbs::Entropies;

const RequiredKernels<TokenLogProbs> kTokenLogProbsKernels{
    {.vocab = 151936}, kAll, {{"cuda", "cuda", kGpu, kWide}}};

int32_t id_of(int64_t row, int64_t vocab) { return static_cast<int32_t>((7 * row + 3) % vocab); }

// Log-probabilities, then entropies where they are wanted.
Doubles reference(int64_t rows, int64_t vocab, double temperature, Entropies wanted, const Doubles& logits) {
  Doubles log_probs, entropies;
  for (int64_t r = 0; r < rows; ++r) {
    double largest = -1e300, sum = 0, entropy = 0;
    for (int64_t i = 0; i < vocab; ++i) largest = std::max(largest, logits[r * vocab + i] / temperature);
    for (int64_t i = 0; i < vocab; ++i) sum += std::exp(logits[r * vocab + i] / temperature - largest);
    const double log_sum = largest + std::log(sum);
    for (int64_t i = 0; i < vocab; ++i) {
      const double log_prob = logits[r * vocab + i] / temperature - log_sum;
      entropy -= std::exp(log_prob) * log_prob;
    }
    log_probs.push_back(logits[r * vocab + id_of(r, vocab)] / temperature - log_sum);
    entropies.push_back(entropy);
  }
  if (wanted != Entropies::kNone) log_probs.insert(log_probs.end(), entropies.begin(), entropies.end());
  return log_probs;
}

void check(int64_t rows, int64_t vocab, double temperature, Entropies wanted, double scale = 2) {
  Case c;
  c.name = fmt::format("[{}, {}], temperature {}, scale {}, entropies {}", rows, vocab, temperature, scale,
                       static_cast<int>(wanted));
  c.inputs = {{"logits", {rows, vocab}, normal(1, {rows, vocab}, scale)}};
  c.terms = vocab;
  c.reference = [=](const std::vector<Doubles>& inputs) {
    return reference(rows, vocab, temperature, wanted, inputs[0]);
  };
  c.run = [=](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    std::vector<int32_t> ids;
    for (int64_t r = 0; r < rows; ++r) ids.push_back(id_of(r, vocab));
    const auto found =
        token_log_probs(tape, ops, v[0], Tensor::from(ids).on(v[0].value.device()), temperature, wanted);
    const auto narrow = [&](const Var& y) {
      return primitives::cast(tape, y, v[0].dtype());
    };  // as it is compared
    if (wanted == Entropies::kNone) return Result{narrow(found.log_probs), {}};
    if (wanted == Entropies::kValues) return Result{narrow(found.log_probs), {found.entropies.value}};
    return Result{narrow(primitives::concat_first(tape, {found.log_probs, found.entropies})), {}};
  };
  check_every_kernel<TokenLogProbs>(c, {.vocab = vocab});
}

TEST(TokenLogProbs, EveryKernelAgrees) {
  for (const Entropies wanted : {Entropies::kNone, Entropies::kValues, Entropies::kTrained})
    for (const int64_t vocab : {1, 2, 9, 64, 1000, 4099})
      for (const int64_t rows : {1, 3, 20}) check(rows, vocab, 1, wanted);
}

TEST(TokenLogProbs, Temperatures) {
  for (const double temperature : {0.3, 0.6, 1.7})
    for (const Entropies wanted : {Entropies::kNone, Entropies::kTrained}) check(5, 300, temperature, wanted);
}

// The largest logit counts alone: its log-probability is 0 and nothing overflows.
TEST(TokenLogProbs, LargeLogits) {
  for (const double scale : {1e-3, 30.0, 1000.0}) check(6, 200, 1, Entropies::kTrained, scale);
}

TEST(TokenLogProbs, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<TokenLogProbs>("eager", {});
  const auto expect = [&](const Tensor& logits, const Tensor& ids, double temperature,
                          std::string_view message) {
    Tape tape;
    expect_error([&] { token_log_probs(tape, ops, tape.variable(logits), ids, temperature); }, message);
  };
  const Tensor logits = Tensor::zeros({2, 5}, DType::kF32);
  expect(Tensor::zeros({5}, DType::kF32), ints({1}), 1,
         "[token_log_probs] logits is [5], needs 2 dimensions");
  expect(logits, ints({1}), 1, "[token_log_probs] ids is [1], needs [2]");
  expect(logits, ints({1, 2}), 0, "[token_log_probs] temperature is 0, needs more than 0");
  expect(logits, ints({1, 5}), 1, "column 5 of [2, 5]");
}

}  // namespace
}  // namespace temper::ops
