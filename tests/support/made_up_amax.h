#pragma once
#include "models/model.h"
#include "quant/zero_points.h"
#include "tests/support/tiny_model.h"

namespace temper {

// An amax or the ends of a range for every quantizer: of weights the real one, of inputs made up.
inline void set_made_up_amax(models::Model& model) {
  float made_up = 1.7f;
  for (quantizers::Quantizer& each : model.decoder.quantizers().all()) {
    if (!each.planned.keeps_amax()) continue;
    if (each.planned.of_input) {
      for (float& amax : each.amax.values<float>()) amax = made_up += 0.37f;
      if (each.low.defined())
        for (float& low : each.low.values<float>()) low = -0.3f * (made_up += 0.37f);
      continue;
    }
    const Tensor values =
        model.decoder.parameters().at(each.planned.weight).value.reshape(each.planned.values);
    if (!each.low.defined()) {
      each.amax.copy_from(quant::amax_of(values, each.planned.amax));
      continue;
    }
    const quant::Bounds bounds = quant::bounds_of(values, each.planned.amax);
    each.low.copy_from(bounds.low);
    each.amax.copy_from(bounds.high);
  }
  model.decoder.quantizers().set_ready();
}

// Sizes of a layer whose columns blocks and words of every format divide.
inline std::vector<std::pair<const char*, Json>> sizes_to_export(int64_t head_dim = 64) {
  return {{"hidden_size", 128},          {"num_hidden_layers", 1}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2},    {"head_dim", head_dim},   {"intermediate_size", 256},
          {"moe_intermediate_size", 128}};
}
// With few words, and in mixtures with three experts, of which a token has two.
inline std::vector<std::pair<const char*, Json>> few_to_export() {
  auto sizes = sizes_to_export();
  sizes.insert(sizes.end(), {{"vocab_size", 16}, {"num_experts", 3}, {"num_experts_per_tok", 2}});
  return sizes;
}

// A model of these sizes, with made-up ranges.
inline std::unique_ptr<models::Model> model_to_export(const quantizers::QuantizeOptions& options,
                                                      const char* type = "qwen3", int64_t head_dim = 64) {
  auto model = tiny_model({.type = type, .quantize = options, .sizes = sizes_to_export(head_dim)});
  set_made_up_amax(*model);
  return model;
}

}  // namespace temper
