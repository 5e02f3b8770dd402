#include "data/inspect.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "base/threads/threads.h"

namespace temper::data {
namespace {

constexpr std::array<int64_t, 5> kPercents = {50, 90, 95, 99, 100};
constexpr int64_t kRowsAtOnce = 1024;
constexpr size_t kMentions = 10;
constexpr size_t kReasons = 100;  // that are counted separately

// Nearest rank: for each of kPercents, the smallest length that this share of the rows does not exceed.
std::array<int64_t, 5> percentiles_of(std::vector<int64_t> lengths) {
  std::array<int64_t, 5> out{};
  if (lengths.empty()) return out;
  std::sort(lengths.begin(), lengths.end());
  const auto count = static_cast<int64_t>(lengths.size());
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = lengths[static_cast<size_t>((kPercents[i] * count + 99) / 100 - 1)];
  return out;
}

size_t bucket_of(int64_t length) {
  size_t bucket = 0;
  for (; length > 0; length /= 2) ++bucket;
  return bucket;
}

std::string why_dropped(const ReadRow& read) {
  if (!read.error.empty()) return read.error;
  if (read.row.status == RowStatus::kTooLong) return fmt::format("too long, {} tokens", read.row.full_length);
  if (read.row.status == RowStatus::kEmptyAnswer) return "the answer is empty";
  return fmt::format("no target among its {} tokens", read.row.full_length);
}

// An error without its place and numbers, so that the same is said of every row that has it.
std::string reason_of(std::string_view why) {
  if (const size_t place = why.find("] "); why.starts_with('[') && place != std::string_view::npos)
    why.remove_prefix(place + 2);
  std::string reason;
  bool number = false;
  for (const char c : why.substr(0, why.find(';'))) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) reason += c;
    if (digit && !number) reason += 'N';
    number = digit;
  }
  return reason;
}

// What reading all rows finds out, row by row in the order of the files.
class Survey {
 public:
  explicit Survey(const Mixture& mixture) : mixture_(mixture), pieces_(static_cast<size_t>(mixture.size())) {
    for (const Member& member : mixture.members()) summary_.sources.push_back({member.name, {}, {}});
  }

  void add(int64_t row, const ReadRow& read) {
    DatasetSummary::Source& source = summary_.sources[mixture_.member_of(row)];
    source.counts.add(read, OnBadRow::kCount);
    if (!read.kept()) {
      ++summary_.num_dropped;
      count_reason(reason_of(why_dropped(read)));
      if (summary_.dropped.size() < kMentions)
        summary_.dropped.push_back({mixture_.place(row), why_dropped(read), 0});
    }
    if (!read.error.empty()) return;
    ++source.formats[static_cast<size_t>(read.row.format)];
    if (read.row.status == RowStatus::kEmptyAnswer) return;  // it was not made tokens
    const int64_t length = read.row.full_length;
    lengths_.push_back(length);
    summary_.lengths.resize(std::max(summary_.lengths.size(), bucket_of(length) + 1));
    ++summary_.lengths[bucket_of(length)];
    remember(row, length);
    for (const Example& example : read.row.examples)
      pieces_[static_cast<size_t>(row)].push_back(static_cast<int32_t>(example.size()));
  }

  DatasetSummary finish(const LoaderOptions& options) {
    summary_.percentiles = percentiles_of(std::move(lengths_));
    for (const auto& [length, row] : longest_) summary_.longest.push_back({mixture_.place(row), "", length});
    std::stable_sort(summary_.reasons.begin(), summary_.reasons.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    pack_epoch(options);
    return std::move(summary_);
  }

 private:
  void count_reason(std::string reason) {
    auto& reasons = summary_.reasons;
    const auto known = std::find_if(reasons.begin(), reasons.end(),
                                    [&](const auto& entry) { return entry.first == reason; });
    if (known != reasons.end())
      ++known->second;
    else if (reasons.size() < kReasons)
      reasons.emplace_back(std::move(reason), 1);
  }

  void remember(int64_t row, int64_t length) {
    if (longest_.size() == kMentions && length <= longest_.back().first) return;
    const auto longer = std::find_if(longest_.begin(), longest_.end(),
                                     [&](const auto& entry) { return entry.first < length; });
    longest_.insert(longer, {length, row});
    if (longest_.size() > kMentions) longest_.pop_back();
  }

  // With lengths alone, as packing asks for no more.
  void pack_epoch(const LoaderOptions& options) {
    RowOrder order(mixture_.sizes(), mixture_.weights(), {options.seed, options.shuffle, options.mixing});
    Packer packer({options.packing, options.max_length, options.pack_window});
    const auto take = [&] {
      while (!packer.closed().empty()) {
        const DocumentGroup group = packer.take();
        ++summary_.packed_rows;
        summary_.packed_tokens += num_tokens(group);
        summary_.packed_documents += static_cast<int64_t>(group.size());
      }
    };
    while (order.epoch() == 0) {
      const auto row = order.next();
      for (const int32_t length : pieces_[static_cast<size_t>(row)])
        packer.add({row, 0, 0, {std::vector<int32_t>(static_cast<size_t>(length)), {}}});
      take();
    }
    packer.flush();
    take();
    summary_.max_length = options.max_length;
  }

  const Mixture& mixture_;
  DatasetSummary summary_;
  std::vector<int64_t> lengths_;
  std::vector<std::vector<int32_t>> pieces_;          // tokens of each example of each row
  std::vector<std::pair<int64_t, int64_t>> longest_;  // tokens and row
};

}  // namespace

RowCounts DatasetSummary::counts() const {
  RowCounts all;
  for (const Source& source : sources) all += source.counts;
  return all;
}

double DatasetSummary::filled() const {
  const auto room = static_cast<double>(packed_rows) * static_cast<double>(max_length);
  return room == 0 ? 0 : static_cast<double>(packed_tokens) / room;
}

DatasetSummary summarize(const Mixture& mixture, const LoaderOptions& options) {
  Survey survey(mixture);
  std::vector<ReadRow> rows;
  for (int64_t begin = 0; begin < mixture.size(); begin += kRowsAtOnce) {
    rows.assign(static_cast<size_t>(std::min(kRowsAtOnce, mixture.size() - begin)), {});
    parallel_for(static_cast<int64_t>(rows.size()),
                 [&](int64_t i) { rows[static_cast<size_t>(i)] = mixture.read(begin + i); });
    for (size_t i = 0; i < rows.size(); ++i) survey.add(begin + static_cast<int64_t>(i), rows[i]);
  }
  return survey.finish(options);
}

}  // namespace temper::data
