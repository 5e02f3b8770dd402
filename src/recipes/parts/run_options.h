#pragma once
#include <cstddef>

#include "models/model.h"
#include "optimizers/adamw.h"
#include "recipes/keys/run_config.h"
#include "training/trainer.h"

namespace temper::recipes {

optimizers::AdamWOptions adamw_options(const TrainConfig& train);
// An Error for keys of routers that the model has not.
training::TrainerOptions trainer_options(const RunConfig& config, const layers::Decoder& model,
                                         size_t num_sources);
// `preferred`: kernels to try first where the configuration says nothing.
models::BuildOptions build_options(const RunConfig& config, const HardwareFacts& facts,
                                   ops::Preferences preferred);

// The same for a model that is trained in addition to the run's: as its weights are, and in full.
models::BuildOptions own_build_options(const RunConfig& config, const HardwareFacts& facts,
                                       ops::Preferences preferred);

}  // namespace temper::recipes
