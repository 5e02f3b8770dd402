#pragma once
#include <functional>
#include <string>

#include "rollout/engine.h"

namespace temper::cli {

struct StreamedAnswer {
  rollout::Completion completion;  // its text is what was printed, without special tokens
  int64_t prompt_tokens = 0;       // that were computed, not found in the cache
  double prompt_seconds = 0;       // until the first token
  double answer_seconds = 0;       // after it
};

// Prints the answer (base/console.h) of an engine without other requests as it arrives, and a line end behind
// it. `keep_going` (where there is one) ends it by returning false. Logits that are no distribution are an
// Error.
StreamedAnswer stream_answer(rollout::Engine& engine, rollout::Request request,
                             const std::function<bool()>& keep_going = {});
std::string describe(const StreamedAnswer& answer);  // "12 prompt tokens in 0.01s, 30 new at 210 tokens/s"

}  // namespace temper::cli
