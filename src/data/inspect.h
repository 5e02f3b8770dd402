#pragma once
#include <array>
#include <string>
#include <vector>

#include "data/batches.h"

namespace temper::data {

// The row's tokens, each followed by "|". Targets are green and the rest dim with color, else each run of
// targets stands between "[[" and "]]". Control characters are spelled out (\n; base/shown.h), and the line
// ends where the text's line does. Examples of one row stand under each other, with what they are.
std::string describe_row(const EncodedRow& row, const Tokenizer& tokenizer, bool color);

// A row by its place in its file.
struct Mention {
  std::string place;
  std::string what;  // why it was dropped
  int64_t tokens = 0;
};

// What a data set holds and what a run would make of it.
struct DatasetSummary {
  struct Source {
    std::string name;
    RowCounts counts;
    std::array<int64_t, kNumFormats> formats{};  // good rows by RowFormat
  };
  std::vector<Source> sources;
  std::array<int64_t, 5> percentiles{};  // tokens per row before max_length: 50, 90, 95, 99, 100 %
  std::vector<int64_t> lengths;          // rows of [0, 1), [1, 2), [2, 4), [4, 8) … tokens
  std::vector<Mention> longest;          // the ten longest, the longest first
  std::vector<Mention> dropped;          // the first ten
  std::vector<std::pair<std::string, int64_t>> reasons;  // why rows were dropped, without numbers: how many
  int64_t num_dropped = 0;
  // One epoch in the order of training.
  int64_t packed_rows = 0, packed_tokens = 0, packed_documents = 0, max_length = 0;

  RowCounts counts() const;
  double filled() const;  // part of the packed rows' room that tokens fill; 0 without rows or max_length
};

// Reads all rows.
DatasetSummary summarize(const Mixture& mixture, const LoaderOptions& options);
std::string describe(const DatasetSummary& summary);

// What the first rows of each source are, before all are read: "chats.jsonl: 1200 rows of messages".
std::string describe_formats(const Mixture& mixture);

// The unused fields of the first rows of each source, with the number of rows that have them; nothing where
// there is none: "chats.jsonl: id (64), messages[].name (3)".
std::string describe_unused(const Mixture& mixture);

}  // namespace temper::data
