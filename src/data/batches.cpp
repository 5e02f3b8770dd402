#include "data/batches.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/threads/threads.h"

namespace temper::data {
namespace {

constexpr int64_t kSampleRows = 512;  // for the estimate

PackOptions pack_options(const LoaderOptions& options) {
  return {options.packing, options.max_length, options.pack_window};
}

RowOrder order_of(const Mixture& mixture, const LoaderOptions& options) {
  return RowOrder(mixture.sizes(), mixture.weights(), {options.seed, options.shuffle, options.mixing});
}

void check(const LoaderOptions& options) {
  if ((options.rows_per_step > 0) == (options.tokens_per_step > 0))
    fail("[data] set one of rows_per_step (found {}) and tokens_per_step (found {}) above 0",
         options.rows_per_step, options.tokens_per_step);
  if (options.num_epochs < 0) fail("[data] num_epochs is {}, expected at least 0", options.num_epochs);
}

}  // namespace

BatchMaker::BatchMaker(const Mixture& mixture, const LoaderOptions& options)
    : mixture_(&mixture),
      options_((check(options), options)),
      rows_(mixture, order_of(mixture, options), options.num_epochs, options.threads),
      packer_(pack_options(options)),
      counts_(mixture.members().size()) {}

RowCounts BatchMaker::counts() const {
  RowCounts all;
  for (const RowCounts& counts : counts_) all += counts;
  return all;
}

std::optional<Batch> BatchMaker::next() {
  Batch batch;
  while (true) {  // again where broken pictures made room
    while (!step_is_full(batch) && advance()) {
    }
    std::vector<DocumentGroup> groups = take_groups(batch);
    if (groups.empty()) break;
    add_groups(batch, std::move(groups));
  }
  if (batch.rows.empty()) {
    if (broken_in_a_row_ > 0 && counts().trained == 0) fail_without_rows("");
    return std::nullopt;
  }
  const bool ended = options_.num_epochs > 0 && epoch_ == options_.num_epochs;
  batch.epoch = ended ? epoch_ - 1 : epoch_;
  batch.progress = progress();
  return batch;
}

// The groups that the batch has room for.
std::vector<DocumentGroup> BatchMaker::take_groups(const Batch& batch) {
  std::vector<DocumentGroup> groups;
  int64_t tokens = batch.tokens;
  const auto fits = [&](const DocumentGroup& group) {
    const int64_t rows = std::ssize(batch.rows) + std::ssize(groups);
    if (options_.rows_per_step > 0) return rows < options_.rows_per_step;
    return rows == 0 || tokens + num_tokens(group) <= options_.tokens_per_step;
  };
  while (!packer_.closed().empty() && fits(packer_.closed().front())) {
    groups.push_back(packer_.take());
    tokens += num_tokens(groups.back());
  }
  return groups;
}

void BatchMaker::add_groups(Batch& batch, std::vector<DocumentGroup> groups) {
  std::vector<std::shared_ptr<const PicturePixels>> pixels(groups.size());
  if (options_.pictures) {
    std::vector<std::vector<DocumentPictures>> opened =
        open_pictures(groups, *options_.pictures, options_.threads);
    const std::vector<BrokenDocument> broken = take_broken(groups, opened);
    for (const BrokenDocument& document : broken) leave_out(document);
    // Between two good rows there are at most all others of two epochs.
    const bool all = std::ranges::all_of(groups, &DocumentGroup::empty);
    broken_in_a_row_ = all ? broken_in_a_row_ + std::ssize(broken) : 0;
    if (static_cast<double>(broken_in_a_row_) > 2 * rows_.epoch_rows() + 1) fail_without_rows("");
    pixels = make_pixels(std::move(opened), *options_.pictures, options_.threads);
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].empty()) continue;
    for (const Document& document : groups[g])
      if (document.piece == 0) ++counts_[static_cast<size_t>(document.source)].trained;
    batch.rows.push_back(pack(groups[g]));
    batch.rows.back().pixels = std::move(pixels[g]);
    batch.tokens += batch.rows.back().size();
    batch.target_tokens += batch.rows.back().num_targets();
  }
}

void BatchMaker::leave_out(const BrokenDocument& broken) {
  const auto& [document, error] = broken;
  const std::string where = mixture_->place(document.row);
  counts_[static_cast<size_t>(document.source)].turn_bad(
      document.example, document.piece == 0, fmt::format("[{}] {}", where, error), options_.on_bad_row);
}

void BatchMaker::fail_without_rows(std::string_view remedies) const {
  fail("[data] no row of {} is left to use: {}{}", mixture_->describe(), counts().describe(), remedies);
}

