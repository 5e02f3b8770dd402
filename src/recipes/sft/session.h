#pragma once
#include <memory>
#include <optional>

#include "data/loader.h"
#include "models/model.h"
#include "optimizers/adamw.h"
#include "recipes/run_config.h"
#include "rollout/text_model.h"
#include "training/trainer.h"

namespace temper::recipes {

// The rows to train on, and those to evaluate on if there are any.
struct DataSets {
  data::Mixture train;
  std::optional<data::Mixture> eval;
  static DataSets load(const RunConfig& config, const rollout::TextFiles& text, data::Goal goal);
};

// Every row of an evaluation once, in order.
std::vector<data::PackedRow> read_all(const data::Mixture& mixture, const RunConfig& config);

data::LoaderOptions loader_options(const RunConfig& config);  // of training
data::LoaderOptions eval_options(const RunConfig& config);

// Everything that a run needs before its first step, made in the order in which mistakes are cheapest: files
// and text before weights, weights before moments.
struct Session {
  // `goal`: what the rows are read for.
  explicit Session(const RunConfig& config, data::Goal goal = data::Goal::kLanguageModel);

  RunConfig config;
  HardwareFacts facts;
  Json model_config;
  layers::DecoderConfig architecture;
  rollout::TextFiles text;
  DataSets data;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<optimizers::AdamW> optimizer;
  std::unique_ptr<training::Trainer> trainer;

  int64_t total_steps() const;
  // `preferred`: kernels to try first where the configuration says nothing.
  models::BuildOptions build_options(ops::Preferences preferred) const;
  void load_weights(ops::Preferences preferred);  // model, optimizer, trainer
};

}  // namespace temper::recipes
