#pragma once
#include "layers/adapter.h"
#include "recipes/keys/recipe.h"
#include "recipes/parts/batch_source.h"
#include "recipes/parts/run_files.h"
#include "recipes/setup/data_sets.h"
#include "recipes/setup/run_setup.h"

namespace temper::recipes {

// What the objective of a learner (recipes/learner/learner.h) is made from.
struct ObjectiveInputs {
  const RunSetup& setup;    // with its model as the folder has it: nothing is trained or restored yet
  const RunConfig& config;  // as if it were alone
  const DataSets& data;
  RunFiles files;
};

// What a learner's own source of batches is made from, before it is restored.
struct BatchInputs {
  const RunSetup& setup;  // all of these outlive it
  const RunConfig& config;
  const DataSets& data;
  const RunFiles& files;
  layers::Adapter* adapter;  // that is trained; null: the model is
};

}  // namespace temper::recipes
