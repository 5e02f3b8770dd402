#pragma once
#include <optional>
#include <vector>

#include "data/loader.h"
#include "recipes/keys/run_config.h"
#include "rollout/text_model.h"

namespace temper::recipes {

// The rows to train on, and those to evaluate on if there are any.
struct DataSets {
  data::Mixture train;
  std::optional<data::Mixture> eval;
  // Read for the goal of the run's recipe, or for another one.
  static DataSets load(const RunConfig& config, const rollout::TextFiles& text,
                       std::optional<data::Goal> goal = {});
};

// Every row of an evaluation once, in order.
std::vector<data::PackedRow> read_all(const data::Mixture& mixture, const RunConfig& config);

data::LoaderOptions loader_options(const RunConfig& config);  // of training
data::LoaderOptions eval_options(const RunConfig& config);

}  // namespace temper::recipes
