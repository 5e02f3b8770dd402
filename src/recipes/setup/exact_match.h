#pragma once
#include <string>
#include <vector>

#include "recipes/setup/run_setup.h"

namespace temper::recipes {

struct Answer {
  std::string question, expected, found;
  bool correct() const { return expected == found; }
};

// Answers the first config.eval.exact_match held-out rows greedily and compares with what they say, white
// space at both ends aside. A row asks with everything before its last assistant message, or with its prompt;
// `text` rows cannot ask and are an error. The model that answers has all layers, and an adapter or null: the
// model alone. Where ranks divide it all of them call this; otherwise one of them does. Answers also stop at
// `ending`.
struct Answerer {
  const layers::Decoder& decoder;
  const layers::Adapter* adapter = nullptr;
};
std::vector<Answer> answer_questions(const RunSetup& setup, const Answerer& model, const RunConfig& config,
                                     const data::Mixture& rows, std::optional<int32_t> ending = {});
double accuracy(const std::vector<Answer>& answers);

}  // namespace temper::recipes
