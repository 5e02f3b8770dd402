#pragma once
#include <string>
#include <vector>

#include "recipes/grpo/answers/answer_record.h"
#include "recipes/grpo/held_out_prompts.h"
#include "recipes/grpo/rollout_sums.h"
#include "recipes/grpo/rollout_updates.h"
#include "recipes/grpo/sampler.h"
#include "recipes/grpo/scorer.h"

namespace temper::recipes {

// The updates of recipe grpo: a rollout by the weights as they are, then as many updates as share its
// answers. Which prompts are asked when, and what a resumed run takes over; AnswerSharing says which rank
// does what.
class GrpoBatches : public BatchSource {
 public:
  explicit GrpoBatches(const BatchInputs& inputs);

  data::Batch next() override;
  Json state() const override;
  void restore(const Json& state, bool mended) override;
  Json counts() const override;
  std::string describe_counts() const override;
  void add_metrics(Json::Object& values, reports::TensorBoardWriter::Scalars& scalars) const override;
  std::optional<Judged> evaluate() override;
  void end() override { sampler_.end(); }
  Critic* critic() override { return scorer_.critic(); }

 private:
  static std::string settings_of(const BatchInputs& inputs);
  const GrpoKeys& keys() const { return grpo_keys(config_); }
  collectives::Group& learners() const { return sampler_.sharing().learners(); }

  void begin_rollout();
  void open_record(bool takes_over);
  void run_rollout();
  GroupSelection sample(std::vector<SampledAnswer>& samples);
  void learn_from(const GroupSelection& selection, std::vector<SampledAnswer> samples);
  bool all_are_scored() const;
  void warn_of_nothing_learned();

  const RunSetup& setup_;
  const RunConfig& config_;
  Prompts prompts_;
  Sampler sampler_;
  AnswerRecord record_;
  HeldOutPrompts held_out_;
  Scorer scorer_;

  int64_t next_rollout_ = 0;
  int64_t update_;           // of the rollout before it, that comes next; all are done: a rollout is next
  Json begun_at_;            // the prompts' state before that rollout
  bool was_scored_ = false;  // its scores were in the files already
  bool said_alike_ = false;  // that rewards teach nothing
  RolloutUpdates updates_;
  RolloutReport report_;
  CriticReport critic_report_;
};

}  // namespace temper::recipes
