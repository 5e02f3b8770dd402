#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/rows/token_columns.h"
#include "layers/adapter.h"
#include "ops/sample/sampler.h"

namespace temper::rollout {

// What an engine is asked for: tokens behind a prompt. Its answer depends on the request alone where kernels
// are batch-invariant: random numbers are keyed by its seed and the position in its text.
struct Request {
  std::vector<int32_t> prompt;
  ops::SamplingOptions sampling = {};
  int64_t max_new_tokens = 512;
  std::vector<int32_t> stop_ids = {};
  // Of the answer's text, or names of special tokens, which end it by their ids: the engine needs a
  // tokenizer.
  std::vector<std::string> stop_strings = {};
  bool skip_special_tokens = false;          // in the answer's text
  const layers::Adapter* adapter = nullptr;  // null: the model alone
  // What logits are divided by before log-probabilities are taken: the temperature of the policy that
  // training computes. Neither penalty nor top-k, top-p or min-p changes them. 0: they are not wanted.
  double log_prob_temperature = 1;
  // Tokens of the answer that are taken in turn instead of what would be sampled, so that their
  // log-probabilities are known; what follows them is sampled. All in the vocabulary.
  std::vector<int32_t> forced = {};
  bool record_experts =
      false;  // which experts each token took; such a request takes no prefix from the cache
};

enum class Finish {
  kStopToken,   // the last of ids
  kStopString,  // its last character came with the last of ids
  kLength,      // max_new_tokens
  kContext,     // the end of the model's context
  kCancelled,   // Engine::cancel
  kFailed       // the model's logits were no distribution
};

struct Completion {
  int64_t id = 0;                               // as Engine::add gave it
  std::vector<int32_t> ids = {};                // what was sampled, the stop token, too
  data::TokenColumns columns = {};              // of each, its rollout_log_probs and kept
  std::vector<uint64_t> versions = {};          // of the model's weights that each was sampled by
  std::vector<uint64_t> adapter_versions = {};  // of the adapter's; none without one
  Finish finish = Finish::kLength;
  std::string error = {};  // kFailed: what to read
  // Of ids without the stop token, cut before the first stop string: equal ids have equal texts, whatever the
  // stop strings. Empty where the engine has no tokenizer.
  std::string text = {};
  int64_t cached_tokens = 0;   // of the prompt, that were in the cache when it was first computed
  int64_t preemptions = 0;     // times that others needed its pages
  int64_t recomputations = 0;  // times that weights changed while it ran
  // Of requests that record experts: [tokens][router][top_k] of all tokens that were computed, which are
  // those of the prompt and all but the last of ids.
  std::vector<int32_t> experts = {};
};

}  // namespace temper::rollout
