#pragma once
#include <map>
#include <string>

#include "data/chat/losses.h"
#include "data/rows/row.h"
#include "data/sources/source.h"

namespace temper::data {

enum class OnBadRow {
  kStop,
  kSkip,   // and say so
  kCount,  // and say nothing
};

// A row of a source, or why there is none: `error` is not empty for a bad row.
struct ReadRow {
  EncodedRow row;
  std::string error;
  PlaceOf place = {};  // of rows with something to report; the source must still exist
  bool kept() const { return error.empty() && row.status == RowStatus::kKept; }
};

// Never throws for what the row holds.
ReadRow read_row(const Source& source, const RowEncoder& encoder, int64_t index);

// Of kept rows, what they lost or how they were changed.
struct ChangedRows {
  int64_t truncated = 0, split = 0;
  int64_t tokens_cut = 0;                     // by truncation or for want of a target
  int64_t incomplete = 0, bytes_dropped = 0;  // rows with bytes that the tokenizer has no token for
  int64_t empty_turns = 0;                    // empty answers that are not trained on

  void add(const EncodedRow& row);
  std::string describe() const;  // "2 truncated, 1 split", or nothing
};

// Rows that were not kept.
struct DroppedRows {
  int64_t too_long = 0, no_targets = 0, empty = 0, bad = 0;

  void add(RowStatus status);
  std::string describe() const;  // "dropped 1 too long, 1 bad", or nothing
};

// What became of rows.
struct RowCounts {
  int64_t trained = 0;  // rows that batches had, each time; others wait to be packed
  int64_t rows = 0, kept = 0;
  int64_t tokens = 0, target_tokens = 0;  // of kept rows
  ChangedRows changed;
  DroppedRows dropped;
  std::map<std::string, int64_t> unused;  // rows with an unused field, by its name
  std::map<std::string, int64_t> lost;    // rows whose text lacks something that they say, by what it is

  // Counts the row. A bad one is an Error under kStop; under kSkip the first few are logged. Unless under
  // kCount, the first row that loses something is named.
  void add(const ReadRow& read, OnBadRow on_bad_row);
  // A row that was kept is bad after all: the pictures of this example cannot be decoded. It is counted with
  // its first example. As add() otherwise.
  void turn_bad(const Example& example, bool is_first, const std::string& error, OnBadRow on_bad_row);
  RowCounts& operator+=(const RowCounts& other);
  std::string describe() const;  // "kept 98 of 100 rows (2 truncated); dropped 1 too long, 1 bad"
  // After training on data with `available` rows: "trained 196 rows, of 100 in the data; of 202 that were
  // read: 4 truncated, dropped 1 too long".
  std::string describe_training(int64_t available) const;
  std::string describe_unused() const;  // "id (100), messages[].name (3)", or nothing
  std::string describe_lost() const;    // "the chat template leaves out tools (3 rows)", or nothing
  Json to_json() const;
  static RowCounts from_json(const Json& json);

 private:
  void count_bad(const std::string& error, OnBadRow on_bad_row, bool counts);
};

}  // namespace temper::data
