#pragma once
#include <map>
#include <memory>
#include <optional>

#include "collectives/kept_errors.h"
#include "models/model.h"
#include "parallel/mesh_groups.h"
#include "recipes/keys/run_config.h"
#include "recipes/parts/phases.h"
#include "recipes/parts/run_options.h"
#include "rollout/text_model.h"

namespace temper::recipes {

// A model as ranks divide it.
struct DividedModel {
  parallel::MeshGroups groups;
  std::unique_ptr<models::Model> model;
};

// What is rounded besides the weights of a quantized folder: what the run's key `quantize` says, or inputs,
// keys and values as the folder says.
enum class Rounding { kOfTheRun, kAsTheFolderSays };

// What all that a run trains has in common, made in the order in which mistakes are cheapest: files and text
// before weights.
struct RunSetup {
  // `hardware`: what the run would be on instead of its device, and need not be here; nothing is computed
  // then.
  explicit RunSetup(const RunConfig& config, const std::string& hardware = "",
                    collectives::Group& group = collectives::alone());

  RunConfig config;
  HardwareFacts facts;
  const std::unique_ptr<Phases> phases;  // of the device's time and memory
  Mesh mesh;                             // of the ranks

 private:
  std::unique_ptr<collectives::Group> on_devices_;  // null: the ranks' own network serves their devices

 public:
  collectives::Group& ranks;  // that compute the run together
  // Of what a rank does alone while the others compute; raised when an update is over, on all of them.
  const std::unique_ptr<collectives::KeptErrors> kept_errors;
  std::optional<parallel::MeshGroups> groups;  // of the mesh
  Json model_config;
  layers::DecoderConfig architecture;
  rollout::TextFiles text;
  std::unique_ptr<models::Model> model;
  // What states are checked against, read with the weights: a sample of those that adapters stand on, and
  // what else decides what training means (recipes/setup/origin.h).
  std::string base;
  Json origin;
  int64_t cache_tokens = 0;  // that rollouts have room for at most; 0: not planned

  // `verbose`: says why each kernel was chosen, instead of one line.
  void load_weights(ops::Preferences preferred, bool verbose, Rounding rounding = Rounding::kOfTheRun);
  // Another model of the same dtype, frozen, and divided between the ranks as the trained one is; one for all
  // that ask while one of them has it. All ranks call it.
  std::shared_ptr<const models::Model> other_model(const std::string& folder) const;
  // The run's model as a mesh of all ranks divides it, with memory for its weights, which have no values yet.
  // Callers share one model as long as one of them holds it. All ranks call it.
  std::shared_ptr<DividedModel> model_on(const Mesh& mesh) const;
  // A model of its own, to be trained in full in the dtype of the trained one (BuildOptions::gives_values).
  std::unique_ptr<models::Model> own_model(const std::string& folder, bool gives_values) const;
  int64_t peak_memory() const;  // of the process, or of the device that trains
 private:
  ops::Preferences preferred_;
  mutable std::map<std::string, std::weak_ptr<const models::Model>> others_;
  mutable std::map<std::string, std::weak_ptr<DividedModel>> divided_;  // by its mesh
};

}  // namespace temper::recipes
