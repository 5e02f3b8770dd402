#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "recipes/grpo/answers/answer_engine.h"
#include "recipes/grpo/answers/conversation.h"

namespace temper::recipes {

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

  void rest(bool gives_back) { engine_.rest(gives_back); }  // AnswerEngine::rest

  // Whether this rank asks and judges; where tensor ranks answer together, the first of them does.
  bool leads() const { return model_.ranks().is_first(); }
  const Counts& counts() const { return counts_; }  // of the last call
  const std::vector<std::string>& reward_names() const { return rewards_.names(); }
  // Whether an answer has the same bits whatever is computed at the same time.
  bool repeats() const;

 private:
  struct Job;
  void send(Job& job, size_t index) const;
  void fail_together(const std::optional<Error>& failure) const;
  void take_answer(Job& job, const rollout::Completion& answer);
  void take_verdict(Job& job, size_t index, rewards::RewardSum::Judged judged);

  const RunSetup& setup_;
  const RunConfig& config_;
  const layers::Decoder& model_;
  const layers::Adapter* adapter_;
  rewards::RewardSum rewards_;
  AnswerEngine engine_;
  Counts counts_;
};

}  // namespace temper::recipes
