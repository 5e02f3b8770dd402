#pragma once
#include <string>
#include <vector>

#include "rewards/reward.h"

namespace temper::rewards {

// The answers that a row calls right, any of which will do: those of its field `answer` of the configuration
// (a text, a number, true or false, or a list of these). Where the configuration names none: those of the
// row's field "answer"; or else its field "completion", a text or messages; or else its "messages"; of
// messages the content of the last one, when that is the assistant's. A field that is null counts as absent.
struct RightAnswers {
  std::vector<std::string> texts = {};
  std::string error = {};  // not empty: there are none, and why
};
RightAnswers right_answers(const RewardConfig& config, const Json& row);

}  // namespace temper::rewards
