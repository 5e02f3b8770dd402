#include "recipes/grpo/answers/answer_engine.h"

#include <algorithm>

#include "device/memory_policy.h"
#include "recipes/grpo/grpo_keys.h"

namespace temper::recipes {

rollout::EngineOptions engine_options(const RunConfig& config, int64_t answers) {
  const GrpoKeys& keys = grpo_keys(config);
  rollout::EngineOptions options;
  options.max_running = std::max<int64_t>(1, std::min<int64_t>(keys.engine.batch, answers));
  const int64_t pages = config.data.max_length / options.page_tokens + 1;
  options.cache_tokens = keys.engine.cache_tokens.value_or(options.max_running * pages * options.page_tokens);
  return options;
}

rollout::EngineOptions engine_options(const RunSetup& setup, const RunConfig& config, int64_t answers) {
  rollout::EngineOptions options = engine_options(config, answers);
  if (setup.cache_tokens > 0) options.cache_tokens = std::min(options.cache_tokens, setup.cache_tokens);
  return options;
}

std::unique_ptr<rollout::EngineOfRanks> AnswerEngine::take(int64_t answers,
                                                           const ops::SamplingOptions& sampling,
                                                           double log_prob_temperature) {
  std::unique_ptr<rollout::EngineOfRanks> engine = std::move(engine_);
  if (engine != nullptr) engine->wake();
  // One for all: where some ask for more at once, as they all turn out to do, it is made again.
  const rollout::EngineOptions planned = engine_options(setup_, config_, answers);
  if (engine == nullptr || planned.max_running > most_running_) {
    engine = nullptr;  // before there are two
    most_running_ = planned.max_running;
    engine = std::make_unique<rollout::EngineOfRanks>(model_, planned, &setup_.text.tokenizer);
  }
  const GrpoKeys& keys = grpo_keys(config_);
  rollout::Request like;
  like.sampling = sampling;
  like.stop_ids = setup_.text.generation.stop_ids;
  like.stop_strings = keys.sampling.stop;
  like.adapter = adapter_;
  like.log_prob_temperature = log_prob_temperature;
  like.record_experts = keys.correction.routing_replay;
  engine->set_like(like);
  return engine;
}

void AnswerEngine::rest(bool gives_back) {
  if (engine_ == nullptr) return;
  if (gives_back || setup_.config.adapters.size() > 1 ||
      device::memory_policy(model_.device()).policy == device::MemoryPolicy::kSeparate)
    engine_ = nullptr;
  else
    engine_->sleep();
}

}  // namespace temper::recipes
