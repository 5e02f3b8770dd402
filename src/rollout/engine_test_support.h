#pragma once
#include <gtest/gtest.h>

#include <map>

#include "device/cpu_features.h"
#include "ops/linear/linear.h"
#include "rollout/batch_invariant.h"
#include "rollout/engine.h"
#include "rollout/requests_test_support.h"
#include "tests/support/tiny_model.h"
#include "tokenizers/tokenizer.h"

namespace temper::rollout {

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

// Of conversations: a few tokens fill a page, and the cache begins with one.
inline EngineOptions small_pages() {
  EngineOptions options = options_of_conversation();
  options.page_tokens = 8;
  options.cache_tokens = 8;
  return options;
}

// The likeliest tokens behind a text, by a pass over all of it again for each.
inline Ids by_whole_passes(const layers::Decoder& model, Ids text, int64_t count,
                           const layers::Adapter* adapter = nullptr) {
  const size_t prompt = text.size();
  for (int64_t i = 0; i < count; ++i) {
    Tape tape(false);
    layers::Decoder::Options options;
    if (adapter != nullptr) options.adapters = {{adapter, std::ssize(text)}};
    const Tensor hidden =
        model.forward(tape, layers::make_input(text, std::vector{static_cast<int32_t>(text.size())}), options)
            .value;
    const Var last = tape.constant(hidden.narrow(0, hidden.dim(0) - 1, 1));
    text.push_back(ops::sample(model.logits(tape, last, adapter).value.values<float>(), {}, {}, 0).id);
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt), text.end()};
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

// A and the next 47 characters, one of which may be a special token.
inline tokenizers::Tokenizer letters(std::optional<int32_t> special = {}) {
  std::string vocabulary, added;
  for (int i = 0; i < 48; ++i)
    vocabulary += fmt::format(R"({}"{}": {})", i > 0 ? ", " : "", static_cast<char>('A' + i), i);
  vocabulary.replace(vocabulary.find("\"\\\""), 3, "\"~\"");  // in place of the backslash
  if (special)
    added = fmt::format(
        R"({{"id": {}, "content": "{}", "special": true, "single_word": false, "lstrip": false, "rstrip": false,
             "normalized": false}})",
        *special, static_cast<char>('A' + *special));
  return tokenizers::Tokenizer::from_json(
      R"({"model": {"type": "BPE", "vocab": {)" + vocabulary + R"(}, "merges": []}, "added_tokens": [)" +
          added +
          R"(], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
          "decoder": {"type": "ByteLevel"}})",
      "letters.json");
}

}  // namespace temper::rollout
