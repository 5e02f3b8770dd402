// What an inspection prints.
#include <algorithm>

#include "base/error.h"
#include "base/shown.h"
#include "base/text.h"
#include "data/inspect.h"

namespace temper::data {
namespace {

constexpr std::string_view kGreen = "\x1b[32m", kDim = "\x1b[2m", kReset = "\x1b[0m";
constexpr int64_t kBarWidth = 40;
constexpr int64_t kProbedRows = 64;  // of a source, to tell its formats

std::string tokens_of(const Example& example, const Tokenizer& tokenizer, bool color) {
  const std::string_view open = color ? kGreen : "[[", close = color ? kReset : "]]";
  std::string out;
  for (size_t i = 0; i < example.ids.size(); ++i) {
    const bool target = example.loss_mask[i];
    const bool begins = i == 0 || example.loss_mask[i - 1] != example.loss_mask[i];
    const bool ends = i + 1 == example.ids.size() || example.loss_mask[i + 1] != example.loss_mask[i];
    if (begins) out += target ? open : color ? kDim : "";
    const std::string text = shown(tokenizer.token_text(example.ids[i]));
    out += (text.empty() ? fmt::format("<id {}>", example.ids[i]) : text) + "|";
    if (ends) out += target ? close : color ? kReset : "";
    if (tokenizer.token_bytes(example.ids[i]).ends_with('\n')) out += '\n';
  }
  if (!out.ends_with('\n')) out += '\n';
  return out;
}

std::string heading(const EncodedRow& row, size_t example) {
  if (row.examples.size() < 2) return "";
  if (row.format == RowFormat::kPreference) return example == 0 ? "chosen:\n" : "rejected:\n";
  return fmt::format("piece {} of {}:\n", example + 1, row.examples.size());
}

std::string formats_of(const std::array<int64_t, kNumFormats>& formats) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < formats.size(); ++i)
    if (formats[i] > 0) parts.push_back(fmt::format("{} {}", formats[i], name_of(static_cast<RowFormat>(i))));
  return parts.empty() ? "no good rows" : join(parts);
}

std::string histogram(const std::vector<int64_t>& lengths) {
  std::string out;
  const int64_t most =
      lengths.empty() ? 1 : std::max<int64_t>(1, *std::max_element(lengths.begin(), lengths.end()));
  size_t first = 0;
  while (first < lengths.size() && lengths[first] == 0) ++first;
  for (size_t i = first; i < lengths.size(); ++i) {
    const int64_t low = i == 0 ? 0 : int64_t{1} << (i - 1), high = i == 0 ? 0 : (int64_t{1} << i) - 1;
    const auto bar = static_cast<size_t>((lengths[i] * kBarWidth + most - 1) / most);
    out +=
        fmt::format("  {:>7} to {:<7} {:<{}} {}\n", low, high, std::string(bar, '#'), kBarWidth, lengths[i]);
  }
  return out;
}

double percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string sources_table(const DatasetSummary& summary) {
  const RowCounts all = summary.counts();
  std::string out;
  for (const DatasetSummary::Source& source : summary.sources)
    out +=
        fmt::format("  {}: {}, {} tokens ({:.1f} %), {} targets; {}\n", source.name, source.counts.describe(),
                    source.counts.tokens, percent(source.counts.tokens, all.tokens),
                    source.counts.target_tokens, formats_of(source.formats));
  for (const DatasetSummary::Source& source : summary.sources)
    if (!source.counts.unused.empty())
      out += fmt::format("  {}: unused fields, and the rows with them: {}\n", source.name,
                         source.counts.describe_unused());
  for (const DatasetSummary::Source& source : summary.sources)
    if (!source.counts.lost.empty())
      out += fmt::format("  {}: {}\n", source.name, source.counts.describe_lost());
  return out;
}

}  // namespace

