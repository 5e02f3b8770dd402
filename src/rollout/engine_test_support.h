#pragma once
#include <gtest/gtest.h>

#include <map>

#include "device/cpu_features.h"
#include "ops/linear/linear.h"
#include "rollout/batch_invariant.h"
#include "rollout/engine.h"
#include "tests/support/tiny_model.h"

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

// By id.
inline std::map<int64_t, Completion> answers(Engine& engine) {
  std::map<int64_t, Completion> all;
  while (engine.step())
    for (Completion& each : engine.take_finished()) all[each.id] = std::move(each);
  return all;
}

inline std::vector<Completion> answers_of(const layers::Decoder& model, const std::vector<Request>& requests,
                                          const EngineOptions& options = {}) {
  Engine engine(model, options);
  for (const Request& request : requests) engine.add(request);
  std::vector<Completion> all;
  for (auto& [id, each] : answers(engine)) all.push_back(std::move(each));
  return all;
}

// Kernels whose results do not depend on other tokens.
inline ops::OpsConfig invariant_kernels() { return {.written = batch_invariant_fields("cpu", DType::kF32)}; }

inline bool has_invariant_kernels() {
  const bool has =
      tiny_model({.ops = invariant_kernels()})->decoder.ops().at<ops::Linear>("head").batch_invariant;
  EXPECT_EQ(has, has_cpu_feature("avx2") && has_cpu_feature("fma"));
  return has;
}

inline const std::vector<const char*> kTypes{"qwen3",      "llama",        "gemma3_text", "qwen3_moe",
                                             "qwen3_next", "qwen3_5_text", "deepseek_v3", "gpt_oss"};

inline std::vector<Request> mixed_requests(int64_t count, double temperature = 0) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < count; ++i)
    requests.push_back(request_of(prompt_of(1 + i * 7 % 40, static_cast<int32_t>(i % 9)),
                                  static_cast<uint64_t>(i), temperature, 4 + i % 13));
  return requests;
}

}  // namespace temper::rollout
