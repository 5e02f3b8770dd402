#pragma once
#include "layers/block.h"
#include "ops/moe_experts/moe_experts.h"

namespace temper::channels {

// A mixture of experts: of many gated MLPs a router chooses some for each token (ops/moe_router), and what
// they give is added up by its weights (ops/moe_experts). Hugging Face's names are those behind `module`.
struct ExpertsConfig {
  int64_t hidden = 0, width = 0;  // of the stream; of one expert
  ops::Routing routing;
  // The router multiplies in float32, whatever the model computes in; otherwise as the model.
  bool float32_router = false;
  bool correction_bias = false;  // of the choice: gate.e_score_correction_bias
  bool biases = false;           // of the router and of both matrices of every expert
  ops::ExpertsGate form = {};    // silu(gate) * up, or clamped
  std::string module = "mlp";
  std::string router = "gate";
  std::string stacked_module = {};  // its name in files with stacked experts; empty: the same
  // Of each expert's matrices in files that hold them one by one.
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
  // Files that have all experts as one tensor may have each one's transpose there.
  bool transposes_stacked = false;
  // Files hold all experts as one tensor of transposes, in which columns of gate and up take turns.
  bool alternating_in_files = false;
};

// `shared` computes every token, too; null: none. `shared_gate`: the sigmoid of a linear of this name, one
// number a token, multiplies what it gives; empty: nothing does.
std::shared_ptr<const layers::Channel> experts(const ExpertsConfig& config,
                                               std::shared_ptr<const layers::Channel> shared = nullptr,
                                               const std::string& shared_gate = {});

}  // namespace temper::channels
