#include "ops/sample/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<Sample> kSampleKernels{
    {.vocab = 151936}, kAll, {{"cuda", "cuda", kGpu, kWide, [](const Sample::Signature& s) {
                                 return s.vocab > 0 && s.vocab <= 1 << 20;
                               }}}};

struct Setup {
  int64_t vocab = 100, sequences = 1;
  SamplingOptions options = {};
  double deviation = 3;
  double step = 0;  // logits are multiples of it: many are equal
};

// NextToken::kept, in double precision: all tokens sorted, then cut.
double kept_of(std::span<const float> logits, const SamplingOptions& options,
               std::span<const int32_t> history) {
  if (options.temperature <= 0) return 0;
  Doubles scores(logits.begin(), logits.end());
  for (const int32_t id : history) {
    double& score = scores[static_cast<size_t>(id)];
    score = static_cast<float>(score > 0 ? score / options.repetition_penalty
                                         : score * options.repetition_penalty);
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  Doubles weights;
  for (const double score : scores) weights.push_back(std::exp((score - scores[0]) / options.temperature));
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (options.top_k > 0 && options.top_k < std::ssize(weights))
    weights.resize(static_cast<size_t>(options.top_k));
  const double left = std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept = 0;
  for (const double weight : weights) {
    if (weight < options.min_p) break;
    kept += weight;
    if (options.top_p < 1 && kept >= options.top_p * left) break;
  }
  return std::log(kept / all);
}

// Every kernel compared with the plain algorithm, from logits of its own for each draw. Roundings may move a
// choice to a neighbour: `differing` draws at most.
void check(const Setup& s, DType dtype, int draws, int differing) {
  for (const BoundKernel& kernel : bind_everywhere<Sample>({dtype, s.vocab})) {
    SCOPED_TRACE(fmt::format("{}, {}, {}, vocabulary of {}", kernel.provider, to_string(kernel.device),
                             to_string(dtype), s.vocab));
    int found_differing = 0, kept_differing = 0;
    for (int draw = 0; draw < draws; ++draw) {
      Doubles values = normal(static_cast<uint64_t>(draw), {s.sequences, s.vocab}, s.deviation);
      if (s.step > 0)
        for (double& value : values) value = s.step * std::round(value / s.step);
      const Tensor logits = tensor_of(values, {s.sequences, s.vocab}, dtype), wide = logits.to(DType::kF32);
      Tensor marks = Tensor::zeros(logits.shape(), DType::kU8);
      std::vector<int32_t> positions, history;
      std::vector<SamplingOptions> options(static_cast<size_t>(s.sequences), s.options);
      for (int32_t id = 0; id < s.vocab; id += 3) history.push_back(id);
      for (int64_t i = 0; i < s.sequences; ++i) {
        positions.push_back(10 * draw + static_cast<int32_t>(i));
        options[static_cast<size_t>(i)].seed += static_cast<uint64_t>(i);
        for (const int32_t id : history) marks.data<uint8_t>()[i * s.vocab + id] = 1;
      }
      Sample op;
      op.logits = logits.on(kernel.device);
      op.options =
          Tensor::zeros({s.sequences, sizeof(SamplingOptions)}, DType::kU8, MemoryTag::kData, kernel.device);
      op.options.copy_from_host(options.data(), op.options.bytes());
      op.seen = marks.clone().on(kernel.device);
      op.positions = ints(positions).on(kernel.device);
      op.ids = ints(std::vector<int32_t>(positions.size(), -1)).on(kernel.device);
      op.chosen = op.ids.clone();
      op.kept = tensor_of(Doubles(positions.size(), 7), {s.sequences}, DType::kF32).on(kernel.device);
      choose_tokens(kernel.ops, op);
      const Tensor ids = op.ids.on({}), moved = op.positions.on({}), seen = op.seen.on({}),
                   kept = op.kept.on({});
      for (int64_t i = 0; i < s.sequences; ++i) {
        const auto at = static_cast<size_t>(i);
        const auto row =
            wide.values<float>().subspan(static_cast<size_t>(i * s.vocab), static_cast<size_t>(s.vocab));
        const int32_t expected =
            sample(row, options[at], history, static_cast<uint64_t>(positions[at]) + 1).id;
        const int32_t found = ids.values<int32_t>()[at];
        ASSERT_GE(found, 0);
        ASSERT_LT(found, s.vocab);
        found_differing += found != expected;
        const double left = kept_of(row, options[at], history);
        if (!options[at].truncates()) {
          EXPECT_EQ(kept.values<float>()[at], 0);
        }
        kept_differing += !(std::abs(kept.values<float>()[at] - left) < 2e-6);  // NaN differs, too
        EXPECT_EQ(op.chosen.on({}).values<int32_t>()[at], found);
        EXPECT_EQ(moved.values<int32_t>()[at], positions[at] + 1);
        EXPECT_EQ(seen.data<uint8_t>()[i * s.vocab + found], 1);
      }
    }
    EXPECT_LE(found_differing, differing);
    EXPECT_LE(kept_differing, differing);
  }
}

TEST(Sample, GreedyTakesTheLowestIdAmongEquals) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const int64_t vocab : {1, 2, 100, 5000}) check({.vocab = vocab, .step = 2}, dtype, 8, 0);
}

