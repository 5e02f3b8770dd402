#pragma once
#include <memory>

#include "base/registry.h"
#include "recipes/run_files.h"
#include "recipes/session.h"
#include "training/objective.h"

namespace temper::recipes {

// Whose objective is made: the model, or one of its adapters.
struct Learner {
  const Session& session;   // with its model as the folder has it: nothing is trained or restored yet
  const RunConfig& config;  // as if it were alone
  const DataSets& data;
  RunFiles files;
};

// A way of training; rooms register theirs by name.
struct Recipe {
  void (*check)(const RunConfig& config);       // refuses what makes no sense, before anything is loaded
  data::Goal (*goal)(const RunConfig& config);  // what rows are read for
  bool (*holds_second_model)(const RunConfig& config);
  bool (*stores_reference)(const RunConfig& config);  // log-probabilities in the run's folder
  // Null: the mean of -log p over the target tokens.
  std::shared_ptr<const training::Objective> (*objective)(const Learner& learner);
  // The same for a rehearsal (recipes/rehearsal.h): `second` is the second model in memory, or null.
  std::shared_ptr<const training::Objective> (*rehearsed)(const RunConfig& config,
                                                          const layers::Decoder& model,
                                                          const layers::Decoder* second);
};

const Recipe& recipe_of(const RunConfig& config);

// Tokens of a packed row: as many as data.max_length says, or twice as many where a row holds two answers.
int64_t row_tokens(const RunConfig& config);

}  // namespace temper::recipes
