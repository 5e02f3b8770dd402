#pragma once
#include <vector>

#include "data/rows/pack.h"

namespace temper {

// A prompt and the answers to train on, in tokens of a TinyModel's vocabulary.
struct TestDialogue {
  int64_t prompt = 1;
  std::vector<data::Answer> answers;  // lengths of the answers alone
};

// One packed row. With `share`, the prompt without its last token is there once.
inline data::PackedRow answer_row(uint32_t seed, const std::vector<TestDialogue>& dialogues, bool share) {
  const auto next = [&seed] {
    seed = seed * 1664525 + 1013904223;
    return static_cast<int32_t>(seed >> 8) % 48;
  };
  data::PackedRow row;
  for (const TestDialogue& dialogue : dialogues) {
    std::vector<int32_t> prompt;
    for (int64_t i = 0; i < dialogue.prompt; ++i) prompt.push_back(next());
    const size_t before = row.ids.size();
    const int64_t shared = share ? dialogue.prompt - 1 : 0;
    row.ids.insert(row.ids.end(), prompt.begin(), prompt.begin() + shared);
    row.targets.insert(row.targets.end(), static_cast<size_t>(shared), data::kIgnore);
    std::vector<data::Answer>& answers = row.answers.emplace_back();
    for (const data::Answer& answer : dialogue.answers) {
      row.ids.insert(row.ids.end(), prompt.begin() + shared, prompt.end());
      row.targets.insert(row.targets.end(), static_cast<size_t>(dialogue.prompt - shared - 1), data::kIgnore);
      for (int64_t i = 0; i < answer.length; ++i) {
        row.ids.push_back(next());
        row.targets.push_back(row.ids.back());
      }
      row.targets.push_back(data::kIgnore);
      answers.push_back({dialogue.prompt - shared + answer.length, answer.good});
    }
    row.document_lengths.push_back(static_cast<int64_t>(row.ids.size() - before));
    row.sources.push_back(0);
  }
  return row;
}

inline TestDialogue test_pair(int64_t prompt, int64_t chosen, int64_t rejected) {
  return {prompt, {{chosen, true}, {rejected, false}}};
}

}  // namespace temper
