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

// The tokenizer's and template's view of the data files.
struct DataSet {
  std::unique_ptr<data::Source> source;
  std::unique_ptr<data::RowEncoder> encoder;

  DataSet(const std::vector<std::string>& paths, const DataConfig& config, const rollout::TextFiles& text);
  // Every row once, in order.
  std::vector<data::PackedRow> read_all(const DataConfig& config, data::RowCounts* counts) const;
};

data::LoaderOptions loader_options(const RunConfig& config);

// Everything that a run needs before its first step, made in the order in which mistakes are cheapest: files
// and text before weights, weights before moments.
struct Session {
  explicit Session(const RunConfig& config);

  RunConfig config;
  HardwareFacts facts;
  Json model_config;
  layers::DecoderConfig architecture;
  rollout::TextFiles text;
  DataSet train;
  std::optional<DataSet> eval;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<optimizers::AdamW> optimizer;
  std::unique_ptr<training::Trainer> trainer;

  int64_t total_steps() const;
  // `preferred`: kernels to try first where the configuration says nothing.
  models::BuildOptions build_options(ops::Preferences preferred) const;
  void load_weights(ops::Preferences preferred);  // model, optimizer, trainer
};

}  // namespace temper::recipes
