#include "losses/logit_statistics.h"

#include <algorithm>
#include <cmath>

#include "collectives/group.h"
#include "primitives/primitives.h"

namespace temper::losses {
namespace p = primitives;
namespace {

double count_of(const LogitStatistics& all) {
  return static_cast<double>(all.tokens) * static_cast<double>(all.vocabulary);
}

// Parts of the vocabulary at the same tokens.
LogitStatistics joined(collectives::Group& ranks, const LogitStatistics& mine) {
  LogitStatistics all;
  int64_t vocabulary = 0;
  for (const LogitStatistics& one : ranks.gather("statistics of logits", mine)) {
    all.add(one);
    vocabulary += one.vocabulary;
  }
  all.tokens = mine.tokens;
  all.vocabulary = vocabulary;
  return all;
}

}  // namespace

void LogitStatistics::add(const LogitStatistics& other) {
  sum += other.sum;
  squares += other.squares;
  least = std::min(least, other.least);
  largest = std::max(largest, other.largest);
  tokens += other.tokens;
  vocabulary = std::max(vocabulary, other.vocabulary);
}

double LogitStatistics::mean() const { return empty() ? 0 : sum / count_of(*this); }

double LogitStatistics::deviation() const {
  const double count = count_of(*this);
  return count < 2 ? 0 : std::sqrt(std::max(0.0, squares - count * mean() * mean()) / (count - 1));
}

LogitStatistics statistics_of(const Tensor& logits, const ops::VocabularyRanks& ranks) {
  Tape quiet(false);
  LogitStatistics found{.tokens = logits.dim(0), .vocabulary = logits.dim(1)};
  if (logits.numel() > 0) {
    const Var all = p::cast(quiet, quiet.constant(logits), DType::kF32);
    // A float32 of each token, and their sums in double.
    const auto each = [](const Var& of_tokens, const auto& use) {
      const Tensor here = of_tokens.value.on({});
      for (const float value : here.values<float>()) use(double{value});
    };
    each(p::sum_last(quiet, all), [&](double x) { found.sum += x; });
    each(p::sum_last(quiet, p::mul(quiet, all, all)), [&](double x) { found.squares += x; });
    each(p::max_last(quiet, all), [&](double x) { found.largest = std::max(found.largest, x); });
    each(p::max_last(quiet, p::scale(quiet, all, -1)),
         [&](double x) { found.least = std::min(found.least, -x); });
  }
  return ranks.group == nullptr ? found : joined(*ranks.group, found);
}

}  // namespace temper::losses
