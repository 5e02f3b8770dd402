#pragma once
#include <functional>
#include <vector>

#include "recipes/grpo/answers/answer_record.h"
#include "recipes/grpo/answers/answers.h"
#include "recipes/setup/rollout_model.h"

namespace temper::recipes {

// Which ranks ask which groups of a rollout, which learn from them, and how answers come from the first to
// the second. Of several ranks each asks every n-th group, and learns from every n-th; ranks that divide the
// model's layers do so together, and the first of them asks, judges and writes the files. Ranks that divide
// rows between them ask each for itself, and learn together. Where rollouts divide the model in another way
// than training (`apart`), other ranks ask than those that learn.
class AnswerSharing {
 public:
  // Both outlive it. `apart`: null where rollouts use the weights that are trained.
  AnswerSharing(const RunSetup& setup, const RolloutModel* apart) : setup_(setup), apart_(apart) {}

  // The ranks of which each learns from other groups, and those of which each asks other groups: context
  // ranks learn from the same ones together.
  collectives::Group& learners() const { return setup_.groups->rows(); }
  collectives::Group& askers() const { return (apart_ ? apart_->groups() : *setup_.groups).data(); }
  bool is_learned_here(int64_t group) const { return group % learners().size() == learners().rank(); }
  int64_t first_asked_here() const;  // then every askers().size()-th
  bool is_asked_here(int64_t group) const { return group % askers().size() == first_asked_here(); }
  bool leads() const;                             // whether this rank asks, judges and writes
  int64_t most_asked_here(int64_t groups) const;  // the largest number of that many groups that one rank asks

  // From the answers that this rank asked for, or read, to those of the groups that it learns from. All ranks
  // call it. `prompt_of` has the prompt of each, `reward_names` those of SampledAnswer::parts.
  void share(std::vector<SampledAnswer>& samples, const std::vector<std::string>& reward_names,
             const std::function<const Prompt&(const SampledAnswer&)>& prompt_of) const;
  // Writes the scores of the answers that this rank learns from (SampledAnswer::scored: those are there) to
  // the files of the ranks that asked. All ranks call it; errors are kept (RunSetup::kept_errors).
  void write_scores(const std::vector<SampledAnswer>& samples, AnswerRecord& record) const;
  // Counts of this rank's engine as learners add them up: with `apart`, the first learner has those of all.
  Answers::Counts counts(Answers::Counts own) const;

 private:
  const RunSetup& setup_;
  const RolloutModel* apart_;
};

}  // namespace temper::recipes
