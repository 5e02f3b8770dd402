#pragma once
#include "layers/block.h"
#include "ops/swiglu/swiglu.h"

namespace temper::channels {

// down(activation(gate(x)) * up(x)) (Shazeer, 2020), with gate and up in one linear.
struct GatedMlpConfig {
  int64_t hidden = 0, intermediate = 0;
  bool bias = false;
  ops::Activation activation = ops::Activation::kSilu;
  std::string module = "mlp";   // the names of Hugging Face are those behind it
  bool fused_in_files = false;  // files have one gate_up_proj

  bool operator==(const GatedMlpConfig&) const = default;
};

std::shared_ptr<const layers::Channel> gated_mlp(const GatedMlpConfig& config);

}  // namespace temper::channels
