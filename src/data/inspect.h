#pragma once
#include <array>
#include <string>

#include "data/reader.h"

namespace temper::data {

// The row's tokens, each followed by "|". Targets are green and the rest dim with color, else each run of
// targets stands between "[[" and "]]". Control characters are spelled out (\n), and the line ends where the
// text's line does.
std::string describe_row(const Example& example, const Tokenizer& tokenizer, bool color);

// What a data set holds.
struct DatasetSummary {
  int64_t source_rows = 0;  // of which `counts.rows` were read
  RowCounts counts;
  std::array<int64_t, 3> formats{};      // good rows by RowFormat
  std::array<int64_t, 5> percentiles{};  // tokens per row before truncation: 50, 90, 95, 99, 100 %
};

// Reads all rows, or at most `max_rows` (> 0) of them evenly spread.
DatasetSummary summarize(const Source& source, const RowEncoder& encoder, OnBadRow on_bad_row,
                         int64_t max_rows = 0);
std::string describe(const DatasetSummary& summary);  // a few lines

}  // namespace temper::data
