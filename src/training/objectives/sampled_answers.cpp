#include "training/objectives/sampled_answers.h"

#include "base/error.h"

namespace temper::training {

std::vector<SampledAnswers::Part> SampledAnswers::parts(int64_t most_targets) const {
  std::vector<Part> all;
  for (const int64_t& length : lengths) {
    if (all.empty() || all.back().targets + length > most_targets)
      all.push_back({{&length, 0}, all.empty() ? 0 : all.back().first + all.back().targets, 0});
    Part& part = all.back();
    part.lengths = {part.lengths.data(), part.lengths.size() + 1};
    part.targets += length;
  }
  return all;
}

SampledAnswers find_sampled(const Tensor& targets, std::span<const DocumentSpan> documents) {
  SampledAnswers found;
  const auto expected = targets.values<int32_t>();
  size_t token = 0;
  const auto take = [&](int64_t length) {
    int64_t count = 0;
    for (const size_t end = token + static_cast<size_t>(length); token < end; ++token) {
      if (expected[token] == data::kIgnore) continue;
      found.positions.push_back(static_cast<int32_t>(token));
      found.ids.push_back(expected[token]);
      ++count;
    }
    if (count > 0) found.lengths.push_back(count);
  };
  for (const DocumentSpan& document : documents) {
    if (document.answers.empty()) {
      take(document.length);
      continue;
    }
    token += static_cast<size_t>(document.shared());
    for (const data::Answer& answer : document.answers) take(answer.length);
  }
  return found;
}

data::TokenColumns sampled_tokens(const std::vector<data::PackedRow>& rows) {
  data::TokenColumns all;
  for (const data::PackedRow& row : rows) {
    const int64_t targets = row.num_targets();
    invariant(row.sampled.fits(targets), "every target was sampled");
    for (int64_t target = 0; target < targets; ++target) all.append(row.sampled, static_cast<size_t>(target));
  }
  return all;
}

int64_t count_sampled(const std::vector<data::PackedRow>& rows) {
  if (rows.empty()) return 0;
  const MicroBatch all = gather(rows, 0, rows.size());
  return std::ssize(find_sampled(all.targets, all.documents).lengths);
}

}  // namespace temper::training
