#pragma once
#include <string>

#include "layers/adapter.h"
#include "recipes/setup/recipe_inputs.h"

namespace temper::recipes {

// What a learner is made from: the run of the model or of one adapter, as if it were alone.
struct LearnerInputs {
  // `setup` must outlive it. An Error where questions are to be asked and no rows have them.
  LearnerInputs(const RunSetup& setup, RunConfig config, DataSets data);

  const RunSetup& setup;
  RunConfig config;  // with one adapter or, where the model is trained, with none (run_of_adapter)
  DataSets data;
  RunFiles files;

  bool is_adapter() const { return !config.adapters.empty(); }
  std::string name() const { return is_adapter() ? config.adapters.front().name : std::string(); }
  std::string result() const { return is_adapter() ? files.adapter() : files.model(); }  // its folder
  const Recipe& recipe() const { return recipe_of(config); }
  ObjectiveInputs for_objective() const { return {setup, config, data, files}; }
  BatchInputs for_batches(layers::Adapter* adapter) const { return {setup, config, data, files, adapter}; }

  collectives::Group& ranks() const { return setup.ranks; }
  parallel::UpdateRanks update_ranks() const { return setup.groups->update(); }
  collectives::Group& data_ranks() const { return setup.groups->rows(); }  // with other rows of an update
  // Rank 0 reads the data and writes the files; the other ranks compute with it.
  bool is_root() const { return ranks().rank() == 0; }
  void log(const std::string& message) const;  // with the adapter's name
};

}  // namespace temper::recipes
