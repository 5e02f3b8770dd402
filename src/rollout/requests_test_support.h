#pragma once
#include <memory>

#include "rollout/scheduling/sequence.h"

namespace temper::rollout {

using Ids = std::vector<int32_t>;

inline Ids prompt_of(int64_t length, int32_t seed) {
  Ids ids;
  for (int32_t i = 0; i < length; ++i) ids.push_back((seed * 31 + i * (seed % 5 + 3)) % 48);
  return ids;
}

inline Request request_of(Ids prompt, uint64_t seed = 0, double temperature = 0, int64_t most = 12) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling = {.temperature = temperature, .seed = seed};
  request.max_new_tokens = most;
  return request;
}

inline std::vector<Request> mixed_requests(int64_t count, double temperature = 0) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < count; ++i)
    requests.push_back(request_of(prompt_of(1 + i * 7 % 40, static_cast<int32_t>(i % 9)),
                                  static_cast<uint64_t>(i), temperature, 4 + i % 13));
  return requests;
}

inline std::unique_ptr<Sequence> sequence_of(Request request, int64_t id = 0, int64_t context = 64) {
  return std::make_unique<Sequence>(Answer(std::move(request), id, context, nullptr));
}

}  // namespace temper::rollout
