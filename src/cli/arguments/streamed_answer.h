#pragma once
#include <functional>
#include <string>
#include <vector>

#include "rollout/generator.h"
#include "tokenizers/tokenizer.h"

namespace temper::cli {

struct StreamedAnswer {
  rollout::Generation generation;
  std::string text;  // that was printed, without special tokens
};

// Prints an answer (base/console.h) as it arrives, and a line end behind it. `stop_strings` end it, as does
// `keep_going` (where there is one) by returning false.
StreamedAnswer stream_answer(rollout::Generator& generator, const tokenizers::Tokenizer& tokenizer,
                             const std::vector<int32_t>& prompt, rollout::GenerateOptions options,
                             const std::vector<std::string>& stop_strings,
                             const std::function<bool()>& keep_going = {});

}  // namespace temper::cli