TEST(Sample, FollowsTheProbabilities) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    check({.options = {.temperature = 1}}, dtype, 200, 1);
    check({.vocab = 5000, .options = {.temperature = 0.7, .seed = 3}}, dtype, 100, 1);
    check({.vocab = 5000, .options = {.temperature = 5}, .deviation = 1e-3}, dtype, 100, 1);
  }
}

TEST(Sample, TopK) {
  for (const int64_t k : {1, 2, 20, 99, 100, 1000})
    check({.options = {.temperature = 1, .top_k = k}}, DType::kF32, 60, 1);
  check({.vocab = 5000, .options = {.temperature = 3, .top_k = 50}, .step = 1}, DType::kF32, 60, 1);
}

TEST(Sample, TopP) {
  for (const double p : {1e-9, 0.1, 0.5, 0.95, 0.999999})
    check({.options = {.temperature = 1, .top_p = p}}, DType::kF32, 60, 1);
  check({.vocab = 5000, .options = {.temperature = 2, .top_k = 40, .top_p = 0.9}, .step = 0.5}, DType::kF32,
        60, 1);
}

TEST(Sample, MinP) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const double p : {1e-12, 1e-3, 0.1, 0.7, 1.0})
      check({.options = {.temperature = 1, .min_p = p}}, dtype, 60, 1);
  check({.vocab = 5000, .options = {.temperature = 3, .min_p = 0.05}, .step = 1}, DType::kF32, 60, 1);
  check({.vocab = 5000, .options = {.temperature = 2, .top_k = 40, .min_p = 0.2}}, DType::kF32, 60, 1);
  check({.vocab = 5000, .options = {.temperature = 2, .top_p = 0.9, .min_p = 0.01}}, DType::kF32, 60, 1);
  check({.vocab = 700, .sequences = 3, .options = {.temperature = 2, .top_k = 9, .top_p = 0.9, .min_p = 0.3}},
        DType::kBF16, 30, 1);
  check(
      {.vocab = 3000, .sequences = 5, .options = {.temperature = 1, .min_p = 0.1, .repetition_penalty = 1.3}},
      DType::kF32, 30, 2);
}

TEST(Sample, RepetitionPenalty) {
  check({.options = {.repetition_penalty = 1.3}}, DType::kF32, 60, 0);
  check({.vocab = 3000, .sequences = 5, .options = {.temperature = 1, .repetition_penalty = 1.3}},
        DType::kF32, 30, 2);
  check({.options = {.temperature = 1, .top_p = 0.9, .repetition_penalty = 1.3}}, DType::kBF16, 60, 1);
}

