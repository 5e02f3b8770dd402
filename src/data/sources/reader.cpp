#include "data/sources/reader.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/chat/losses.h"

namespace temper::data {
namespace {

constexpr int64_t kLoggedRows = 5;

constexpr std::array<std::pair<std::string_view, int64_t RowCounts::*>, 15> kFields = {{
    {"trained", &RowCounts::trained},
    {"rows", &RowCounts::rows},
    {"kept", &RowCounts::kept},
    {"truncated", &RowCounts::truncated},
    {"split", &RowCounts::split},
    {"too_long", &RowCounts::too_long},
    {"no_targets", &RowCounts::no_targets},
    {"empty", &RowCounts::empty},
    {"empty_turns", &RowCounts::empty_turns},
    {"bad", &RowCounts::bad},
    {"tokens", &RowCounts::tokens},
    {"target_tokens", &RowCounts::target_tokens},
    {"tokens_cut", &RowCounts::tokens_cut},
    {"incomplete", &RowCounts::incomplete},
    {"bytes_dropped", &RowCounts::bytes_dropped},
}};

}  // namespace

ReadRow read_row(const Source& source, const RowEncoder& encoder, int64_t index) {
  ReadRow read;
  bool parsed = false;
  source.check_unchanged(index);  // no row of such a file is one to skip
  try {
    const Json row = source.row(index);
    parsed = true;
    read.row = encoder.encode(row);
    if (!read.row.lost.empty() || !read.row.notes.empty())
      read.place = [&source, index] { return source.place(index); };
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    read.error = parsed ? fmt::format("[{}] {}", source.place(index), error.what()) : error.what();
  }
  return read;
}

void RowCounts::add(const ReadRow& read, OnBadRow on_bad_row) {
  ++rows;
  if (!read.error.empty()) {
    if (on_bad_row == OnBadRow::kStop)
      fail("{}; set data.on_bad_row: skip to continue without such rows", read.error);
    if (on_bad_row == OnBadRow::kCount) {
      ++bad;
      return;
    }
    if (bad < kLoggedRows) log_warning(fmt::format("row skipped: {}", read.error));
    if (++bad == kLoggedRows) log_warning("further skipped rows are counted, not shown");
    return;
  }
  const EncodedRow& row = read.row;
  count_names(unused, row.unused);
  count_names(lost, row.lost);
  if (read.place && on_bad_row != OnBadRow::kCount) {
    warn_of_losses(read.place, row.lost);
    log_notes(read.place, row.notes);
  }
  too_long += row.status == RowStatus::kTooLong;
  empty += row.status == RowStatus::kEmptyAnswer;
  no_targets += row.status == RowStatus::kNoTargets;
  if (!read.kept()) return;
  ++kept;
  const bool pieces = row.format != RowFormat::kPreference && row.examples.size() > 1;
  split += pieces;
  truncated += row.tokens_cut > 0 && !pieces;
  tokens += row.num_tokens();
  tokens_cut += row.tokens_cut;
  incomplete += row.bytes_dropped > 0;
  bytes_dropped += row.bytes_dropped;
  empty_turns += row.empty_turns;
  for (const Example& example : row.examples) target_tokens += example.num_targets();
}

RowCounts& RowCounts::operator+=(const RowCounts& other) {
  for (const auto& [name, field] : kFields) this->*field += other.*field;
  for (const auto& [name, count] : other.unused) unused[name] += count;
  for (const auto& [name, count] : other.lost) lost[name] += count;
  return *this;
}

std::string RowCounts::describe_changed() const {
  std::vector<std::string> changed;
  if (truncated > 0) changed.push_back(fmt::format("{} truncated", truncated));
  if (split > 0) changed.push_back(fmt::format("{} split", split));
  if (tokens_cut > 0) changed.push_back(fmt::format("{} tokens cut off", tokens_cut));
  if (incomplete > 0)
    changed.push_back(fmt::format("{} without {} of their bytes, for which the tokenizer has no token",
                                  incomplete, bytes_dropped));
  if (empty_turns > 0) changed.push_back(fmt::format("{} empty answers not trained", empty_turns));
  return join(changed);
}

std::string RowCounts::describe_dropped() const {
  std::vector<std::string> dropped;
  if (too_long > 0) dropped.push_back(fmt::format("{} too long", too_long));
  if (no_targets > 0) dropped.push_back(fmt::format("{} without a target token", no_targets));
  if (empty > 0) dropped.push_back(fmt::format("{} with an empty answer", empty));
  if (bad > 0) dropped.push_back(fmt::format("{} bad", bad));
  return dropped.empty() ? "" : "dropped " + join(dropped);
}

std::string RowCounts::describe() const {
  const std::string changed = describe_changed(), dropped = describe_dropped();
  return fmt::format("kept {} of {} rows{}{}", kept, rows,
                     changed.empty() ? "" : fmt::format(" ({})", changed),
                     dropped.empty() ? "" : "; " + dropped);
}

std::string RowCounts::describe_training(int64_t available) const {
  std::vector<std::string> parts;
  for (std::string part : {describe_changed(), describe_dropped()})
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
  for (const auto& [name, field] : kFields) object.emplace_back(name, this->*field);
  for (const auto& [group, counts] : {std::pair("unused", &unused), std::pair("lost", &lost)}) {
    Json::Object names;
    for (const auto& [name, count] : *counts) names.emplace_back(name, count);
    if (!names.empty()) object.emplace_back(group, std::move(names));
  }
  return object;
}

RowCounts RowCounts::from_json(const Json& json) {
  RowCounts counts;
  for (const auto& [name, field] : kFields)
    if (const Json* value = json.find(name)) counts.*field = value->as_int();  // older states have fewer
  for (const auto& [group, names] :
       {std::pair("unused", &RowCounts::unused), std::pair("lost", &RowCounts::lost)})
    if (const Json* found = json.find(group))
      for (const auto& [name, count] : found->as_object()) (counts.*names)[name] = count.as_int();
  return counts;
}

}  // namespace temper::data
