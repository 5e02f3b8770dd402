#pragma once
#include <string>

#include "base/json.h"
#include "checkpoints/hf_folder.h"
#include "weights/lora.h"

// Adapters as PEFT keeps them: a folder with adapter_config.json and adapter_model.safetensors.
namespace temper::checkpoints {

inline constexpr const char* kAdapterConfig = "adapter_config.json";

struct AdapterConfig {
  LoraConfig lora;
  std::string base_model;     // base_model_name_or_path, "" where it says nothing
  bool ties_weights = false;  // ensure_weight_tying
};

// The targets are empty where the file's tensors alone say which of the modules are meant (some layers only).
// Every key is used, known to change nothing, or an error: what Temper has not (DoRA, biases in B, starts
// that change the base model, …) is refused by name.
AdapterConfig read_adapter_config(const std::string& folder);
// Of its text; `path` begins the errors.
AdapterConfig parse_adapter_config(const Json& json, const std::string& path);

// Refuses an adapter that changes the embedding and the head as one, where they are: PEFT does so when asked.
void check_apart(const AdapterConfig& config, const WeightTable& base, const std::string& folder);

// One warning that names what its configuration lists and nothing matches: targets that are no module of the
// model, ranks and alphas of no adapted one. They change nothing; most likely a name is mistyped. And one of
// modules that its targets name and its file, of which the plan is, leaves out.
void warn_of_strangers(const AdapterConfig& config, const LoraPlan& plan, const std::string& folder);

// Its text. "all-linear" becomes the names that it stood for, and what PEFT cannot say, or would understand
// as more modules, the whole names.
Json adapter_config_json(const LoraConfig& config, const LoraPlan& plan, const std::string& base_model);

// Writes the folder; `source` gives each parameter of the adapter's table, [spec.shape]. An existing
// adapter's folder is replaced as a whole.
void save_adapter(const std::string& path, const WeightTable& table, const WeightTensors& source,
                  const Json& config);

}  // namespace temper::checkpoints
