#include "rollout/finish.h"

#include <span>

namespace temper::rollout {

const char* name_of(Finish finish) {
  switch (finish) {
    case Finish::kStopToken:
    case Finish::kStopString:
      return "stop";
    case Finish::kLength:
      return "length";
    case Finish::kContext:
      return "context";
    case Finish::kFailed:
      break;
  }
  return "failed";
}

std::string said_text(const Completion& answer, const tokenizers::Tokenizer& tokenizer, bool had_stop_strings,
                      bool skip_special_tokens) {
  const bool by_token = answer.finish == Finish::kStopToken;
  if (had_stop_strings && !by_token) return answer.text;
  return tokenizer.decode(std::span(answer.ids).first(answer.ids.size() - (by_token ? 1 : 0)),
                          skip_special_tokens);
}

}  // namespace temper::rollout
