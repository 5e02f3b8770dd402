#pragma once
#include <functional>
#include <string>
#include <vector>

#include "weights/lora.h"

// What adapters of experts are made of: the matrices of all experts of a product are one parameter, of which
// an adapter changes all experts alike.
namespace temper {

// Of the experts' matrices `spec`, a target for each kind of module (gate_proj, up_proj) that `chosen` has.
// Errors, which begin with "[where] ": kinds that only some experts have adapted, or with other ranks or
// alphas.
std::vector<LoraTarget> targets_of_modules(const WeightSpec& spec,
                                           const std::function<bool(const std::string& module)>& chosen,
                                           const LoraConfig& config, const std::string& where);

// Of the stacked tensors that config.parameters name, in the order of the table.
std::vector<LoraTarget> targets_of_parameters(const WeightTable& base, const LoraConfig& config);

// An Error "[where] …" for names of parameters that no stacked tensor and no module's weight has.
void check_parameters(const WeightTable& base, const LoraConfig& config, const std::string& where);

// Whether `parameter` ("model.layers.0.mlp.gate.weight") is one of config.parameters.
bool names_parameter(const LoraConfig& config, std::string_view parameter);

}  // namespace temper
