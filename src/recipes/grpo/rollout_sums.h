#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/group.h"
#include "recipes/grpo/answers/answers.h"
#include "reports/tensorboard.h"
#include "training/passes/step_result.h"

namespace temper::recipes {

// What answers were like: sums over them, of several ranks over those of all.
struct AnswerSums {
  double answers = 0, judged = 0, failed = 0, truncated = 0, turns = 0, tokens = 0;
  double reward = 0, squared_reward = 0;  // of those that were judged
  std::vector<double> parts;              // of each reward

  void add(const std::vector<SampledAnswer>& samples);
  double mean_reward() const { return judged == 0 ? 0 : reward / judged; }
  double reward_deviation() const;
};

// What it took to get them.
struct WorkSums {
  double sampled = 0, computed = 0, found = 0;  // tokens in this process: sampled, in passes, in the cache
  double generating = 0, judging = 0, syncing = 0;  // seconds; of the slowest rank

  void add(const Answers::Counts& counts);
};

// Of the time in which a rollout has the device.
struct TurnCosts {
  int64_t memory = 0;  // bytes of this rank's device in use at most
  double syncing = 0;  // seconds until it had the weights and the memory, and updates had theirs again
};

// What a rollout or an evaluation was like.
struct RolloutReport {
  AnswerSums answers;
  WorkSums work;
  int64_t groups = 0, groups_without_spread = 0, rounds = 0;  // of a rollout
  double scoring = 0;                                         // seconds
  int64_t memory = 0;  // bytes of this rank's device in use at most, while answers were sampled and judged

  void add(const TurnCosts& turn);
  void sum_over(collectives::Group& ranks);
  // "reward_mean" and the like, behind `key` in metrics.jsonl and `tag` in TensorBoard.
  void write(const std::vector<std::string>& reward_names, std::string_view key, std::string_view tag,
             Json::Object& values, reports::TensorBoardWriter::Scalars& scalars) const;
};

// What a critic's last update was like.
struct CriticReport {
  training::StepResult step;
  double explained_variance = 0;  // of the rollout's values, before updates

  void write(Json::Object& values, reports::TensorBoardWriter::Scalars& scalars) const;
};

}  // namespace temper::recipes
