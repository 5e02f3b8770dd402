#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/batch_pictures.h"
#include "data/rows/pack.h"
#include "data/sources/mixture.h"
#include "data/sources/order.h"
#include "data/sources/read_ahead.h"

namespace temper::data {

struct LoaderOptions {
  uint64_t seed = 0;
  bool shuffle = true;  // else the order of the files
  Mixing mixing = Mixing::kConcatenate;
  Packing packing = Packing::kBestFit;  // rows of up to max_length; else one document per row
  int64_t max_length = 0;               // tokens of a packed row
  int64_t pack_window = 256;            // rows being filled at a time
  int64_t rows_per_step = 0;            // exactly one of rows_per_step and tokens_per_step is above 0
  int64_t tokens_per_step = 0;          // as many rows as fit, at least one
  int64_t num_epochs = 1;               // 0: endless
  OnBadRow on_bad_row = OnBadRow::kStop;
  int64_t threads =
      1;  // that tokenize in the background; 0: none, the pool tokenizes when a batch is asked for
  // Makes pixels of the pictures of batches, on as many threads; null: rows have places of pictures alone.
  std::shared_ptr<const PictureLoader> pictures = {};
};

// The rows of one optimizer step. All steps are full but the very last: rows carry over into the next epoch.
struct Batch {
  std::vector<PackedRow> rows;
  int64_t tokens = 0;
  int64_t target_tokens = 0;
  int64_t epoch = 0;    // being read when the batch was full, from 0
  double progress = 0;  // epochs in the batches so far, for example 1.25; rows that wait to be packed are not
};

// Makes batches in the calling thread. The mixture must outlive it. After an Error only restore() may follow.
// Rows whose pictures cannot be decoded are bad rows that are found late: they leave their packed row.
// What it makes depends on the rows, their encoders and the options, not on the number of threads.
class BatchMaker {
 public:
  BatchMaker(const Mixture& mixture, const LoaderOptions& options);

  std::optional<Batch> next();  // nothing after the last epoch

  // The state after the last batch: small, and enough to go on exactly. Documents waiting to be packed are
  // written as row numbers and read again. Errors of restore: other data, another order, a broken state.
  // `mended`: a row stopped the run, and its file may have been rewritten since, with the same number of
  // rows.
  Json state() const;
  void restore(const Json& state, bool mended = false);
  RowCounts counts() const;                                                // of all sources
  const std::vector<RowCounts>& source_counts() const { return counts_; }  // of each

 private:
  bool step_is_full(const Batch& batch) const;
  std::vector<DocumentGroup> take_groups(const Batch& batch);
  void add_groups(Batch& batch, std::vector<DocumentGroup> groups);
  void leave_out(const BrokenDocument& broken);
  [[noreturn]] void fail_without_rows(std::string_view remedies) const;
  double progress() const;
  bool advance();  // by one row or to the next epoch; false at the end of the last
  void end_epoch();
  void blame_first(ReadAhead::Row& row) const;
  void add(int64_t row, EncodedRow encoded);
  Json order_settings() const;
  DocumentGroup read_group(const Json& documents) const;

  const Mixture* mixture_;
  LoaderOptions options_;
  ReadAhead rows_;
  Packer packer_;
  int64_t epoch_ = 0, kept_in_epoch_ = 0;
  bool cuts_targets_ = false;    // a row lost all of its targets to max_length
  int64_t broken_in_a_row_ = 0;  // documents left out for their pictures since the last that was not
  std::vector<RowCounts> counts_;
};

// From a sample of the rows, packed like an epoch.
double estimate_steps_per_epoch(const Mixture& mixture, const LoaderOptions& options);

}  // namespace temper::data
