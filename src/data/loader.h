#pragma once
#include <future>
#include <optional>

#include "data/batches.h"

namespace temper::data {

// Batches for training or, with shuffle off and one epoch, for evaluation. With threads the next batch is
// made in the background while the caller works. state() and counts() are those after the last batch that
// next() gave. The mixture must outlive it; calls come from one thread. Errors as of BatchMaker.
class Loader {
 public:
  Loader(const Mixture& mixture, const LoaderOptions& options);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  std::optional<Batch> next();
  const Json& state() const { return after_.state; }
  const std::vector<RowCounts>& source_counts() const { return after_.counts; }
  RowCounts counts() const;
  double seconds_waited() const { return waited_; }  // that next() kept the caller waiting, in all
  void restore(const Json& state, bool mended = false);

 private:
  struct Snapshot {
    Json state;
    std::vector<RowCounts> counts;
  };
  struct Made {
    std::optional<Batch> batch;
    Snapshot after;
  };
  Made make();
  Snapshot snapshot() const { return {maker_.state(), maker_.source_counts()}; }

  BatchMaker maker_;
  bool background_;
  double waited_ = 0;
  Snapshot after_;
  std::future<Made> ahead_;  // last: its destructor waits for the thread that uses maker_
};

}  // namespace temper::data
