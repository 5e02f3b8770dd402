#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "recipes/grpo/advantages.h"
#include "recipes/grpo/answers.h"
#include "recipes/grpo/grpo_keys.h"
#include "recipes/grpo/journal.h"
#include "recipes/grpo/rollout_sums.h"
#include "recipes/grpo/sample_rows.h"
#include "recipes/parts/critic.h"
#include "recipes/setup/rollout_model.h"
#include "training/rollout_turn.h"

namespace temper::recipes {

// The updates of recipe grpo: a rollout by the weights as they are, then as many updates as share its
// answers. Of several ranks each answers every so-many-th prompt, and learns from the answers to every
// so-many-th; ranks that divide the model's layers do so together, of which the first asks, judges and keeps
// the journal. Where rollouts divide the model otherwise, others answer than those that learn.
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
  void end() override { answers_.rest(true); }
  Critic* critic() override { return critic_.get(); }

 private:
  // Prompts in the groups that follow `first_group`, of all ranks, and this rank's samples of them.
  struct Round {
    int64_t first_group = 0;
    std::vector<Prompt> prompts;
    std::vector<SampledAnswer> samples;
    std::vector<double> rewards;  // of all ranks' samples, group after group
  };

  // That learn from other answers each, and that ask other prompts each.
  collectives::Group& ranks() const { return setup_.groups->data(); }
  collectives::Group& askers() const { return apart_ ? apart_->groups().data() : ranks(); }
  bool sleeps(training::UpdateState state) const { return std::ranges::count(keys_.engine.sleep, state) > 0; }
  bool is_own(int64_t group) const { return group % ranks().size() == ranks().rank(); }
  bool is_asked_here(int64_t group) const { return group % askers().size() == askers().rank(); }
  uint64_t seed_of(int64_t group, int64_t number) const;
  static std::string settings_of(const BatchInputs& inputs);
  std::string key_of(const Prompt& prompt) const;

  // grpo_batches.cpp
  void find_held_out();
  void begin_rollout();
  training::RolloutTurn begin_turn();
  int64_t end_turn(training::RolloutTurn& turn);
  void roll();
  void read_journal(int64_t rollout);
  Round ask(int64_t first_group, int64_t count);
  void take_from_journal(Round& round, std::vector<Asked>& asked);
  std::vector<double> rewards_of_all(const Round& round) const;
  void keep(Round& round);

  // sharing.cpp
  static std::unique_ptr<RolloutModel> rollouts_apart(const BatchInputs& inputs);
  int64_t most_answers(int64_t prompts) const;
  void share(std::vector<SampledAnswer>& samples,
             const std::function<const Prompt&(const SampledAnswer&)>& prompt_of) const;
  Answers::Counts counts_of_answers() const;
  void keep_scores();

  // learning.cpp
  void make_updates();
  void warn_of_nothing_learnt();
  void score();
  void take_scores(const std::vector<float>& scores, std::vector<float> Passage::*into, SampleRows& rows);
  void take_values(SampleRows& rows);
  bool is_trained(const SampledAnswer& sample) const;
  void set_advantages();

  const RunSetup& setup_;
  const RunConfig& config_;
  const GrpoKeys& keys_;
  const DataSets& data_;
  const layers::Adapter* adapter_;
  layers::ParameterStore& trained_;
  const std::string settings_;                 // that every answer depends on
  const std::unique_ptr<RolloutModel> apart_;  // null: rollouts use the weights that are trained
  Answers answers_;
  Prompts prompts_;
  std::vector<int64_t> held_out_;  // rows of data.eval that evaluations ask
  Journal journal_;
  std::shared_ptr<const models::Model> other_reference_;  // null: nobody asks, or it is the model itself
  std::unique_ptr<Critic> critic_;                        // null: the loss has none

  int64_t next_rollout_ = 0;
  int64_t rollout_ = 0;      // that the updates are of
  Json begun_at_;            // the prompts' state before it
  bool said_alike_ = false;  // that rewards teach nothing
  int64_t update_;           // of its updates, that comes next; all are done: a rollout does
  bool journal_is_read_ = false;
  // The rollout takes answers from the journal; and what is known of all that are learnt from when learning
  // begins.
  bool resumes_ = false, scored_ = false;
  std::vector<SampledAnswer> samples_;  // of the groups that are kept, of this rank
  std::vector<int64_t> groups_;         // that are kept, of all ranks
  std::vector<SampleRows> updates_;     // of one epoch over the rollout
  RolloutReport report_;
  CriticReport critic_report_;
};

}  // namespace temper::recipes
