#include "data/reader.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace temper::data {
namespace {

constexpr int64_t kLoggedRows = 5;

constexpr std::array<std::pair<std::string_view, int64_t RowCounts::*>, 8> kFields = {{
    {"rows", &RowCounts::rows},
    {"kept", &RowCounts::kept},
    {"truncated", &RowCounts::truncated},
    {"too_long", &RowCounts::too_long},
    {"no_targets", &RowCounts::no_targets},
    {"bad", &RowCounts::bad},
    {"tokens", &RowCounts::tokens},
    {"target_tokens", &RowCounts::target_tokens},
}};

}  // namespace

ReadRow read_row(const Source& source, const RowEncoder& encoder, int64_t index) {
  ReadRow read;
  bool parsed = false;
  try {
    const Json row = source.row(index);
    parsed = true;
    read.row = encoder.encode(row);
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
      fail("{}; set data.on_bad_row: skip to go on without such rows", read.error);
    if (bad < kLoggedRows) log_warning(fmt::format("row skipped: {}", read.error));
    if (++bad == kLoggedRows) log_warning("further skipped rows are counted, not shown");
    return;
  }
  const Example& example = read.row.example;
  truncated += example.truncated() && read.row.status == RowStatus::kKept;
  too_long += read.row.status == RowStatus::kTooLong;
  no_targets += read.row.status == RowStatus::kNoTargets;
  if (!read.kept()) return;
  ++kept;
  tokens += example.size();
  target_tokens += example.num_targets();
}

std::string RowCounts::describe() const {
  std::string out = fmt::format("kept {} of {} rows", kept, rows);
  if (truncated > 0) out += fmt::format(" ({} truncated)", truncated);
  std::vector<std::string> dropped;
  if (too_long > 0) dropped.push_back(fmt::format("{} too long", too_long));
  if (no_targets > 0) dropped.push_back(fmt::format("{} without a target token", no_targets));
  if (bad > 0) dropped.push_back(fmt::format("{} bad", bad));
  return dropped.empty() ? out : out + "; dropped " + join(dropped);
}

Json RowCounts::to_json() const {
  Json::Object object;
  for (const auto& [name, field] : kFields) object.emplace_back(name, this->*field);
  return object;
}

RowCounts RowCounts::from_json(const Json& json) {
  RowCounts counts;
  for (const auto& [name, field] : kFields) counts.*field = json.at(name).as_int();
  return counts;
}

}  // namespace temper::data
