#pragma once
#include <memory>
#include <string>

#include "checkpoints/merge.h"
#include "layers/adapter.h"
#include "models/model.h"

// Adapters of a model, in PEFT's folders.
namespace temper::models {

// A new one, which changes nothing until it is trained. `where` begins the errors: "lora.".
std::unique_ptr<layers::Adapter> new_adapter(const Model& model, const LoraConfig& config, uint64_t seed,
                                             const std::string& where);
// One of a folder. Errors: an adapter for another base, or of a kind that Temper has not.
std::unique_ptr<layers::Adapter> load_adapter(const Model& model, const std::string& folder);
// Its checks of the folder against the model's table, before any weight is read.
void check_adapter(const WeightTable& base, const std::string& folder);
// `base_model`: the folder that the adapter is for, as it will be found.
// `whole` as of save_model().
void save_adapter(const layers::Adapter& adapter, const std::string& folder, const std::string& base_model,
                  const std::function<Tensor(size_t)>& whole = nullptr);

// Writes the model of the folder `base` with the adapter in its weights (checkpoints/merge.h).
void merge_adapter(const std::string& adapter, const std::string& base, const std::string& output,
                   int64_t max_shard_bytes, checkpoints::MergedForm form = checkpoints::MergedForm::kPlain);

}  // namespace temper::models
