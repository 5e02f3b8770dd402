#pragma once
#include <optional>

#include "rollout/answer_text.h"
#include "rollout/engine.h"

namespace temper::rollout {

// A request on its way.
struct Engine::Sequence {
  Request request;
  std::vector<int32_t> tokens;  // the prompt, then what was sampled
  int64_t computed = 0;         // tokens whose states are there
  std::vector<int32_t> pages;   // in the order of the tokens
  int32_t slot = PagePool::kNone;
  int64_t published = 0;           // pages that can be found, or were found
  uint64_t last_serial = 0;        // of the last of them
  uint64_t adapter_version = 0;    // of the weights that computed them
  std::optional<AnswerText> text;  // where the engine has a tokenizer
  Completion result;

  int64_t length() const { return std::ssize(tokens); }
  int64_t prompt() const { return std::ssize(request.prompt); }
  int64_t left() const { return length() - computed; }
  static uint64_t version_of(const layers::Adapter* adapter) {
    return adapter == nullptr ? 0 : adapter->parameters().version();
  }
};

}  // namespace temper::rollout
