#pragma once
#include <optional>
#include <string>

#include "config/schema.h"
#include "recipes/keys/run_config.h"
#include "training/objectives/preference.h"

namespace temper::recipes {

// The keys of `preference` (docs/preference.md).
struct PreferenceKeys {
  enum class Loss { kDpo, kIpo, kOrpo, kKto };
  Loss loss = Loss::kDpo;
  double beta = 0.1;
  double label_smoothing = 0;
  double margin = 0;
  bool length_normalized = false;
  bool reference_free = false;
  double lambda = 0.1;
  double desirable_weight = 1, undesirable_weight = 1;
  std::string reference;
  std::optional<bool> precompute;
  bool share_prompts = true;

  training::PreferenceLoss to_loss() const;
};
void describe(config::Schema& s, PreferenceKeys& c);

inline const PreferenceKeys& preference_keys(const RunConfig& config) {
  return config.recipe_keys.of<PreferenceKeys>();
}

// Refuses a key that was set and that the loss does not read: a misunderstanding.
void check_keys(const PreferenceKeys& c);

}  // namespace temper::recipes
