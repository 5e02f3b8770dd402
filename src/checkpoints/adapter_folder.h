#pragma once
#include <string>

#include "base/json/json.h"
#include "checkpoints/hf_folder.h"
#include "weights/lora.h"

// Adapters as PEFT keeps them: a folder with adapter_config.json and adapter_model.safetensors.
namespace temper::checkpoints {

inline constexpr const char* kAdapterConfig = "adapter_config.json";

struct AdapterConfig {
  LoraConfig lora;
  std::string base_model;            // base_model_name_or_path, "" where it says nothing
  bool ties_weights = false;         // ensure_weight_tying
  ModuleChoice named = {};           // target_modules, as it is written
  std::vector<int64_t> layers = {};  // layers_to_transform; none: all
};

// The targets are empty where the file's tensors alone say which of the modules are meant (some layers only).
// Every key is used, known to change nothing, or an error: what Temper has not (DoRA, biases in B, starts
// that change the base model, …) is refused by name.
AdapterConfig read_adapter_config(const std::string& folder);
// Of its text; `path` begins the errors.
AdapterConfig parse_adapter_config(const Json& json, const std::string& path);

// Refuses an adapter that changes the embedding and the head as one, where they are: PEFT does so when asked.
void check_apart(const AdapterConfig& config, const WeightTable& base, const std::string& folder);

// An Error that names the modules of which the adapter's file, whose plan it is, has tensors although its
// configuration adapts none of them: PEFT would leave those tensors out in silence.
void check_named(const AdapterConfig& config, const LoraPlan& plan, const std::string& folder);

// check_named, and a warning for each other way in which configuration and file disagree: targets that are no
// module of the model, ranks and alphas of no adapted one; modules that target_modules or modules_to_save
// name and the file leaves out; whole weights and biases of the file that no key names.
void check_agreement(const AdapterConfig& config, const LoraPlan& plan, const std::string& folder);

// Its text. "all-linear" becomes the names that it stood for, and what PEFT cannot say, or would understand
// as more modules, the whole names.
Json adapter_config_json(const LoraConfig& config, const LoraPlan& plan, const std::string& base_model);

// Writes the folder; `source` gives each parameter of the adapter's table, [spec.shape]. An existing
// adapter's folder is replaced as a whole.
void save_adapter(const std::string& path, const WeightTable& table, const WeightTensors& source,
                  const Json& config);

// Where the adapter lies that `path` means: the folder itself, the one that a run has for it
// (RUN/adapters/NAME), or the run, if it has one adapter; an Error that lists them where it has several.
// Other paths come back as they are.
std::string find_adapter(const std::string& path);

}  // namespace temper::checkpoints
