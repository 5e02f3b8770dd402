#include "recipes/plans/rehearsed_rows.h"

#include <algorithm>

#include "data/rows/answers.h"
#include "recipes/keys/recipe.h"

namespace temper::recipes {
namespace {

// A document as long as a row, every token of it a target; where answers are compared, it is two that share
// nothing. Prompts differ from row to row.
data::PackedRow longest_row(const RunConfig& config, size_t number) {
  const int64_t tokens = row_tokens(config), length = config.data.max_length;
  const auto id = static_cast<int32_t>(number % 2);
  data::PackedRow row;
  row.ids.assign(static_cast<size_t>(tokens), id);
  row.targets.assign(static_cast<size_t>(tokens), id);
  row.document_lengths = {tokens};
  row.sources = {0};
  if (tokens > length) row.answers = {{{length, true}, {tokens - length, false}}};
  return row;
}

void append(data::PackedRow& row, const data::PackedRow& from, size_t document, int64_t first,
            int64_t length) {
  const auto copy = [&](std::vector<int32_t>& to, const std::vector<int32_t>& all) {
    to.insert(to.end(), all.begin() + first, all.begin() + first + length);
  };
  copy(row.ids, from.ids);
  copy(row.targets, from.targets);
  row.targets.back() = data::kIgnore;  // of a document that was cut, too
  row.document_lengths.push_back(length);
  row.sources.push_back(0);
  if (document < from.answers.size()) row.answers.push_back(from.answers[document]);
}

// Full rows of the documents of others, one after the other; answers stay whole.
class RowFiller {
 public:
  explicit RowFiller(const std::vector<data::PackedRow>& sample) : sample_(sample) {}

  data::PackedRow next(int64_t tokens) {
    data::PackedRow row;
    for (size_t misses = 0; row.size() < tokens && misses < sample_.front().document_lengths.size();
         advance()) {
      const data::PackedRow& from = sample_[row_];
      const int64_t length = from.document_lengths[document_], room = tokens - row.size();
      const bool whole = document_ < from.answers.size() && !from.answers[document_].empty();
      if (whole && length > room)
        ++misses;
      else
        append(row, from, document_, first_, std::min(length, room));
    }
    return row;
  }

 private:
  void advance() {
    first_ += sample_[row_].document_lengths[document_];
    if (++document_ < sample_[row_].document_lengths.size()) return;
    document_ = 0;
    first_ = 0;
    row_ = (row_ + 1) % sample_.size();
  }

  const std::vector<data::PackedRow>& sample_;
  size_t row_ = 0, document_ = 0;
  int64_t first_ = 0;
};

// The document of a sample with most targets, behind a prompt for which it leaves room: answers that a run
// gives itself are never longer than those of its sample.
data::PackedRow longest_answers(const RunConfig& config, const Sample& sample) {
  const data::PackedRow& most = *std::ranges::max_element(
      sample.rows, {}, [](const data::PackedRow& row) { return row.num_targets(); });
  data::PackedRow row;
  append(row, most, 0, 0, most.document_lengths.front());
  const auto more = static_cast<size_t>(std::max<int64_t>(0, row_tokens(config) - row.size()));
  row.ids.insert(row.ids.begin(), more, row.ids.front());
  row.targets.insert(row.targets.begin(), more, data::kIgnore);
  row.document_lengths.front() += static_cast<int64_t>(more);
  return row;
}

std::vector<data::PackedRow> rows_of(const RunConfig& config, const Sample& sample, int64_t count) {
  std::vector<data::PackedRow> rows;
  RowFiller filler(sample.rows);
  // Without packing the longest document decides.
  const bool packs = config.data.packing != data::Packing::kNone,
             answers = !sample.rows.empty() && recipe_of(config).rollouts != nullptr;
  for (int64_t i = 0; i < std::max<int64_t>(count, 1); ++i)
    rows.push_back(packs && !sample.rows.empty() ? filler.next(row_tokens(config))
                   : answers                     ? longest_answers(config, sample)
                                                 : longest_row(config, static_cast<size_t>(i)));
  return rows;
}

// 0: no limit.
int64_t rows_at_once(const RunConfig& config) {
  const int64_t limit = config.train.compute.micro_batch_tokens;
  return limit == 0 ? 0 : std::max<int64_t>(1, limit / row_tokens(config));
}

// Of an update, for one of `row_ranks` ranks with rows of their own.
int64_t rows_of_rank(const RunConfig& config, const Sample& sample, int row_ranks) {
  return std::max<int64_t>(1, (rows_of_update(config, sample) + row_ranks - 1) / row_ranks);
}

// Of the passes that are rehearsed: of a pipeline as many as it takes to keep activations of as many as ever.
int64_t rows_of_step(const RunConfig& config, const Sample& sample, int row_ranks, int64_t most_passes) {
  const int64_t rows = rows_of_rank(config, sample, row_ranks), stages = config.parallel.pipeline;
  if (rows_at_once(config) == 0) return rows;
  return std::min(rows, std::max(most_passes, stages > 1 ? 2 * stages : 0) * rows_at_once(config));
}

}  // namespace

int64_t rows_of_update(const RunConfig& config, const Sample& sample) {
  if (sample.update_rows > 0) return sample.update_rows;
  const TrainConfig& train = config.train;
  return train.tokens_per_step > 0 ? train.tokens_per_step / row_tokens(config) : train.rows_per_step;
}

std::vector<data::PackedRow> own_rows(const RunConfig& config, const Sample& sample, int row_ranks,
                                      int64_t most_passes) {
  return rows_of(config, sample, rows_of_step(config, sample, row_ranks, most_passes));
}

PassCounts passes_of(const RunConfig& config, const Sample& sample, int row_ranks, int64_t most_passes) {
  const int64_t at_once = rows_at_once(config);
  if (at_once == 0) return {};
  const auto passes = [&](int64_t rows) { return (rows + at_once - 1) / at_once; };
  return {passes(rows_of_rank(config, sample, row_ranks)),
          passes(rows_of_step(config, sample, row_ranks, most_passes))};
}

bool evaluates(const RunConfig& config) { return !config.data.eval.empty() || config.data.eval_fraction > 0; }

std::vector<data::PackedRow> eval_rows(const RunConfig& config, const Sample& sample) {
  const int64_t most = rows_at_once(config) == 0 ? INT64_MAX : rows_at_once(config);
  int64_t rows = rows_at_once(config) == 0 ? rows_of_step(config, sample, 1, 0) : most;
  if (sample.eval_documents >= 0) {
    int64_t documents = 0;
    for (const data::PackedRow& row : sample.rows)
      documents += static_cast<int64_t>(row.document_lengths.size());
    const int64_t of_row =
        std::max<int64_t>(1, sample.rows.empty() ? 1 : documents / static_cast<int64_t>(sample.rows.size()));
    rows = std::min(most, (sample.eval_documents + of_row - 1) / of_row);
  }
  return rows_of(config, sample, rows);
}

}  // namespace temper::recipes
