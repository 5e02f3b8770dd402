#include "data/rows/row_length.h"

#include <algorithm>

#include "base/error.h"
#include "data/rows/answers.h"

namespace temper::data {
namespace {

// The tokens from `begin` on, at most `size`.
Example part_of(const Example& whole, int64_t begin, int64_t size) {
  const auto first = static_cast<std::ptrdiff_t>(begin),
             last = static_cast<std::ptrdiff_t>(std::min(begin + size, whole.size()));
  return {{whole.ids.begin() + first, whole.ids.begin() + last},
          {whole.loss_mask.begin() + first, whole.loss_mask.begin() + last},
          {},
          0,
          begin == 0 ? whole.pictures : std::vector<PlacedPicture>{}};
}

// Whether a piece would have a part of a picture, or text without a picture that the row has before it.
bool loses_pictures(const Example& example, int64_t limit, bool splits) {
  return !example.pictures.empty() && (splits || example.pictures.back().end() > limit);
}

}  // namespace

void fit(EncodedRow& row, const RowOptions& options) {
  const int64_t limit = options.max_length > 0 ? options.max_length : INT64_MAX;
  std::vector<Example> kept;
  for (Example& example : row.examples) {
    if (example.size() > limit && options.overflow == Overflow::kError)
      fail("the row has {} tokens, max_length is {}; raise it, or set overflow to truncate, split or drop",
           example.size(), limit);
    const bool keeps_pair = row.format == RowFormat::kPreference && options.goal != Goal::kLanguageModel;
    const bool splits = options.overflow == Overflow::kSplit && !keeps_pair && !compares(options.goal);
    if (example.size() > limit &&
        (options.overflow == Overflow::kDrop || loses_pictures(example, limit, splits)))
      row.status = RowStatus::kTooLong;
    if (example.size() <= limit) {
      kept.push_back(std::move(example));
      continue;
    }
    row.was_too_long = true;
    const int64_t end = splits ? example.size() : limit;
    for (int64_t begin = 0; begin < end; begin += limit) kept.push_back(part_of(example, begin, limit));
  }
  if (row.status == RowStatus::kTooLong) return row.examples.clear();
  row.examples = std::move(kept);
  if (row.format != RowFormat::kPromptOnly) {
    const auto learns_nothing = [](const Example& example) { return example.num_targets() == 0; };
    if (row.format == RowFormat::kPreference && options.goal != Goal::kLanguageModel) {
      if (std::any_of(row.examples.begin(), row.examples.end(), learns_nothing)) row.examples.clear();
    } else {
      std::erase_if(row.examples, learns_nothing);
    }
  }
  if (row.examples.empty()) row.status = RowStatus::kNoTargets;
  row.tokens_cut = row.full_length - row.num_tokens();
}

}  // namespace temper::data
