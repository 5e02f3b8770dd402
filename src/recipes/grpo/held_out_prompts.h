#pragma once
#include <cstdint>
#include <vector>

#include "recipes/grpo/prompts.h"

namespace temper::recipes {

// The rows of data.eval that evaluations ask, known before anything is trained.
class HeldOutPrompts {
 public:
  // `rows` (null: there are none) and the configuration must outlive it. Rows that cannot be asked are left
  // out, with a line that counts them, or are an Error, as prompt_of() has it; so is it where none is left.
  HeldOutPrompts(const data::Mixture* rows, const RunConfig& config);

  int64_t size() const { return std::ssize(asked_); }
  const data::Mixture& rows() const { return *rows_; }
  // Every step-th prompt from `first` on.
  std::vector<Prompt> every(int64_t first, int64_t step) const;

 private:
  const data::Mixture* rows_;
  const RunConfig& config_;
  std::vector<int64_t> asked_;  // rows
};

}  // namespace temper::recipes
