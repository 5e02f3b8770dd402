#pragma once
#include <memory>

#include "recipes/setup/recipe_inputs.h"
#include "rollout/engine_of_ranks.h"

namespace temper::recipes {

// How the engine answers that number of prompts, where memory does not limit it.
rollout::EngineOptions engine_options(const RunConfig& config, int64_t answers);
// The same with the cache that the plan of memory has found room for.
rollout::EngineOptions engine_options(const RunSetup& setup, const RunConfig& config, int64_t answers);

// The engine of a run's rollouts: made for the first answers, kept while there are no others, and made again
// where more answers are wanted at once than before.
class AnswerEngine {
 public:
  // `model` answers, with `adapter` or (null) by itself.
  AnswerEngine(const RunSetup& setup, const RunConfig& config, const layers::Decoder& model,
               const layers::Adapter* adapter)
      : setup_(setup), config_(config), model_(model), adapter_(adapter) {}

  // Awake, for this number of answers at most. It is the caller's until put_back(): behind an error there is
  // none.
  std::unique_ptr<rollout::EngineOfRanks> take(int64_t answers, const ops::SamplingOptions& sampling,
                                               double log_prob_temperature);
  void put_back(std::unique_ptr<rollout::EngineOfRanks> engine) { engine_ = std::move(engine); }
  // Between rollouts its memory serves others, its captured passes stay (Engine::sleep). It is given back
  // where `gives_back`, where several learners have engines by turns, and where memory does not sleep.
  void rest(bool gives_back);

 private:
  const RunSetup& setup_;
  const RunConfig& config_;
  const layers::Decoder& model_;
  const layers::Adapter* adapter_;
  std::unique_ptr<rollout::EngineOfRanks> engine_;
  int64_t most_running_ = 0;  // of it
};

}  // namespace temper::recipes
