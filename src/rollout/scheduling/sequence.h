#pragma once
#include "rollout/requests/answer.h"
#include "rollout/scheduling/page_pool.h"

namespace temper::rollout {

// A request that waits or runs, and what the cache holds of its tokens.
struct Sequence {
  explicit Sequence(Answer of) : answer(std::move(of)), tokens(answer.request().prompt) {}

  Answer answer;
  std::vector<int32_t> tokens;      // the prompt, then what was sampled
  int64_t computed = 0;             // tokens whose keys, values and states are in the cache
  std::vector<int32_t> pages = {};  // in the order of the tokens
  int32_t slot = PagePool::kNone;
  int64_t published = 0;         // pages that can be found, or were found
  uint64_t last_serial = 0;      // of the last of them
  WeightVersions versions = {};  // of the weights that computed them

  const Request& request() const { return answer.request(); }
  Completion& result() { return answer.result(); }
  const Completion& result() const { return answer.result(); }
  int64_t length() const { return std::ssize(tokens); }
  int64_t prompt() const { return std::ssize(request().prompt); }
  int64_t left() const { return length() - computed; }
  // Adds the next token; false where the answer ends with it.
  bool take(const ChosenToken& token) {
    if (token.id != ops::kNoToken) tokens.push_back(token.id);
    return answer.take(token, versions);
  }
};

}  // namespace temper::rollout
