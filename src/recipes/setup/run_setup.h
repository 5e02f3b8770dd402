#pragma once
#include <memory>
#include <optional>

#include "collectives/kept_errors.h"
#include "recipes/parts/phases.h"
#include "recipes/setup/other_models.h"
#include "rollout/text_model.h"

namespace temper::recipes {

// What is rounded besides the weights of a quantized folder: what the run's key `quantize` says, or inputs,
// keys and values as the folder says.
enum class Rounding { kOfTheRun, kAsTheFolderSays };

// What states are checked against (recipes/setup/origin.h).
struct Origin {
  std::string base;  // a sample of the weights that adapters stand on
  Json meaning;      // what else decides what training means
};

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
  std::unique_ptr<const OtherModels> others;
  Origin origin;
  int64_t cache_tokens = 0;  // that rollouts have room for at most; 0: not planned

  // The model, with what is read of it and built like it. `verbose`: says why each kernel was chosen, instead
  // of one line.
  void load_weights(ops::Preferences preferred, bool verbose, Rounding rounding = Rounding::kOfTheRun);
  int64_t peak_memory() const;  // of the process, or of the device that trains
};

}  // namespace temper::recipes
