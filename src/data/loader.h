#pragma once
#include <future>
#include <optional>

#include "data/batches.h"

namespace temper::data {

// Batches for training or, with shuffle off and one epoch, for evaluation; with prefetch the next one is made
// in the background while the caller works. state() and counts() are those after the last batch that next()
// gave. Source and encoder must outlive it; calls come from one thread. Errors as of BatchMaker.
class Loader {
 public:
  Loader(const Source& source, const RowEncoder& encoder, LoaderOptions options);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  std::optional<Batch> next();
  const Json& state() const { return after_.state; }
  const RowCounts& counts() const { return after_.counts; }
  void restore(const Json& state);

 private:
  struct Snapshot {
    Json state;
    RowCounts counts;
  };
  struct Made {
    std::optional<Batch> batch;
    Snapshot after;
  };
  Made make();
  Snapshot snapshot() const { return {maker_.state(), maker_.counts()}; }

  BatchMaker maker_;
  bool prefetch_;
  Snapshot after_;
  std::future<Made> ahead_;  // last: its destructor waits for the thread that uses maker_
};

}  // namespace temper::data
