#pragma once
#include <memory>
#include <string>
#include <vector>

#include "recipes/grpo/answers/answer_record.h"
#include "recipes/grpo/answers/answer_sharing.h"
#include "recipes/grpo/answers/answers.h"
#include "recipes/grpo/grpo_keys.h"
#include "recipes/grpo/held_out_prompts.h"
#include "recipes/grpo/rollout_sums.h"
#include "training/rollout_turn.h"

namespace temper::recipes {

// Some groups of a rollout.
struct AskedGroups {
  int64_t first_group = 0;
  std::vector<Prompt> prompts = {};         // of the groups from `first_group` on
  std::vector<SampledAnswer> samples = {};  // that this rank learns from, group after group
  std::vector<double> rewards = {};         // of all ranks' samples, group after group; NaN of one without
};

// Asks the engine and the rewards with the weights as they are, on the ranks that answer, and brings the
// answers to the ranks that learn from them.
class Sampler {
 public:
  // An Error where the model has not what the keys ask for.
  explicit Sampler(const BatchInputs& inputs);

  // Between begin_turn() and end_turn() what only updates need sleeps; after that, what only rollouts need.
  struct Turn {
    training::RolloutTurn memory;
    double syncing = 0;  // seconds until it had begun
  };
  Turn begin_turn();
  TurnCosts end_turn(Turn& turn);

  // Answers to all prompts of `groups`, in a turn: from the record, or sampled, and then recorded. Sums are
  // added to `report`.
  void ask(int64_t rollout, AskedGroups& groups, AnswerRecord& record, RolloutReport& report);
  // Greedy answers to held-out prompts, in a turn of their own. `report` has the sums of all ranks.
  RolloutReport ask_held_out(const HeldOutPrompts& held_out);

  // Whether an answer has the same bits whatever is computed at the same time.
  bool repeats() const { return answers_.repeats(); }
  const AnswerSharing& sharing() const { return sharing_; }
  const std::vector<std::string>& reward_names() const { return answers_.reward_names(); }
  layers::ParameterStore& trained() const { return trained_; }
  void end() { answers_.rest(true); }  // no rollout follows

 private:
  bool sleeps(training::UpdateState state) const;
  uint64_t seed_of(int64_t rollout, int64_t group, int64_t number) const;
  Answers::Options options_of(int64_t rollout) const;
  std::vector<Asked> take_from_record(int64_t rollout, AskedGroups& groups, AnswerRecord& record) const;
  std::vector<double> rewards_of_all(const AskedGroups& groups) const;

  const RunSetup& setup_;
  const GrpoKeys& keys_;
  const DataSets& data_;
  const uint64_t seed_;
  layers::ParameterStore& trained_;
  const std::unique_ptr<RolloutModel> apart_;  // null: rollouts use the weights that are trained
  const AnswerSharing sharing_;
  Answers answers_;
};

}  // namespace temper::recipes
