#pragma once
#include "collectives/kept_errors.h"
#include "recipes/learner/learner_progress.h"
#include "recipes/parts/loss_watch.h"
#include "recipes/parts/router_report.h"
#include "reports/metrics.h"

namespace temper::recipes {

// The numbers of a learner's updates and evaluations, in metrics.jsonl and for TensorBoard. Rank 0 writes
// them while the other ranks continue; its errors wait in RunSetup::kept_errors.
class LearnerMetrics {
 public:
  explicit LearnerMetrics(const LearnerInputs& inputs) : inputs_(inputs) {}  // which must outlive it

  // All ranks call it. Where the run resumes, the files continue after its step, else they begin.
  void open(const LearnerProgress& progress, bool resumed);
  // With warnings of experts without tokens and of losses that grow. `peak_flops`: of one rank, a second; 0:
  // not known.
  void write(const UpdateReport& report, double peak_flops);
  // Of an evaluation after the update `step`.
  void note(int64_t step, const Json::Object& values, const reports::TensorBoardWriter::Scalars& scalars);
  void sync();  // metrics.jsonl, to the device
  void close(const collectives::Root& root);

 private:
  void warn(const UpdateReport& report);

  const LearnerInputs& inputs_;
  IdleExperts idle_experts_;
  LossWatch loss_watch_;
  collectives::OfRoot<reports::MetricsWriter> metrics_;
  collectives::OfRoot<reports::TensorBoardWriter> events_;
};

// The loss of an evaluation, and what else its result contains.
BatchSource::Judged evaluation_by_loss(const training::EvalResult& result, const data::Mixture& rows,
                                       bool is_perplexity);

}  // namespace temper::recipes
