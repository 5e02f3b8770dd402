#include "data/batches.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/threads.h"

namespace temper::data {
namespace {

constexpr int64_t kReadAhead = 64;    // rows tokenized at once on the pool
constexpr int64_t kSampleRows = 512;  // for the estimate

PackOptions pack_options(const RowEncoder& encoder, const LoaderOptions& options) {
  return {options.packing, encoder.options().max_length, options.pack_window};
}

void check(const LoaderOptions& options) {
  if ((options.rows_per_step > 0) == (options.tokens_per_step > 0))
    fail("[data] set one of rows_per_step (found {}) and tokens_per_step (found {}) above 0",
         options.rows_per_step, options.tokens_per_step);
  if (options.num_epochs < 0) fail("[data] num_epochs is {}, expected at least 0", options.num_epochs);
}

}  // namespace

BatchMaker::BatchMaker(const Source& source, const RowEncoder& encoder, LoaderOptions options)
    : source_(&source), encoder_(&encoder), options_(options), packer_(pack_options(encoder, options)) {
  check(options_);
  start_epoch(0);
}

std::optional<Batch> BatchMaker::next() {
  while (!step_is_full() && advance()) {
  }
  auto& groups = packer_.closed();
  if (groups.empty()) return std::nullopt;
  Batch batch;
  const auto fits = [&](const DocumentGroup& group) {
    if (options_.rows_per_step > 0) return static_cast<int64_t>(batch.rows.size()) < options_.rows_per_step;
    return batch.rows.empty() || batch.tokens + num_tokens(group) <= options_.tokens_per_step;
  };
  for (; !groups.empty() && fits(groups.front()); groups.pop_front()) {
    batch.rows.push_back(pack(groups.front()));
    batch.tokens += batch.rows.back().size();
    batch.target_tokens += batch.rows.back().num_targets();
  }
  const bool ended = options_.num_epochs > 0 && epoch_ == options_.num_epochs;
  batch.epoch = ended ? epoch_ - 1 : epoch_;
  batch.progress =
      static_cast<double>(epoch_) + static_cast<double>(position_) / static_cast<double>(source_->size());
  return batch;
}

bool BatchMaker::step_is_full() const {
  const auto& groups = packer_.closed();
  if (options_.rows_per_step > 0) return static_cast<int64_t>(groups.size()) >= options_.rows_per_step;
  int64_t tokens = 0;
  for (const DocumentGroup& group : groups) tokens += num_tokens(group);
  return tokens >= options_.tokens_per_step;
}

bool BatchMaker::advance() {
  if (options_.num_epochs > 0 && epoch_ == options_.num_epochs) return false;
  if (position_ == source_->size()) {
    end_epoch();
    return true;
  }
  ReadRow read = take_row();
  counts_.add(read, options_.on_bad_row);
  const int64_t row = order_[position_++];
  if (!read.kept()) return true;
  ++kept_in_epoch_;
  packer_.add({row, std::move(read.row.example)});
  return true;
}

void BatchMaker::end_epoch() {
  if (kept_in_epoch_ == 0) fail("[{}] no row is left to train on: {}", source_->place(0), counts_.describe());
  packer_.flush();
  start_epoch(epoch_ + 1);
}

void BatchMaker::start_epoch(int64_t epoch) {
  epoch_ = epoch;
  position_ = kept_in_epoch_ = ahead_end_ = 0;
  ahead_.clear();
  if (options_.shuffle) order_ = EpochOrder::shuffled(source_->size(), options_.seed, epoch);
}

ReadRow BatchMaker::take_row() {
  if (position_ == ahead_end_) {
    const int64_t count = options_.prefetch ? 1 : std::min(kReadAhead, source_->size() - position_);
    ahead_.resize(static_cast<size_t>(count));
    parallel_for(count, [&](int64_t i) {
      ahead_[static_cast<size_t>(i)] = read_row(*source_, *encoder_, order_[position_ + i]);
    });
    ahead_end_ = position_ + count;
  }
  return std::move(ahead_[ahead_.size() - static_cast<size_t>(ahead_end_ - position_)]);
}

double estimate_steps_per_epoch(const Source& source, const RowEncoder& encoder,
                                const LoaderOptions& options) {
  check(options);
  const int64_t count = std::min(kSampleRows, source.size());
  const EpochOrder order =
      options.shuffle ? EpochOrder::shuffled(source.size(), options.seed, 0) : EpochOrder::sequential();
  std::vector<ReadRow> sample(static_cast<size_t>(count));
  parallel_for(count, [&](int64_t i) {
    sample[static_cast<size_t>(i)] = read_row(source, encoder, order[i * source.size() / count]);
  });
  Packer packer(pack_options(encoder, options));
  double tokens = 0;
  for (ReadRow& read : sample) {
    if (!read.kept()) continue;
    tokens += static_cast<double>(read.row.example.size());
    packer.add({0, std::move(read.row.example)});
  }
  packer.flush();
  const double scale = static_cast<double>(source.size()) / static_cast<double>(count);
  if (options.tokens_per_step > 0) return scale * tokens / static_cast<double>(options.tokens_per_step);
  return scale * static_cast<double>(packer.closed().size()) / static_cast<double>(options.rows_per_step);
}

}  // namespace temper::data
