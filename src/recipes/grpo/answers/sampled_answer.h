#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "data/rows/token_columns.h"
#include "recipes/grpo/prompts.h"

namespace temper::recipes {

// Tokens that the model saw one after another: a prompt, and behind it what was sampled and what an
// environment said between. All lists but the prompt's and the experts' have one entry for each of `ids`.
struct Passage {
  std::vector<int32_t> prompt = {}, ids = {};
  std::vector<uint8_t> sampled = {};  // 1: by the model
  // 0 of an environment's tokens. Advantages only where they differ from token to token: else the sample's.
  data::TokenColumns columns = {};
  std::vector<uint64_t> versions = {};  // of the weights that sampled: how many updates they had had
  // Of all tokens but the last, prompt first: the experts that each took, router after router. None: no
  // update needs them.
  std::vector<int32_t> experts = {};
  float value_behind = 0;  // what a critic expects behind the last sampled token

  int64_t count_sampled() const;
};

// An answer to a prompt of a rollout, as it is sampled, judged and learned from.
struct SampledAnswer {
  int64_t rollout = 0;  // counted from 0
  int64_t group = 0;    // the prompt's place among those of the rollout
  int64_t number = 0;   // of the answer among those to the prompt
  int64_t row = 0;      // of the prompt, in the mixture

  // One, unless the chat template writes earlier turns otherwise when more follow: then each form that the
  // model saw is learned from as it was.
  std::vector<Passage> passages = {};
  std::string finish = {}, text = {};  // of the last turn: "stop", "length" or "context"
  int64_t turns = 1;

  double reward = std::numeric_limits<double>::quiet_NaN();  // NaN: it could not be judged
  std::vector<double> parts = {};                            // of each reward
  std::string error = {};                                    // why it could not be
  double advantage = 0;
  bool scored = false;  // what is known when learning begins was there already (rollouts.jsonl)

  bool is_truncated() const { return finish == "length" || finish == "context"; }
  int64_t count_sampled() const;  // tokens
};

// As rollouts.jsonl has it, and back; without advantages and what is known when learning begins. `key` is a
// hash of what the answer depends on.
Json to_json(const SampledAnswer& sample, const Prompt& prompt, const std::vector<std::string>& reward_names,
             const std::string& key);
SampledAnswer sample_from(const Json& line);
// What is known when learning begins.
Json scores_to_json(const SampledAnswer& sample);
void take_scores(const Json& line, SampledAnswer& sample);

}  // namespace temper::recipes
