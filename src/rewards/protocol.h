#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rewards/reward.h"

// How programs and servers are asked (docs/rewards.md), one JSON object a line:
//   {"id": 7, "row": {…}, "text": "…", "messages": […] or null, "tokens": 12, "truncated": false}
// and how they answer:
//   {"id": 7, "reward": 0.5}
//   {"id": 7, "error": "why it cannot be judged"}
//   {"id": 7, "messages": [{"role": "user", "content": "…"}]}    and a reward, if there is one so far
namespace temper::rewards {

std::string request_of(int64_t id, const Sample& sample);  // one line, without its end

struct ProtocolAnswer {
  std::optional<int64_t> id = {};
  Verdict verdict = {};
  std::string problem = {};  // not empty: why this is not an answer
};
ProtocolAnswer answer_of(std::string_view json);

}  // namespace temper::rewards
