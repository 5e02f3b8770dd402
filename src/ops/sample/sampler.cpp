#include "ops/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace temper::ops {
namespace {

void penalize(std::vector<float>& scores, std::span<const int32_t> history, double penalty) {
  std::vector<int32_t> seen(history.begin(), history.end());
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  for (const int32_t id : seen) {
    if (id < 0 || static_cast<size_t>(id) >= scores.size()) continue;
    float& score = scores[static_cast<size_t>(id)];
    score = static_cast<float>(score > 0 ? score / penalty : score * penalty);
  }
}

struct Candidate {
  int32_t id;
  double probability;
};

// Of the tokens that may be chosen, from likely to unlikely.
struct Ranking {
  std::vector<Candidate> candidates;  // cut to top_k, with probabilities that sum to one
  double mass = 1;                    // of all of them, in the whole distribution
};

// `lowest` is the difference to the best score from which on min-p keeps tokens.
Ranking rank(const std::vector<float>& scores, double best, double lowest, const SamplingOptions& options) {
  std::vector<int32_t> ids(scores.size());
  std::iota(ids.begin(), ids.end(), 0);
  // What min-p leaves out is the end of the order: it need not be sorted, unless top-p adds it up.
  if (options.top_p >= 1)
    std::erase_if(ids, [&](int32_t id) { return scores[static_cast<size_t>(id)] - best < lowest; });
  const auto more_likely = [&](int32_t a, int32_t b) {
    const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const size_t kept =
      options.top_k > 0 ? std::min(ids.size(), static_cast<size_t>(options.top_k)) : ids.size();
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept), ids.end(), more_likely);
  ids.resize(kept);
  Ranking ranking;
  double sum = 0, all = 0;
  for (const int32_t id : ids) {
    const double weight = std::exp((scores[static_cast<size_t>(id)] - best) / options.temperature);
    ranking.candidates.push_back({id, weight});
    sum += weight;
  }
  for (Candidate& candidate : ranking.candidates) candidate.probability /= sum;
  if (kept == scores.size()) return ranking;
  for (const float score : scores) all += std::exp((score - best) / options.temperature);
  ranking.mass = sum / all;
  return ranking;
}

// Where all tokens stay, nothing needs to be sorted: the point lies among the weights in the order of the
// ids.
int32_t sample_all(const std::vector<float>& scores, double best, double temperature, double uniform) {
  std::vector<double> weights;
  weights.reserve(scores.size());
  double sum = 0;
  for (const float score : scores) {
    weights.push_back(std::exp((score - best) / temperature));
    sum += weights.back();
  }
  double point = uniform * sum;
  int32_t last = 0;  // with a weight: what roundings leave of the point is its
  for (size_t id = 0; id < weights.size(); ++id) {
    if (weights[id] <= 0) continue;
    last = static_cast<int32_t>(id);
    point -= weights[id];
    if (point < 0) break;
  }
  return last;
}

}  // namespace

NextToken sample(std::span<const float> logits, const SamplingOptions& options,
                 std::span<const int32_t> history, uint64_t position) {
  invariant(!logits.empty(), "sampling from no logits");
  std::vector<float> scores(logits.begin(), logits.end());
  if (options.repetition_penalty != 1) penalize(scores, history, options.repetition_penalty);
  if (std::any_of(scores.begin(), scores.end(), [](float score) { return std::isnan(score); })) return {};
  const auto best = std::max_element(scores.begin(), scores.end());
  if (std::isinf(*best)) return {};
  if (options.temperature <= 0) return {static_cast<int32_t>(best - scores.begin())};
  const double uniform = Random(options.seed, RandomPurpose::kSampling).uniform(position);
  const bool keeps_all = options.top_p >= 1 && options.min_p <= 0 &&
                         (options.top_k <= 0 || static_cast<size_t>(options.top_k) >= scores.size());
  if (keeps_all) return {sample_all(scores, *best, options.temperature, uniform)};
  const double lowest = options.temperature * std::log(options.min_p);  // -inf: all
  const auto [candidates, mass_of_all] = rank(scores, *best, lowest, options);
  size_t count = candidates.size();
  double mass = 0;
  for (size_t i = 0; i < candidates.size() && options.top_p < 1; ++i) {
    if (double{scores[static_cast<size_t>(candidates[i].id)]} - *best < lowest) {
      count = i;
      break;
    }
    mass += candidates[i].probability;
    if (mass >= options.top_p) {
      count = i + 1;
      break;
    }
  }
  if (options.top_p >= 1 || mass <= 0) mass = 1;
  const double kept = count == candidates.size() ? std::log(mass_of_all) : std::log(mass * mass_of_all);
  double point = uniform * mass;
  for (size_t i = 0; i < count; ++i) {
    point -= candidates[i].probability;
    if (point < 0) return {candidates[i].id, kept};
  }
  return {candidates[count - 1].id, kept};
}

}  // namespace temper::ops
