#include "recipes/grpo/held_out_prompts.h"

#include "base/error.h"
#include "base/log.h"
#include "recipes/grpo/grpo_keys.h"

namespace temper::recipes {

HeldOutPrompts::HeldOutPrompts(const data::Mixture* rows, const RunConfig& config)
    : rows_(rows), config_(config) {
  if (rows_ == nullptr) return;
  for (int64_t row = 0; row < rows_->size(); ++row)
    if (prompt_of(*rows_, row, config_, grpo_keys(config_).sampling.max_new_tokens)) asked_.push_back(row);
  if (asked_.empty()) fail("[data.eval] none of {} rows can be asked", rows_->size());
  if (size() < rows_->size())
    log_info(fmt::format("evaluations ask {} of {} rows of data.eval; the others are left out", size(),
                         rows_->size()));
}

std::vector<Prompt> HeldOutPrompts::every(int64_t first, int64_t step) const {
  std::vector<Prompt> prompts;
  for (int64_t i = first; i < size(); i += step)
    prompts.push_back(
        prompt_of(*rows_, asked_[static_cast<size_t>(i)], config_, grpo_keys(config_).sampling.max_new_tokens)
            .value());
  return prompts;
}

}  // namespace temper::recipes
