#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "recipes/grpo/prompts.h"
#include "recipes/grpo/sampled_answer.h"
#include "recipes/setup/recipe_inputs.h"
#include "rewards/reward_sum.h"
#include "rollout/engine_of_ranks.h"

namespace temper::recipes {

// How the engine answers that number of prompts, where memory does not limit it.
rollout::EngineOptions engine_options(const RunConfig& config, int64_t answers);

// An answer that is wanted.
struct Asked {
  const Prompt* prompt;
  int64_t group = 0, number = 0;
  uint64_t seed = 0;
};

// Asks the model, with the weights that it has at the moment, and the rewards what its answers are worth.
// Tokens are generated while programs and servers judge; where an environment answers, the conversation
// continues.
class Answers {
 public:
  // `model` answers, with `adapter` or (null) by itself.
  Answers(const RunSetup& setup, const RunConfig& config, const layers::Decoder& model,
          const layers::Adapter* adapter);

  struct Options {
    ops::SamplingOptions sampling = {};
    double temperature = 1;  // of the log-probabilities
    int64_t rollout = 0;
    int64_t updates = 0;  // that the weights have had, which is their version in Passage::versions
  };
  struct Counts {
    int64_t tokens = 0;     // that were sampled
    int64_t computed = 0;   // of passes, prompts among them
    int64_t found = 0;      // of prompts, in the cache
    double generating = 0;  // seconds
    double judging = 0;     // seconds in which nothing else was left to do
  };
  // In the order of `asked`. `done` gets each as soon as it is judged. An answer that cannot be judged
  // is an Error or, where grpo.filter.on_reward_error says so, has none.
  //
  // Ranks that compute the model together ask at the same time, each for what it leads (leads()), and none
  // for more than `most_answers`, which all of them give alike.
  std::vector<SampledAnswer> ask(const data::Mixture& rows, const std::vector<Asked>& asked,
                                 int64_t most_answers, const Options& options,
                                 const std::function<void(const SampledAnswer&, size_t index)>& done);

  // Between rollouts the engine's memory serves others, its captured passes stay (Engine::sleep). It is given
  // back where `gives_back`, where several learners have engines by turns, and where memory does not sleep.
  void rest(bool gives_back);

  // Whether this rank asks and judges; where tensor ranks answer together, the first of them does.
  bool leads() const { return model_.ranks().is_first(); }
  const Counts& counts() const { return counts_; }  // of the last call
  const std::vector<std::string>& reward_names() const { return rewards_.names(); }
  // Whether an answer has the same bits whatever is computed at the same time.
  bool repeats() const;

 private:
  struct Talk;
  struct Job;
  rollout::Request request_like(const Options& options) const;
  void send(Job& job, size_t index) const;
  void fail_together(const std::optional<Error>& failure) const;
  void take_answer(Job& job, const rollout::Completion& answer);
  void take_verdict(Job& job, size_t index, rewards::RewardSum::Judged judged);
  void extend(Job& job, size_t index, const Json::Array& said) const;
  rollout::EngineOptions planned_options(int64_t answers) const;
  std::unique_ptr<rollout::EngineOfRanks> take_engine(int64_t answers, const Options& options);

  const RunSetup& setup_;
  const RunConfig& config_;
  const layers::Decoder& model_;
  const layers::Adapter* adapter_;
  rewards::RewardSum rewards_;
  std::unique_ptr<rollout::EngineOfRanks> engine_;  // from the first answers on; not behind an error
  int64_t most_running_ = 0;                        // of it
  Counts counts_;
};

}  // namespace temper::recipes