// Epochs that were read, without the rows that wait to be packed.
double BatchMaker::progress() const {
  int64_t waiting = 0;
  const auto count = [&](const auto& groups) {
    for (const DocumentGroup& group : groups) waiting += std::ranges::count(group, 0, &Document::piece);
  };
  count(packer_.closed());
  count(packer_.open());
  const double taken = rows_.progress() * rows_.epoch_rows();
  return std::max(0.0, (taken - static_cast<double>(waiting)) / rows_.epoch_rows());
}

bool BatchMaker::step_is_full(const Batch& batch) const {
  if (options_.rows_per_step > 0)
    return std::ssize(batch.rows) + std::ssize(packer_.closed()) >= options_.rows_per_step;
  return batch.tokens + packer_.closed_tokens() >= options_.tokens_per_step;
}

bool BatchMaker::advance() {
  const std::optional<int64_t> epoch = rows_.next_epoch();
  if (!epoch && epoch_ == options_.num_epochs) return false;
  if (!epoch || *epoch != epoch_) {
    end_epoch();
    return true;
  }
  ReadAhead::Row row = rows_.take();
  if (!row.read.error.empty() && options_.on_bad_row == OnBadRow::kStop) blame_first(row);
  counts_[mixture_->member_of(row.row)].add(row.read, options_.on_bad_row);
  cuts_targets_ |= row.read.row.status == RowStatus::kNoTargets && row.read.row.was_too_long;
  if (!row.read.kept()) return true;
  ++kept_in_epoch_;
  add(row.row, std::move(row.read.row));
  return true;
}

// Where a whole file has another form, its first row says so, whichever comes first in this order.
void BatchMaker::blame_first(ReadAhead::Row& row) const {
  ReadRow first = mixture_->read_first_of_file(row.row);
  if (!first.error.empty()) row.read = std::move(first);
}

void BatchMaker::add(int64_t row, EncodedRow encoded) {
  const auto source = static_cast<int32_t>(mixture_->member_of(row));
  for (size_t piece = 0; piece < encoded.examples.size(); ++piece)
    packer_.add({row, static_cast<int64_t>(piece), source, std::move(encoded.examples[piece])});
}

void BatchMaker::end_epoch() {
  if (kept_in_epoch_ == 0) {
    const RowCounts all = counts();
    std::string remedies;
    if (all.dropped.too_long > 0 || cuts_targets_)
      remedies += fmt::format("; rows that are cut lose their targets first: see data.max_length ({})",
                              options_.max_length);
    if (all.dropped.no_targets > 0)
      remedies +=
          "; rows without an answer, or whose chat template writes none, have no targets: `temper data "
          "inspect` shows the texts";
    if (all.dropped.empty > 0) remedies += "; data.on_empty_answer: learn keeps rows with empty answers";
    fail_without_rows(remedies);
  }
  packer_.flush();
  ++epoch_;
  kept_in_epoch_ = 0;
}

double estimate_steps_per_epoch(const Mixture& mixture, const LoaderOptions& options) {
  check(options);
  RowOrder order = order_of(mixture, options);
  const double epoch_rows = order.epoch_rows();
  const auto count = std::min(kSampleRows, static_cast<int64_t>(std::ceil(epoch_rows)));
  std::vector<int64_t> rows(static_cast<size_t>(count));
  // Spread over the whole epoch, as files are often sorted by length; the order says how sources are mixed.
  const double stride = options.shuffle ? 1 : epoch_rows / static_cast<double>(count);
  int64_t given = 0;
  for (size_t i = 0; i < rows.size(); ++i)
    for (const double end = stride * static_cast<double>(i + 1); static_cast<double>(given) < end; ++given)
      rows[i] = order.next();
  std::vector<ReadRow> sample(rows.size());
  parallel_for(
      count, [&](int64_t i) { sample[static_cast<size_t>(i)] = mixture.read(rows[static_cast<size_t>(i)]); });
  Packer packer(pack_options(options));
  for (ReadRow& read : sample) {
    if (!read.kept()) continue;
    for (Example& example : read.row.examples) packer.add({0, 0, 0, std::move(example)});
  }
  packer.flush();
  const double scale = epoch_rows / static_cast<double>(count);
  if (options.rows_per_step > 0)
    return scale * static_cast<double>(packer.closed().size()) / static_cast<double>(options.rows_per_step);
  // As next() cuts them: whole rows, which leave room in most steps.
  double steps = 0;
  int64_t held = options.tokens_per_step;
  for (const DocumentGroup& group : packer.closed()) {
    const int64_t size = num_tokens(group);
    if (held + size > options.tokens_per_step) {
      ++steps;
      held = 0;
    }
    held += size;
  }
  const double last = static_cast<double>(held) / static_cast<double>(options.tokens_per_step);
  return scale * std::max(steps - 1 + std::min(last, 1.0), 0.0);
}

}  // namespace temper::data
