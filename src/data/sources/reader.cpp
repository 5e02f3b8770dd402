#include "data/sources/reader.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "data/chat/losses.h"

namespace temper::data {
namespace {

constexpr int64_t kLoggedRows = 5;

// Each count by its name in saved states.
template <class Counts>
auto fields_of(Counts& c) {
  using Field = std::pair<std::string_view, decltype(&c.rows)>;
  return std::to_array<Field>({{"trained", &c.trained},
                               {"rows", &c.rows},
                               {"kept", &c.kept},
                               {"truncated", &c.changed.truncated},
                               {"split", &c.changed.split},
                               {"too_long", &c.dropped.too_long},
                               {"no_targets", &c.dropped.no_targets},
                               {"empty", &c.dropped.empty},
                               {"empty_turns", &c.changed.empty_turns},
                               {"bad", &c.dropped.bad},
                               {"tokens", &c.tokens},
                               {"target_tokens", &c.target_tokens},
                               {"tokens_cut", &c.changed.tokens_cut},
                               {"incomplete", &c.changed.incomplete},
                               {"bytes_dropped", &c.changed.bytes_dropped}});
}

// "3 bad", where there are any.
void add_part(std::vector<std::string>& parts, int64_t count, std::string_view what) {
  if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
}

}  // namespace

ReadRow read_row(const Source& source, const RowEncoder& encoder, int64_t index) {
  ReadRow read;
  bool parsed = false;
  source.check_unchanged(index);  // no row of such a file is one to skip
  try {
    const Json row = source.row(index);
    parsed = true;
    read.row = encoder.encode(row, parent_path(source.path(index)));
    if (!read.row.lost.empty() || !read.row.notes.empty())
      read.place = [&source, index] { return source.place(index); };
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    read.error = parsed ? fmt::format("[{}] {}", source.place(index), error.what()) : error.what();
  }
  return read;
}

void ChangedRows::add(const EncodedRow& row) {
  const bool pieces = row.format != RowFormat::kPreference && row.examples.size() > 1;
  split += pieces;
  truncated += row.tokens_cut > 0 && !pieces;
  tokens_cut += row.tokens_cut;
  incomplete += row.bytes_dropped > 0;
  bytes_dropped += row.bytes_dropped;
  empty_turns += row.empty_turns;
}

std::string ChangedRows::describe() const {
  std::vector<std::string> parts;
  add_part(parts, truncated, "truncated");
  add_part(parts, split, "split");
  add_part(parts, tokens_cut, "tokens cut off");
  add_part(parts, incomplete,
           fmt::format("without {} of their bytes, for which the tokenizer has no token", bytes_dropped));
  add_part(parts, empty_turns, "empty answers not trained");
  return join(parts);
}

void DroppedRows::add(RowStatus status) {
  too_long += status == RowStatus::kTooLong;
  empty += status == RowStatus::kEmptyAnswer;
  no_targets += status == RowStatus::kNoTargets;
}

std::string DroppedRows::describe() const {
  std::vector<std::string> parts;
  add_part(parts, too_long, "too long");
  add_part(parts, no_targets, "without a target token");
  add_part(parts, empty, "with an empty answer");
  add_part(parts, bad, "bad");
  return parts.empty() ? "" : "dropped " + join(parts);
}

void RowCounts::count_bad(const std::string& error, OnBadRow on_bad_row, bool counts) {
  if (on_bad_row == OnBadRow::kStop)
    fail("{}; set data.on_bad_row: skip to continue without such rows", error);
  const int64_t before = dropped.bad;
  dropped.bad += counts;
  if (on_bad_row == OnBadRow::kCount) return;
  if (before < kLoggedRows) log_warning(fmt::format("row skipped: {}", error));
  if (counts && before + 1 == kLoggedRows) log_warning("further skipped rows are counted, not shown");
}

void RowCounts::turn_bad(const Example& example, bool is_first, const std::string& error,
                         OnBadRow on_bad_row) {
  count_bad(error, on_bad_row, is_first);
  kept -= is_first;
  tokens -= example.size();
  target_tokens -= example.num_targets();
}

void RowCounts::add(const ReadRow& read, OnBadRow on_bad_row) {
  ++rows;
  if (!read.error.empty()) return count_bad(read.error, on_bad_row, true);
  const EncodedRow& row = read.row;
  count_names(unused, row.unused);
  count_names(lost, row.lost);
  if (read.place && on_bad_row != OnBadRow::kCount) {
    warn_of_losses(read.place, row.lost);
    log_notes(read.place, row.notes);
  }
  dropped.add(row.status);
  if (!read.kept()) return;
  ++kept;
  tokens += row.num_tokens();
  changed.add(row);
  for (const Example& example : row.examples) target_tokens += example.num_targets();
}

RowCounts& RowCounts::operator+=(const RowCounts& other) {
  const auto own = fields_of(*this);
  const auto more = fields_of(other);
  for (size_t i = 0; i < own.size(); ++i) *own[i].second += *more[i].second;
  for (const auto& [name, count] : other.unused) unused[name] += count;
  for (const auto& [name, count] : other.lost) lost[name] += count;
  return *this;
}

std::string RowCounts::describe() const {
  const std::string changes = changed.describe(), drops = dropped.describe();
  return fmt::format("kept {} of {} rows{}{}", kept, rows,
                     changes.empty() ? "" : fmt::format(" ({})", changes), drops.empty() ? "" : "; " + drops);
}

std::string RowCounts::describe_training(int64_t available) const {
  std::vector<std::string> parts;
  for (std::string part : {changed.describe(), dropped.describe()})
    if (!part.empty()) parts.push_back(std::move(part));
  return fmt::format("trained {} rows, of {} in the data{}", trained, available,
                     parts.empty() ? "" : fmt::format("; of {} that were read: {}", rows, join(parts)));
}

std::string RowCounts::describe_unused() const {
  std::vector<std::string> parts;
  for (const auto& [name, count] : unused) parts.push_back(fmt::format("{} ({})", name, count));
  return join(parts);
}

std::string RowCounts::describe_lost() const {
  std::vector<std::string> parts;
  for (const auto& [what, count] : lost)
    parts.push_back(fmt::format("{} ({} {})", what, count, count == 1 ? "row" : "rows"));
  return join(parts, "; ");
}

Json RowCounts::to_json() const {
  Json::Object object;
  for (const auto& [name, count] : fields_of(*this)) object.emplace_back(name, *count);
  for (const auto& [group, counts] : {std::pair("unused", &unused), std::pair("lost", &lost)}) {
    Json::Object names;
    for (const auto& [name, count] : *counts) names.emplace_back(name, count);
    if (!names.empty()) object.emplace_back(group, std::move(names));
  }
  return object;
}

RowCounts RowCounts::from_json(const Json& json) {
  RowCounts counts;
  for (const auto& [name, count] : fields_of(counts))
    if (const Json* value = json.find(name)) *count = value->as_int();  // older states have fewer
  for (const auto& [group, names] :
       {std::pair("unused", &RowCounts::unused), std::pair("lost", &RowCounts::lost)})
    if (const Json* found = json.find(group))
      for (const auto& [name, count] : found->as_object()) (counts.*names)[name] = count.as_int();
  return counts;
}

}  // namespace temper::data
