#include "recipes/grpo/answers/answer_record.h"

#include "base/hash.h"

namespace temper::recipes {

void AnswerRecord::open(int64_t rollout, bool takes_over) {
  if (leads_) journal_.begin_at(rollout, takes_over);
  takes_over_ = takes_over;
  is_open_ = true;
}

bool AnswerRecord::take(int64_t rollout, const Prompt& prompt, int64_t group, int64_t number,
                        std::vector<SampledAnswer>& samples) {
  Journal::Found* const found = takes_over_ ? journal_.find(group, number) : nullptr;
  if (found == nullptr || found->key != key_of(rollout, prompt)) return false;
  samples.push_back(std::move(found->sample));
  return true;
}

void AnswerRecord::write(const SampledAnswer& sample, const Prompt& prompt,
                         const std::vector<std::string>& reward_names) {
  journal_.write(sample, prompt, reward_names, key_of(sample.rollout, prompt));
}

void AnswerRecord::end_rollout() {
  journal_.sync();
  takes_over_ = false;
}

std::string AnswerRecord::key_of(int64_t rollout, const Prompt& prompt) const {
  const std::string settings = fmt::format("{} {}", rollout, settings_);
  Hasher hasher;
  hasher.update(settings.data(), settings.size());
  hasher.update(prompt.ids.data(), prompt.ids.size() * sizeof(int32_t));
  return hasher.digest();
}

}  // namespace temper::recipes