// NaN anywhere, or a largest logit that is infinite: no token, whatever the settings. The sequences next to
// it are not disturbed.
TEST(Sample, NoTokenWithoutADistribution) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<SamplingOptions> settings{{},
                                              {.temperature = 1},
                                              {.temperature = 1, .top_k = 5, .top_p = 0.9},
                                              {.temperature = 1, .min_p = 0.2},
                                              {.repetition_penalty = 1.3}};
  for (const int64_t vocab : {7, 5000})
    for (const BoundKernel& kernel : bind_everywhere<Sample>({DType::kF32, vocab}))
      for (const SamplingOptions& options : settings)
        for (const float bad : {nan, -nan, inf, -inf}) {
          SCOPED_TRACE(fmt::format("{}, {}, {}", kernel.provider, vocab, bad));
          std::vector<float> logits(static_cast<size_t>(3 * vocab), -1.f);
          for (const size_t row : {0, 1, 2}) logits[row * static_cast<size_t>(vocab) + 4] = 20;
          // The second sequence; of -inf all of it.
          for (int64_t i = 0; i < vocab; ++i)
            if (i == vocab - 1 || bad == -inf) logits[static_cast<size_t>(vocab + i)] = bad;
          const std::vector<SamplingOptions> all(3, options);
          Sample op;
          op.logits = Tensor::from(logits).reshape({3, vocab}).on(kernel.device);
          op.options =
              Tensor::zeros({3, sizeof(SamplingOptions)}, DType::kU8, MemoryTag::kData, kernel.device);
          op.options.copy_from_host(all.data(), op.options.bytes());
          op.seen = Tensor::zeros({3, vocab}, DType::kU8, MemoryTag::kData, kernel.device);
          op.positions = ints({5, 6, 7}).on(kernel.device);
          op.ids = ints({-7, -7, -7}).on(kernel.device);
          op.chosen = op.ids.clone();
          op.kept = Tensor::from(std::vector<float>{7, 7, 7}).on(kernel.device);
          choose_tokens(kernel.ops, op);
          const Tensor chosen = op.chosen.on({}), ids = op.ids.on({}), positions = op.positions.on({});
          for (const size_t row : {0, 1, 2}) {
            EXPECT_EQ(chosen.values<int32_t>()[row], row == 1 ? kNoToken : 4);
            EXPECT_EQ(ids.values<int32_t>()[row], row == 1 ? 0 : 4);
            const float kept = op.kept.on({}).values<float>()[row];
            if (row == 1) {
              EXPECT_EQ(kept, 0);
            }
            EXPECT_LE(kept, 0);
            EXPECT_GE(kept, -1);
            EXPECT_EQ(positions.values<int32_t>()[row], 6 + static_cast<int32_t>(row));
          }
        }
}

TEST(Sample, ManySequences) {
  check({.vocab = 700, .sequences = 3, .options = {.temperature = 1, .top_k = 30}}, DType::kF32, 20, 1);
  check({.vocab = 333, .sequences = 300, .options = {.temperature = 1, .top_p = 0.8}}, DType::kF32, 1, 1);
}

TEST(Sample, AVocabularyOfUsualSize) {
  check({.vocab = 151936, .options = {.temperature = 0.6, .top_k = 20, .top_p = 0.95}}, DType::kBF16, 10, 0);
  check({.vocab = 151936, .options = {.temperature = 1, .min_p = 0.05}}, DType::kBF16, 10, 0);
  check({.vocab = 151936, .options = {.temperature = 1}, .deviation = 1e-2}, DType::kBF16, 5, 1);
}

TEST(Sample, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<Sample>("eager", {});
  Sample op{Tensor::zeros({2, 5}, DType::kF32),
            Tensor::zeros({2, sizeof(SamplingOptions)}, DType::kU8),
            Tensor::zeros({2, 5}, DType::kU8),
            ints({0, 0}),
            ints({0, 0}),
            ints({0, 0}),
            Tensor::zeros({2}, DType::kF32)};
  const auto expect = [&](const std::function<void(Sample&)>& change, std::string_view message) {
    Sample changed = op;
    change(changed);
    expect_error([&] { choose_tokens(ops, changed); }, message);
  };
  expect(
      [](Sample& s) {
        s.seen = Tensor::zeros({1, 5}, DType::kU8);
      },
      "[sample] seen is [1, 5], needs [2, 5]");
  expect([](Sample& s) { s.kept = ints({0, 0}); }, "[sample] kept is int32, needs float32");
  expect([](Sample& s) { s.ids = ints({0}); }, "[sample] ids is [1], needs [2]");
  expect([](Sample& s) { s.positions = Tensor::zeros({2}, DType::kI64); },
         "[sample] positions is int64, needs int32");
}

}  // namespace
}  // namespace temper::ops
