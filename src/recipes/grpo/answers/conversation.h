#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/rows/row.h"
#include "recipes/grpo/answers/sampled_answer.h"
#include "recipes/grpo/key_groups.h"
#include "recipes/grpo/prompts.h"
#include "rewards/reward_sum.h"
#include "rollout/requests/request.h"

namespace temper::recipes {

// An answer that is wanted.
struct Asked {
  const Prompt* prompt;
  int64_t group = 0, number = 0;
  uint64_t seed = 0;
};

// An answer on its way, turn by turn: the engine samples a turn, rewards judge it, and an environment may
// continue with messages of its own.
class Conversation {
 public:
  // `asked` must outlive it.
  Conversation(const Asked& asked, int64_t rollout);

  const Asked& asked() const { return *asked_; }
  bool is_chat() const { return is_chat_; }  // the prompt is one of messages
  std::string place() const;                 // "prompts.jsonl:12, sample 3", for messages
  std::vector<int32_t> ids() const;          // what the model has seen, which the next turn continues
  const SampledAnswer& sample() const { return sample_; }
  SampledAnswer take_sample() { return std::move(sample_); }

  // A turn that was sampled by weights of these versions, one of each token (Passage::versions).
  void add_turn(const rollout::Completion& turn, const std::vector<uint64_t>& versions);
  // The last turn as rewards read it; it refers to the prompt.
  rewards::Sample to_judge() const;
  // Adds what the last turn is worth. Returns the messages with which the environment continues; null: the
  // answer is over. One that cannot be judged is an Error or has no reward, as `on_error` says.
  Json add_verdict(rewards::RewardSum::Judged judged, FilterKeys::OnRewardError on_error);
  // Continues with the messages of an environment: the tokens that were sampled stay; what the environment
  // says, and what the template writes around it, goes behind them. Where the template writes earlier turns
  // otherwise now, another passage begins. False: there is no room for a turn more, so the answer is over.
  bool extend(const Json& said, const data::RowEncoder& encoder, const tokenizers::Tokenizer& tokenizer,
              int64_t max_length);

 private:
  Passage& passage() { return sample_.passages.back(); }

  const Asked* asked_;
  SampledAnswer sample_;
  Json::Array messages_;  // so far, of a conversation
  std::string text_;      // that the model has seen, of a conversation
  bool is_chat_ = false;
};

}  // namespace temper::recipes
