#pragma once
#include <optional>
#include <string>

#include "base/json/json.h"
#include "data/batches.h"
#include "reports/tensorboard.h"

namespace temper::recipes {

class Critic;

// Where the rows of a learner's updates come from. All ranks call the same functions; each gets its own rows.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Of the next update. An Error leaves everything as it was before.
  virtual data::Batch next() = 0;
  // Small, and enough to go on exactly after the last batch; of rank 0. `mended`: a row stopped the run, and
  // its file may have been rewritten since.
  virtual Json state() const = 0;
  virtual void restore(const Json& state, bool mended) = 0;

  virtual double seconds_waited() const { return 0; }  // for data, in all
  virtual Json counts() const = 0;                     // of what was read, for the run's summary
  virtual std::string describe_counts() const = 0;     // the same for people

  // Metrics of the last batch, without the losses.
  virtual void add_metrics(Json::Object& values, reports::TensorBoardWriter::Scalars& scalars) const {
    static_cast<void>(values);
    static_cast<void>(scalars);
  }
  // An evaluation that is not a loss over rows: what answers to the held-out rows are worth.
  struct Judged {
    double value = 0;  // the higher, the better
    std::string text;  // "reward 0.81 of 64 answers"
    Json::Object values;
    reports::TensorBoardWriter::Scalars scalars;
  };
  virtual std::optional<Judged> evaluate() { return std::nullopt; }
  // No update follows: gives back what it keeps for the next one.
  virtual void end() {}
  // What it trains with the batches, and is saved with the learner: read from a checkpoint before restore().
  virtual Critic* critic() { return nullptr; }
};

}  // namespace temper::recipes
