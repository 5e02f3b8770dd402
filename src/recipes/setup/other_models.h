#pragma once
#include <map>
#include <memory>
#include <string>

#include "models/model.h"
#include "parallel/mesh_groups.h"
#include "recipes/keys/run_config.h"
#include "recipes/parts/run_options.h"

namespace temper::recipes {

// A model as ranks divide it.
struct DividedModel {
  parallel::MeshGroups groups;
  std::unique_ptr<models::Model> model;
};

// The models that a run has besides the one that it trains. All ranks call each function.
class OtherModels {
 public:
  // What all are built with must outlive it; `groups` divide the trained model.
  OtherModels(const RunConfig& config, const HardwareFacts& facts, const parallel::MeshGroups& groups,
              const Json& model_config, ops::Preferences preferred)
      : config_(config),
        facts_(facts),
        groups_(groups),
        model_config_(model_config),
        preferred_(std::move(preferred)) {}

  // Frozen, of the trained one's dtype, and divided between the ranks as that is; one for all that ask while
  // one of them has it.
  std::shared_ptr<const models::Model> frozen(const std::string& folder) const;
  // The run's model as a mesh of all ranks divides it, with memory for its weights, which have no values yet.
  // Callers share one model as long as one of them holds it.
  std::shared_ptr<DividedModel> divided(collectives::Group& ranks, const Mesh& mesh) const;
  // One to be trained in full in the dtype of the trained one (BuildOptions::gives_values), and divided like
  // it.
  std::unique_ptr<models::Model> trainable(const std::string& folder, bool gives_values) const;

 private:
  const RunConfig& config_;
  const HardwareFacts& facts_;
  const parallel::MeshGroups& groups_;
  const Json& model_config_;
  ops::Preferences preferred_;
  mutable std::map<std::string, std::weak_ptr<const models::Model>> frozen_;
  mutable std::map<std::string, std::weak_ptr<DividedModel>> divided_;  // by its mesh
};

}  // namespace temper::recipes
