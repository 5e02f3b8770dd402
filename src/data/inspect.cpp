#include "data/inspect.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"

namespace temper::data {
namespace {

constexpr std::string_view kGreen = "\x1b[32m", kDim = "\x1b[2m", kReset = "\x1b[0m";
constexpr std::array<int64_t, 5> kPercents = {50, 90, 95, 99, 100};
constexpr int64_t kRowsAtOnce = 1024;

// Nearest rank: the smallest length that so many percent of the rows do not exceed.
std::array<int64_t, 5> percentiles_of(std::vector<int64_t> lengths) {
  std::array<int64_t, 5> out{};
  if (lengths.empty()) return out;
  std::sort(lengths.begin(), lengths.end());
  const auto count = static_cast<int64_t>(lengths.size());
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = lengths[static_cast<size_t>((kPercents[i] * count + 99) / 100 - 1)];
  return out;
}

}  // namespace

std::string describe_row(const Example& example, const Tokenizer& tokenizer, bool color) {
  const std::string_view open = color ? kGreen : "[[", close = color ? kReset : "]]";
  std::string out;
  for (size_t i = 0; i < example.ids.size(); ++i) {
    const bool target = example.loss_mask[i];
    const bool begins = i == 0 || example.loss_mask[i - 1] != example.loss_mask[i];
    const bool ends = i + 1 == example.ids.size() || example.loss_mask[i + 1] != example.loss_mask[i];
    if (begins) out += target ? open : color ? kDim : "";
    out += tokenizer.token_text(example.ids[i]) + "|";
    if (ends) out += target ? close : color ? kReset : "";
    if (tokenizer.token_bytes(example.ids[i]).ends_with('\n')) out += '\n';
  }
  if (!out.ends_with('\n')) out += '\n';
  out += fmt::format("{}: {} tokens, {} targets", name_of(example.format), example.size(),
                     example.num_targets());
  if (example.truncated()) out += fmt::format(", truncated from {}", example.full_length);
  return out + "\n";
}

DatasetSummary summarize(const Source& source, const RowEncoder& encoder, OnBadRow on_bad_row,
                         int64_t max_rows) {
  DatasetSummary summary;
  summary.source_rows = source.size();
  const int64_t count = max_rows > 0 ? std::min(max_rows, source.size()) : source.size();
  std::vector<int64_t> lengths;
  std::vector<ReadRow> rows;
  for (int64_t begin = 0; begin < count; begin += kRowsAtOnce) {
    rows.assign(static_cast<size_t>(std::min(kRowsAtOnce, count - begin)), {});
    parallel_for(static_cast<int64_t>(rows.size()), [&](int64_t i) {
      const auto index = static_cast<__int128>(begin + i) * source.size() / count;
      rows[static_cast<size_t>(i)] = read_row(source, encoder, static_cast<int64_t>(index));
    });
    for (const ReadRow& read : rows) {
      summary.counts.add(read, on_bad_row);
      if (!read.error.empty()) continue;
      ++summary.formats[static_cast<size_t>(read.row.example.format)];
      lengths.push_back(read.row.example.full_length);
    }
  }
  summary.percentiles = percentiles_of(std::move(lengths));
  return summary;
}

std::string describe(const DatasetSummary& summary) {
  const RowCounts& counts = summary.counts;
  std::string out = fmt::format("rows      {}", summary.source_rows);
  if (counts.rows != summary.source_rows) out += fmt::format(", of which {} were read", counts.rows);
  std::vector<std::string> formats, lengths;
  for (size_t i = 0; i < summary.formats.size(); ++i)
    if (summary.formats[i] > 0)
      formats.push_back(fmt::format("{} {}", name_of(static_cast<RowFormat>(i)), summary.formats[i]));
  for (size_t i = 0; i < kPercents.size(); ++i)
    lengths.push_back(kPercents[i] == 100 ? fmt::format("longest {}", summary.percentiles[i])
                                          : fmt::format("p{} {}", kPercents[i], summary.percentiles[i]));
  const double share = counts.tokens > 0 ? 100.0 * static_cast<double>(counts.target_tokens) /
                                               static_cast<double>(counts.tokens)
                                         : 0;
  out += fmt::format("\nformats   {}\nresult    {}\n", formats.empty() ? "none" : join(formats),
                     counts.describe());
  out += fmt::format("tokens    {}, of which targets {} ({:.1f} %)\n", counts.tokens, counts.target_tokens,
                     share);
  out += fmt::format("length    {} tokens\n", join(lengths));
  return out;
}

}  // namespace temper::data