std::string describe_row(const EncodedRow& row, const Tokenizer& tokenizer, bool color) {
  std::string out;
  int64_t targets = 0;
  for (size_t i = 0; i < row.examples.size(); ++i) {
    out += heading(row, i) + tokens_of(row.examples[i], tokenizer, color);
    targets += row.examples[i].num_targets();
  }
  std::string about =
      fmt::format("{}: {} tokens, {} targets", name_of(row.format), row.num_tokens(), targets);
  if (row.status == RowStatus::kTooLong)
    about += fmt::format("; dropped because it has {} tokens, more than data.max_length", row.full_length);
  if (row.status == RowStatus::kNoTargets)
    about += fmt::format("; dropped, none of its {} tokens is a target", row.full_length);
  if (row.status == RowStatus::kEmptyAnswer)
    about += "; dropped, its answer is empty (data.on_empty_answer: learn keeps it)";
  if (row.status == RowStatus::kKept && row.tokens_cut > 0)
    about += fmt::format(", {} of {} cut off", row.tokens_cut, row.full_length);
  if (row.bytes_dropped > 0)
    about += fmt::format("; {} bytes left out, as the tokenizer has no token for them", row.bytes_dropped);
  for (const auto* lines : {&row.lost, &row.notes})
    if (!lines->empty()) about += "; " + join(*lines, "; ");
  if (!row.unused.empty()) about += "; unused fields: " + list_some(row.unused, ", ", 20);
  return out + shown(about) + "\n";
}

std::string describe(const DatasetSummary& summary) {
  const RowCounts all = summary.counts();
  const auto& p = summary.percentiles;
  std::string out =
      fmt::format("{}\n{} tokens, {} targets ({:.1f} %)\nsources:\n{}", all.describe(), all.tokens,
                  all.target_tokens, percent(all.target_tokens, all.tokens), sources_table(summary));
  out += fmt::format(
      "tokens per row: 50 % up to {}, 90 % up to {}, 95 % up to {}, 99 % up to {}, the longest {}\n{}", p[0],
      p[1], p[2], p[3], p[4], histogram(summary.lengths));
  if (summary.packed_rows > 0) {
    out += fmt::format("an epoch: {} documents in {} rows", summary.packed_documents, summary.packed_rows);
    if (summary.max_length > 0)
      out += fmt::format(" of up to {} tokens, {:.1f} % filled", summary.max_length, 100 * summary.filled());
    out += "\n";
  }
  if (!summary.longest.empty()) out += "longest rows:\n";
  for (const Mention& row : summary.longest) out += fmt::format("  {} tokens: {}\n", row.tokens, row.place);
  if (summary.num_dropped > 1) out += "dropped rows by reason:\n";
  for (const auto& [reason, count] : summary.reasons)
    if (summary.num_dropped > 1) out += fmt::format("  {}: {}\n", count, reason);
  if (!summary.dropped.empty()) out += "dropped rows:\n";
  for (const Mention& row : summary.dropped)
    out += row.what.starts_with('[') ? fmt::format("  {}\n", row.what)
                                     : fmt::format("  [{}] {}\n", row.place, row.what);
  if (const auto more = summary.num_dropped - static_cast<int64_t>(summary.dropped.size()); more > 0)
    out += fmt::format("  and {} more\n", more);
  return out;
}

std::string describe_unused(const Mixture& mixture) {
  std::vector<std::string> sources;
  for (const Member& member : mixture.members()) {
    RowCounts counts;
    for (int64_t i = 0; i < std::min(member.size(), kProbedRows); ++i) {
      try {
        count_names(counts.unused, member.encoder->unused_of(member.source->row(member.row(i))));
      } catch (const Error&) {  // reported when the row is read
      }
    }
    if (!counts.unused.empty())
      sources.push_back(fmt::format("{}: {}", member.name, counts.describe_unused()));
  }
  if (sources.empty()) return "";
  return fmt::format("unused fields (in the first {} rows): {}", kProbedRows, join(sources, "; "));
}

std::string describe_formats(const Mixture& mixture) {
  std::string out;
  for (const Member& member : mixture.members()) {
    std::array<int64_t, kNumFormats> formats{};
    int64_t bad = 0;
    for (int64_t i = 0; i < std::min(member.size(), kProbedRows); ++i) {
      try {
        ++formats[static_cast<size_t>(member.encoder->format_of(member.source->row(member.row(i))))];
      } catch (const Error&) {
        ++bad;
      }
    }
    std::vector<std::string> names;
    for (size_t i = 0; i < formats.size(); ++i)
      if (formats[i] > 0) names.emplace_back(name_of(static_cast<RowFormat>(i)));
    if (bad > 0) names.emplace_back("unknown fields");
    out += fmt::format("{}{}: {} rows of {}", out.empty() ? "" : "; ", member.name, member.size(),
                       join(names, " and "));
  }
  return out;
}

}  // namespace temper::data
