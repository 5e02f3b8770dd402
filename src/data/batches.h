#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "data/pack.h"
#include "data/reader.h"
#include "data/shuffle.h"

namespace temper::data {

struct LoaderOptions {
  uint64_t seed = 0;
  bool shuffle = true;          // else the order of the files
  bool packing = true;          // rows of up to the encoder's max_length; else one document per row
  int64_t pack_window = 64;     // rows being filled at a time
  int64_t rows_per_step = 0;    // exactly one of rows_per_step and tokens_per_step is above 0
  int64_t tokens_per_step = 0;  // as many rows as fit, at least one
  int64_t num_epochs = 1;       // 0: endless
  OnBadRow on_bad_row = OnBadRow::kStop;
  bool prefetch = true;  // make the next batch in the background, on one thread; else on the pool
};

// The rows of one optimizer step. All steps are full but the very last: rows carry over into the next epoch.
struct Batch {
  std::vector<PackedRow> rows;
  int64_t tokens = 0;
  int64_t target_tokens = 0;
  int64_t epoch = 0;    // being read when the batch was full, from 0
  double progress = 0;  // epochs read, for example 1.25
};

// Makes batches in the calling thread. Source and encoder must outlive it. After an Error only restore() may
// follow. What it makes depends on the rows, the encoder and the options, not on the number of threads.
class BatchMaker {
 public:
  BatchMaker(const Source& source, const RowEncoder& encoder, LoaderOptions options);

  std::optional<Batch> next();  // nothing after the last epoch

  // The state after the last batch: small, and enough to go on exactly. Documents waiting to be packed are
  // written as row numbers and read again. Errors of restore: other data, another order, a broken state.
  Json state() const;
  void restore(const Json& state);
  const RowCounts& counts() const { return counts_; }

 private:
  bool step_is_full() const;
  bool advance();  // by one row or to the next epoch; false at the end of the last
  void end_epoch();
  void start_epoch(int64_t epoch);
  ReadRow take_row();
  Json order_settings() const;
  DocumentGroup read_group(const Json& rows) const;

  const Source* source_;
  const RowEncoder* encoder_;
  LoaderOptions options_;
  Packer packer_;
  EpochOrder order_;
  int64_t epoch_ = 0, position_ = 0, kept_in_epoch_ = 0;
  RowCounts counts_;
  std::vector<ReadRow> ahead_;  // read, not used yet: the rows up to ahead_end_ of this epoch
  int64_t ahead_end_ = 0;
};

// From a sample of the rows, packed like an epoch.
double estimate_steps_per_epoch(const Source& source, const RowEncoder& encoder,
                                const LoaderOptions& options);

}  // namespace temper::data
